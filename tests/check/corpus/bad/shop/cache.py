"""State at the top of a module."""

SEEN = set()
limit = 1
