"""``python -m ottla_broker`` is ``ottla broker``."""

from ottla_broker.cli import broker

broker(prog_name="ottla broker")
