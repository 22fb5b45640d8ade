"""The simple consumer without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..simple_consumer import SimpleConsumer as AsyncSimpleConsumer
from ..simple_consumer import SimpleConsumerOptions, SimpleConsumerSettings
from .sync_client import SyncClient, blocking


class SimpleConsumer(SyncClient[AsyncSimpleConsumer]):
    """``ottla_client.SimpleConsumer`` for code without asyncio::

        with SimpleConsumer("127.0.0.1:9092") as consumer:
            fetched = consumer.fetch(TopicPartition("orders", 0), 0)

    Any thread may call its methods.
    """

    @accepts(SimpleConsumerSettings)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[SimpleConsumerOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(AsyncSimpleConsumer(bootstrap_servers, **options))

    fetch = blocking(AsyncSimpleConsumer.fetch)
    fetch_many = blocking(AsyncSimpleConsumer.fetch_many)
    leader = blocking(AsyncSimpleConsumer.leader)
    partitions_for = blocking(AsyncSimpleConsumer.partitions_for)
    beginning_offset = blocking(AsyncSimpleConsumer.beginning_offset)
    end_offset = blocking(AsyncSimpleConsumer.end_offset)
    offset_at = blocking(AsyncSimpleConsumer.offset_at)
    commit = blocking(AsyncSimpleConsumer.commit)
    committed = blocking(AsyncSimpleConsumer.committed)
