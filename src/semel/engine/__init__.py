"""The seam: what every engine can do, in words that suit a table and a cluster alike."""
