"""Incidents: a router that reads alerts and metrics, and an agent that is called when an incident changes.

`router` is the governance namespace: it collects signals, routes and calls the agent. `scheduler` is the namespace of
schedules that users create. Neither sees the keys, queues and workers of the other; events go from one to the other.
"""
