"""What ``ottla log dump`` and ``ottla log verify`` show, without the command line."""
