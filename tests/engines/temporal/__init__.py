"""What only the Temporal engine does, against a real server."""
