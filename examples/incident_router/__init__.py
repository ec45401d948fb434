"""Incidents: a router that watches metrics, and an agent that is called when an incident opens, escalates or closes."""
