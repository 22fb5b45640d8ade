"""Fetch: the request for records, with or without a session (KIP-227), by the names of topics or by their ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla_protocol.fetch_session import NO_SESSION
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla_protocol.schema import ZERO_UUID

from ..types import TopicPartition

LAST_BY_NAME: Final = 12
"""The last version that names topics; later ones have their ids alone (KIP-516)."""
FIRST_WITH_SESSIONS: Final = 7
SESSIONLESS_EPOCH: Final = -1


class FetchPosition(NamedTuple):
    """Where to fetch a partition from, which the broker remembers in a session.

    ``leader_epoch`` is -1 where it isn't known.
    """

    topic_id: bytes | None
    offset: int
    leader_epoch: int
    max_bytes: int


def fetch_request(
    positions: Mapping[TopicPartition, FetchPosition],
    *,
    version: int,
    max_bytes: int,
    min_bytes: int = 0,
    max_wait_ms: int = 0,
    isolation: int = 0,
    rack_id: str = "",
    session: tuple[int, int] = (NO_SESSION, SESSIONLESS_EPOCH),
    forgotten: Iterable[tuple[TopicPartition, bytes | None]] = (),
) -> FetchRequest:
    """A request for these partitions; ``session`` is the session's id and epoch, ``forgotten`` leave it."""
    topics: dict[tuple[str, bytes], list[FetchPartition]] = {}
    for (topic, partition), position in positions.items():
        topics.setdefault((topic, position.topic_id or ZERO_UUID), []).append(
            FetchPartition(
                partition=partition,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=position.max_bytes,
            )
        )
    leaving: dict[tuple[str, bytes], list[int]] = {}
    for (topic, partition), topic_id in forgotten:
        leaving.setdefault((topic, topic_id or ZERO_UUID), []).append(partition)
    session_id, epoch = session if version >= FIRST_WITH_SESSIONS else (NO_SESSION, SESSIONLESS_EPOCH)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
            for (topic, topic_id), partitions in topics.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
            for (topic, topic_id), partitions in leaving.items()
        ],
        rack_id=rack_id,
    )
