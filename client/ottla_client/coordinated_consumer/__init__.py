"""The consumer of the coordinator designed in 2012, which assigns partitions and pushes its requests."""

from .consumer import CoordinatedConsumer as CoordinatedConsumer
