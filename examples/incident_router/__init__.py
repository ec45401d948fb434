"""Incidents: a router that watches, and an agent that is called when something opens, gets worse or closes."""
