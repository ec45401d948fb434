"""The journal engine: everything SQLite and PostgreSQL have in common."""
