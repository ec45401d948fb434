"""SQLite: one file, one writer thread, every commit on disk before it is acknowledged."""
