"""One module per peer. Each runs in an environment of its own with pinned versions."""
