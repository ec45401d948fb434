"""Connections of callers: whichever driver or framework they come from, as an engine can use them."""
