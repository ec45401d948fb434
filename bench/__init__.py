"""Our own numbers beside the peers'. `python -m bench --help` says what there is."""
