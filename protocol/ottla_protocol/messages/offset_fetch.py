"""OffsetFetch, key 9: read a group's committed offsets.

Version 0 read ZooKeeper; 2 may ask for all topics, 5 has leader epochs (KIP-320), 6 is flexible, 7 can wait
for open transactions (KIP-447), 8 asks for several groups (KIP-709), 9 names the member that asks
(KIP-848).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class OffsetFetchRequestTopic(Struct):
    """Partitions of a topic (up to version 7)."""

    name: String = field("0-7", default="")
    partition_indexes: list[Int32] = field("0-7", default_factory=list)


class OffsetFetchRequestTopics(Struct):
    """Partitions of a topic (from version 8 on)."""

    name: String = field("8+", default="")
    partition_indexes: list[Int32] = field("8+", default_factory=list)


class OffsetFetchRequestGroup(Struct):
    """A group, and its topics; null means all that it has offsets for."""

    group_id: String = field("8+", default="")
    member_id: String | None = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", default_factory=list)


class OffsetFetchRequest(Message, key=ApiKey.OFFSET_FETCH, versions="0-9", flexible="6+"):
    """One group up to version 7, several from 8 on."""

    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", default_factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", default_factory=list)
    require_stable: Bool = field("7+", default=False)
    """Refuse, retriably, offsets that an open transaction may change."""


class OffsetFetchResponsePartition(Struct):
    """A committed offset, -1 for none (up to version 7)."""

    partition_index: Int32 = field("0-7", default=0)
    committed_offset: Int64 = field("0-7", default=0)
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None = field("0-7", default="")
    error_code: Int16 = field("0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    """A topic's offsets (up to version 7)."""

    name: String = field("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field("0-7", default_factory=list)


class OffsetFetchResponsePartitions(Struct):
    """A committed offset, -1 for none (from version 8 on)."""

    partition_index: Int32 = field("8+", default=0)
    committed_offset: Int64 = field("8+", default=0)
    committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
    metadata: String | None = field("8+", default="")
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponseTopics(Struct):
    """A topic's offsets (from version 8 on)."""

    name: String = field("8+", default="")
    partitions: list[OffsetFetchResponsePartitions] = field("8+", default_factory=list)


class OffsetFetchResponseGroup(Struct):
    group_id: String = field("8+", default="")
    topics: list[OffsetFetchResponseTopics] = field("8+", default_factory=list)
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponse(Message, key=ApiKey.OFFSET_FETCH, versions="0-9", flexible="6+"):
    """The offsets of one group up to version 7, of several from 8 on."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default_factory=list)
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default_factory=list)
