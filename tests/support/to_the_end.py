"""Reads partitions to their ends with confluent-kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import confluent_kafka as ck


def messages(
    address: str,
    topic: str,
    partitions: Collection[int] = (0,),
    *,
    seconds: float = 60,
) -> Iterator[Any]:
    """The messages of these partitions from their beginnings on, those of one partition in order."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        consumer.assign([ck.TopicPartition(topic, index, ck.OFFSET_BEGINNING) for index in partitions])
        ends = 0
        while ends < len(partitions):
            message: Any = consumer.poll(seconds)
            assert message is not None, "no answer in time"
            error = message.error()
            if error is None:
                yield message
            else:
                assert error.code() == ck.KafkaError._PARTITION_EOF, error
                ends += 1
    finally:
        consumer.close()
