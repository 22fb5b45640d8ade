"""The consumer of the coordinator designed in 2012, without asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from ..coordinated_consumer import CoordinatedConsumer as AsyncCoordinatedConsumer
from ..coordinated_consumer.consumer import DEFAULT_COORDINATOR
from ..coordinated_consumer.settings import CoordinatedConsumerOptions, CoordinatedConsumerSettings
from ..settings import accepts
from .streams_consumer import StreamsConsumer
from .sync_client import blocking, in_loop


class CoordinatedConsumer(StreamsConsumer[AsyncCoordinatedConsumer]):
    """``ottla_client.CoordinatedConsumer`` for code without asyncio::

        with CoordinatedConsumer("orders", coordinator_servers="127.0.0.1:9094", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    Each stream may be read by a thread of its own.
    """

    @accepts(CoordinatedConsumerSettings)
    def __init__(
        self,
        *topics: str,
        coordinator_servers: str | Sequence[str] = DEFAULT_COORDINATOR,
        **options: Unpack[CoordinatedConsumerOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(
            AsyncCoordinatedConsumer(*topics, coordinator_servers=coordinator_servers, **options)
        )

    assignment = in_loop(AsyncCoordinatedConsumer.assignment)
    commit = blocking(AsyncCoordinatedConsumer.commit)
