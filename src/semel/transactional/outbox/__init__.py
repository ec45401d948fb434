"""The outbox: rows in the caller's database that say what to start, and the relay that starts it."""
