"""OffsetFetch: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class OffsetFetchRequestTopic(Struct):
    """Part of OffsetFetch."""

    name: String = field("0-7", default="")
    partition_indexes: list[Int32] = field("0-7", default_factory=list)


class OffsetFetchRequestTopics(Struct):
    """Part of OffsetFetch."""

    name: String = field("8+", default="")
    partition_indexes: list[Int32] = field("8+", default_factory=list)


class OffsetFetchRequestGroup(Struct):
    """Part of OffsetFetch."""

    group_id: String = field("8+", default="")
    member_id: String | None = field("9+", default=None, ignorable=True)
    member_epoch: Int32 = field("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field("8+", default_factory=list)


class OffsetFetchRequest(Message, key=ApiKey.OFFSET_FETCH, versions="0-9", flexible="6+"):
    """Part of OffsetFetch."""

    group_id: String = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", default_factory=list, nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = field("8+", default_factory=list)
    require_stable: Bool = field("7+", default=False)


class OffsetFetchResponsePartition(Struct):
    """Part of OffsetFetch."""

    partition_index: Int32 = field("0-7", default=0)
    committed_offset: Int64 = field("0-7", default=0)
    committed_leader_epoch: Int32 = field("5-7", default=-1, ignorable=True)
    metadata: String | None = field("0-7", default="")
    error_code: Int16 = field("0-7", default=0)


class OffsetFetchResponseTopic(Struct):
    """Part of OffsetFetch."""

    name: String = field("0-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field("0-7", default_factory=list)


class OffsetFetchResponsePartitions(Struct):
    """Part of OffsetFetch."""

    partition_index: Int32 = field("8+", default=0)
    committed_offset: Int64 = field("8+", default=0)
    committed_leader_epoch: Int32 = field("8+", default=-1, ignorable=True)
    metadata: String | None = field("8+", default="")
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponseTopics(Struct):
    """Part of OffsetFetch."""

    name: String = field("8+", default="")
    partitions: list[OffsetFetchResponsePartitions] = field("8+", default_factory=list)


class OffsetFetchResponseGroup(Struct):
    """Part of OffsetFetch."""

    group_id: String = field("8+", default="")
    topics: list[OffsetFetchResponseTopics] = field("8+", default_factory=list)
    error_code: Int16 = field("8+", default=0)


class OffsetFetchResponse(Message, key=ApiKey.OFFSET_FETCH, versions="0-9", flexible="6+"):
    """Part of OffsetFetch."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default_factory=list)
    error_code: Int16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default_factory=list)
