"""OffsetCommit 0 and OffsetFetch 0: offsets in ZooKeeper, or in the embedded store."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

pytestmark = pytest.mark.ottla_only  # Kafka without ZooKeeper has no version 0

NONE = int(ErrorCode.NONE)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def commit(
    broker: BrokerProcess, group: str, topic: str, offsets: dict[int, int], metadata: str = ""
) -> dict[int, int]:
    """Error codes by partition."""
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=metadata
        )
        for index, offset in offsets.items()
    ]
    request = OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)]
    )
    with Wire(broker.port) as wire:
        (answer,) = wire.call(request, 0).topics
    return {each.partition_index: each.error_code for each in answer.partitions}


def fetch(
    broker: BrokerProcess, group: str, topic: str, *indexes: int, version: int = 0
) -> list[tuple[int, int]]:
    """Offsets and error codes."""
    topics = [OffsetFetchRequestTopic(name=topic, partition_indexes=list(indexes))]
    with Wire(broker.port) as wire:
        (answer,) = wire.call(OffsetFetchRequest(group_id=group, topics=topics), version).topics
    return [(each.committed_offset, each.error_code) for each in answer.partitions]


def test_offsets_are_kept(own_broker: Callable[..., BrokerProcess]) -> None:
    """Also over a restart. Kafka's own offsets of the group are others."""
    from tests.support.topics import create_topic

    broker = own_broker()
    create_topic(broker, "t", 3)
    assert commit(broker, "g", "t", {0: 5, 2: 7, 9: 1}) == {0: NONE, 2: NONE, 9: UNKNOWN}
    assert commit(broker, "g", "t", {0: 6}) == {0: NONE}
    with Wire(broker.port) as wire:  # ConsumerMetadata, as 0.8.2 called it
        found = wire.call(FindCoordinatorRequest(key="g"), 0)
    assert (found.error_code, found.port) == (NONE, broker.port)
    broker.stop()
    broker.start()
    assert fetch(broker, "g", "t", 0, 1, 2, 9) == [(6, NONE), (-1, UNKNOWN), (7, NONE), (-1, UNKNOWN)]
    assert fetch(broker, "other", "t", 0) == [(-1, UNKNOWN)]
    assert fetch(broker, "g", "t", 0, version=1) == [(-1, NONE)]


def test_bad_requests(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    assert commit(broker, "g", topic, {0: 1}, "x" * 4097) == {0: int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}
    for group in ("", "a/b", "..", ".", "a\0b"):
        assert commit(broker, group, topic, {0: 1}) == {0: int(ErrorCode.INVALID_GROUP_ID)}
        assert fetch(broker, group, topic, 0) == [(-1, int(ErrorCode.INVALID_GROUP_ID))]
    assert commit(broker, "g", "no-such-topic", {0: 1}) == {0: UNKNOWN}
    assert fetch(broker, "g", "no-such-topic", 0) == [(-1, UNKNOWN)]
