"""Tenants register through a web form and are provisioned by a workflow, each once, also if the engine is down.

`models.py` has the tables, `service.py` what happens in the transaction of a registration, `web.py` the HTTP API,
`provisioning.py` the workflow and its sweeper, `outside.py` what they call, and `migrations` the tables' history.
"""
