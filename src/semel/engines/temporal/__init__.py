"""Executions on a Temporal cluster."""
