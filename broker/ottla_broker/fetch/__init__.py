"""How :mod:`ottla_broker.handlers.fetch` reads: for consumers, for followers, and for clients of old formats."""
