"""ShareFetch and ShareAcknowledge: the requests of a share session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla_protocol.fetch_session import SessionRequest
from ottla_protocol.messages import share_fetch as wire
from ottla_protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from ottla_protocol.schema import ZERO_UUID

from ..types import TopicPartition
from .acknowledgements import AcknowledgedRun
from .settings import ACQUIRE_MODES, ShareConsumerSettings

FINAL_EPOCH = -1
"""Ends a share session."""


class SessionPartition(NamedTuple):
    """A partition as a share session remembers it."""

    topic_id: bytes | None


Runs = Mapping[tuple[TopicPartition, bytes], Iterable[AcknowledgedRun]]
"""Acknowledgements by partition and topic id."""


def share_fetch_request(
    settings: ShareConsumerSettings,
    member_id: str,
    session: SessionRequest[TopicPartition, SessionPartition],
    acknowledgements: Runs,
) -> wire.ShareFetchRequest:
    """Acquire records, and acknowledge earlier ones."""
    named = {(partition, kept.topic_id or ZERO_UUID): () for partition, kept in session.fetch.items()}
    leaving: dict[bytes, list[int]] = {}
    for partition, forgotten_id in session.forgotten:
        leaving.setdefault(forgotten_id or ZERO_UUID, []).append(partition.partition)
    return wire.ShareFetchRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=session.epoch,
        max_wait_ms=settings.fetch_max_wait_ms,
        min_bytes=settings.fetch_min_bytes,
        max_bytes=settings.fetch_max_bytes,
        max_records=settings.max_poll_records,
        batch_size=settings.max_poll_records,
        share_acquire_mode=ACQUIRE_MODES.index(settings.share_acquire_mode),
        topics=_topics({**named, **acknowledgements}),
        forgotten_topics_data=[
            wire.ForgottenTopic(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in leaving.items()
        ],
    )


def share_acknowledge_request(
    settings: ShareConsumerSettings, member_id: str, epoch: int, acknowledgements: Runs
) -> ShareAcknowledgeRequest:
    """Acknowledge records; with FINAL_EPOCH, end the session, which releases all others."""
    return ShareAcknowledgeRequest(
        group_id=settings.group_id,
        member_id=member_id,
        share_session_epoch=epoch,
        topics=_topics(acknowledgements),
    )


def _topics(acknowledgements: Runs) -> list[wire.FetchTopic]:
    topics: dict[bytes, wire.FetchTopic] = {}
    for (partition, topic_id), runs in acknowledgements.items():
        topics.setdefault(topic_id, wire.FetchTopic(topic_id=topic_id)).partitions.append(
            wire.FetchPartition(
                partition_index=partition.partition,
                acknowledgement_batches=[
                    wire.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                    for first, last, kind in runs
                ],
            )
        )
    return list(topics.values())
