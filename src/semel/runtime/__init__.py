"""What every engine does alike with people's functions."""
