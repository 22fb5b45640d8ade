"""``python -m ottla_client`` is ``ottla``."""

from ottla_client.cli import main

main(prog_name="ottla")
