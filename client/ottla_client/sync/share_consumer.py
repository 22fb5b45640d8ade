"""The share consumer without asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias, Unpack

from ..consumer.consumer import CLOSE_SECONDS
from ..errors import ClientError, ClosedError
from ..meters import Metrics
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..share_consumer import ShareConsumer as AsyncShareConsumer
from ..share_consumer.settings import ShareConsumerOptions, ShareConsumerSettings
from ..types import ConsumerRecord, TopicPartition
from .iterating import IteratingClient
from .sync_client import EXIT_SECONDS, SyncClient, blocking, in_loop

_Record = ConsumerRecord[Any, Any]
_Callback: TypeAlias = Callable[[Mapping[TopicPartition, frozenset[int]], ClientError | None], None]


def _give_back(consumer: SyncClient[AsyncShareConsumer], records: Sequence[_Record]) -> None:
    """Records were taken for a call that was interrupted: hand them out again."""
    with suppress(ClosedError):
        consumer._post(partial(consumer._client._give_back, records))


class ShareConsumer(IteratingClient[AsyncShareConsumer]):
    """``ottla_client.ShareConsumer`` for code without asyncio::

        with ShareConsumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="packers") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    One thread at a time may take records; any thread may call the other methods.
    """

    @accepts(ShareConsumerSettings)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(AsyncShareConsumer(*topics, bootstrap_servers=bootstrap_servers, **options))

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Send acknowledgements, release all other records, leave the group, disconnect, within ``timeout`` seconds.

        In the implicit mode, records that were handed out are accepted. A second call does nothing.
        """
        self._end(lambda: self._client.close(timeout))

    def _close_at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    poll = blocking(AsyncShareConsumer.poll, _give_back)

    subscribe = in_loop(AsyncShareConsumer.subscribe)
    unsubscribe = blocking(AsyncShareConsumer.unsubscribe)
    subscription = in_loop(AsyncShareConsumer.subscription)
    assignment = in_loop(AsyncShareConsumer.assignment)

    acknowledge = in_loop(AsyncShareConsumer.acknowledge)
    commit_sync = blocking(AsyncShareConsumer.commit_sync)
    commit_async = in_loop(AsyncShareConsumer.commit_async)

    def set_acknowledgement_commit_callback(self, callback: _Callback | None) -> None:
        """Have ``callback`` called, in a thread of its own, while a call waits; see the async method."""

        async def call(offsets: Mapping[TopicPartition, frozenset[int]], error: ClientError | None) -> None:
            assert callback is not None
            await asyncio.to_thread(callback, offsets, error)

        self._set_callback(None if callback is None else call)

    _set_callback = in_loop(AsyncShareConsumer.set_acknowledgement_commit_callback)

    def acquisition_lock_timeout_ms(self) -> int | None:
        """The time for which acquired records are locked; see the async method."""
        return self._client.acquisition_lock_timeout_ms()

    def metrics(self) -> Metrics:
        """The consumer's counts; see the async method."""
        return self._client.metrics()
