"""Which records of share groups are delivered for the last time or were dropped, by brokers' ``/shares``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ottla_client.types import TopicPartition

from .broker_pages import Page


class LastDeliveries(NamedTuple):
    """Records that the group drops unless this delivery, or the next one, is accepted."""

    group: str
    partition: TopicPartition
    records: int
    first: int
    most: int


class Dropped(NamedTuple):
    """Records of the last hour that no consumer accepted. ``last`` is the last one's offset in ``partition``."""

    group: str
    partition: TopicPartition
    records: int
    last: int
    rejected: bool


class Deliveries(NamedTuple):
    """A broker's report on the partitions that it leads."""

    last: tuple[LastDeliveries, ...]
    dropped: tuple[Dropped, ...]


def _read(document: Mapping[str, Any]) -> Deliveries:
    return Deliveries(
        tuple(
            LastDeliveries(
                str(each["group"]),
                TopicPartition(str(each["topic"]), int(each["partition"])),
                int(each["records"]),
                int(each["first_offset"]),
                int(each["most_deliveries"]),
            )
            for each in document["last_deliveries"]
        ),
        tuple(
            Dropped(
                str(each["group"]),
                TopicPartition(str(each["topic"]), int(each["partition"])),
                int(each["records"]),
                int(each["last_offset"]),
                each["reason"] == "rejected",
            )
            for each in document["dropped"]
        ),
    )


DELIVERIES: Final = Page("/shares", "deliveries of share groups", _read)
