"""PostgreSQL: many workers, set-based statements, LISTEN/NOTIFY with a slow poll behind it."""
