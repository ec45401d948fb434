"""How workflow code runs: on a loop that does the same again, from a journal of what happened."""
