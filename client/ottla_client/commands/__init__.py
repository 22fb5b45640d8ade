"""The subcommands of ``ottla`` that need no broker package: they work with any Kafka cluster."""
