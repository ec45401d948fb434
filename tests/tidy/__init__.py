"""Style as a test: what we would otherwise have to remember in review."""
