"""A look into a data folder: what ``ottla log dump`` and ``ottla log verify`` show, without the command."""
