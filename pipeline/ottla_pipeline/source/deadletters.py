"""Sends record batches that can't be decoded to a topic, with ``onCorrupt=deadletter``.

The value is the batch's bytes. The headers are those of a landing job's dead letters: ``ottla.topic``,
``ottla.partition``, ``ottla.offset``, ``ottla.last_offset``, ``ottla.error``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Self

from . import kafka
from .options import SourceOptions

if TYPE_CHECKING:
    from ottla_client.sync import Producer
    from ottla_pipeline.reading.errors import CorruptBatch

log = logging.getLogger("ottla_pipeline")


class DeadLetters:
    """One task's; connects at the first batch. Waits for each acknowledgement before the task reads on."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._producer: Producer | None = None

    def put(self, batch: CorruptBatch) -> None:
        """Send a batch. Raises ClientError, for example if the batch is larger than the topic allows."""
        topic = self._options.dead_letter_topic
        assert topic is not None, "checked with the options"
        headers = {
            "ottla.topic": batch.topic,
            "ottla.partition": batch.partition,
            "ottla.offset": batch.first,
            "ottla.last_offset": batch.last,
            "ottla.error": f"the record batch can't be read: {batch.reason}",
        }
        encoded = [(name, str(value).encode()) for name, value in headers.items()]
        self._sender().send(topic, value=batch.data, headers=encoded).result()
        log.warning(
            "%s-%d: offsets %d to %d can't be decoded (%s); they go to topic %s",
            batch.topic,
            batch.partition,
            batch.first,
            batch.last,
            batch.reason,
            topic,
        )

    def _sender(self) -> Producer:
        from ottla_client.sync import Producer

        if self._producer is None:
            # No limit of our own: the topic's max.message.bytes decides.
            options = kafka.client_options(self._options.client)
            producer = Producer(self._options.bootstrap_servers, max_request_size=32 * 1024 * 1024, **options)
            producer.start()
            self._producer = producer
        return self._producer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._producer is not None:
            self._producer.close()
