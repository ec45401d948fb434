"""The demo: a shop, a payment provider, a crash, and a claim that is checked."""
