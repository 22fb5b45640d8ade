"""Names the package in which subcommands of ``ottla`` find what they share; it once was here."""

raise ImportError("ottla_client.commands is ottla_cli now", name=__name__)
