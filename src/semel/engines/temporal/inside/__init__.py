"""What runs inside a Temporal workflow. It imports neither a Temporal client nor a database."""
