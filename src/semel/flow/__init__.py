"""The deterministic machinery: what keeps workflow code the same at every replay."""
