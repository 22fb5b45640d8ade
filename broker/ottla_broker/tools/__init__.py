"""The work of ``ottla log``, without the command line."""
