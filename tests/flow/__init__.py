"""The deterministic machinery."""
