"""CreateTopics, key 19: make topics.

Version 1 can validate only, 4 takes -1 for the broker's default of partitions and replicas (KIP-464), 5 is
flexible and returns the created topic (KIP-525), 6 throttles (KIP-599), 7 returns topic ids (KIP-516).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int8, Int16, Int32, Message, String, Struct, Uuid, field


class CreatableReplicaAssignment(Struct):
    """A partition's replicas, the preferred leader first."""

    partition_index: Int32 = field(default=0)
    broker_ids: list[Int32] = field(default_factory=list)


class CreatableTopicConfig(Struct):
    name: String = field(default="")
    value: String | None = field(default="")


class CreatableTopic(Struct):
    """A topic, sized by numbers (-1: the default) or by explicit assignments (then both are -1)."""

    name: String = field(default="")
    num_partitions: Int32 = field(default=0)
    replication_factor: Int16 = field(default=0)
    assignments: list[CreatableReplicaAssignment] = field(default_factory=list)
    configs: list[CreatableTopicConfig] = field(default_factory=list)


class CreateTopicsRequest(Message, key=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    topics: list[CreatableTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=60000)
    validate_only: Bool = field("1+", default=False)


class CreatableTopicConfigs(Struct):
    """A configuration that the topic has; sources are as in ``describe_configs``."""

    name: String = field("5+", default="")
    value: String | None = field("5+", default="")
    read_only: Bool = field("5+", default=False)
    config_source: Int8 = field("5+", default=-1, ignorable=True)
    is_sensitive: Bool = field("5+", default=False)


class CreatableTopicResult(Struct):
    name: String = field(default="")
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field("1+", default="", ignorable=True)
    topic_config_error_code: Int16 = field("5+", default=0, tag=0, ignorable=True)
    """The error if ``configs`` can't be returned."""
    num_partitions: Int32 = field("5+", default=-1, ignorable=True)
    replication_factor: Int16 = field("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field("5+", default_factory=list, ignorable=True)


class CreateTopicsResponse(Message, key=ApiKey.CREATE_TOPICS, versions="0-7", flexible="5+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(default_factory=list)
