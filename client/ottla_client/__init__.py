"""Ottla's client package: today the command `ottla` itself, which finds its subcommands by entry points."""
