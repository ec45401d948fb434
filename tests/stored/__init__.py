"""What earlier releases stored, kept as fixtures: the tree of today goes on with it. See README.md."""
