"""Tenants register with a Django site and are provisioned by a workflow, each once, also if the engine is down.

`registration.py` is what happens in one transaction, `provisioning.py` the workflow, `main.py` shows both.
"""
