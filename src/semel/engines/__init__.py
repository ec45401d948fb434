"""Engines: `journal` is what SQLite and PostgreSQL share; the others bring their database."""
