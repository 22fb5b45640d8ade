"""LeaderAndIsr, key 4: the controller sends a broker the partitions that it leads or follows.

Versions 2+ group partitions by topic and carry the broker's epoch, 3+ a reassignment's replicas, 5+ topic ids and the
request's type (1 incremental, 2 full), 6+ the recovery state (KIP-704), 7+ whether the controller is KRaft's. Version 4
is flexible. Kafka: ``LeaderAndIsrRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class LeaderAndIsrPartitionState(Struct):
    """One partition's leader, in-sync and assigned replicas, in the epochs that they hold for."""

    topic_name: String = field("0-1", default="", ignorable=True)
    partition_index: Int32 = field(default=0)
    controller_epoch: Int32 = field(default=0)
    leader: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    isr: list[Int32] = field(default_factory=list)
    partition_epoch: Int32 = field(default=0)
    replicas: list[Int32] = field(default_factory=list)
    adding_replicas: list[Int32] = field("3+", default_factory=list, ignorable=True)
    removing_replicas: list[Int32] = field("3+", default_factory=list, ignorable=True)
    is_new: Bool = field("1+", default=False, ignorable=True)
    leader_recovery_state: Int8 = field("6+", default=0)


class LeaderAndIsrTopicState(Struct):
    topic_name: String = field("2+", default="")
    topic_id: Uuid = field("5+", default=ZERO_UUID, ignorable=True)
    partition_states: list[LeaderAndIsrPartitionState] = field("2+", default_factory=list)


class LeaderAndIsrLiveLeader(Struct):
    """The address of a leader, for followers to fetch from."""

    broker_id: Int32 = field(default=0)
    host_name: String = field(default="")
    port: Int32 = field(default=0)


class LeaderAndIsrRequest(Message, key=ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+"):
    """The receiver's role for each partition."""

    controller_id: Int32 = field(default=0)
    is_kraft_controller: Bool = field("7+", default=False)
    controller_epoch: Int32 = field(default=0)
    broker_epoch: Int64 = field("2+", default=-1, ignorable=True)
    type: Int8 = field("5+", default=0)
    ungrouped_partition_states: list[LeaderAndIsrPartitionState] = field("0-1", default_factory=list)
    topic_states: list[LeaderAndIsrTopicState] = field("2+", default_factory=list)
    live_leaders: list[LeaderAndIsrLiveLeader] = field(default_factory=list)


class LeaderAndIsrPartitionError(Struct):
    topic_name: String = field("0-4", default="", ignorable=True)
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class LeaderAndIsrTopicError(Struct):
    """A topic's partitions, by the topic's id."""

    topic_id: Uuid = field("5+", default=ZERO_UUID)
    partition_errors: list[LeaderAndIsrPartitionError] = field("5+", default_factory=list)


class LeaderAndIsrResponse(Message, key=ApiKey.LEADER_AND_ISR, versions="0-7", flexible="4+"):
    """STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH for all, or a code a partition."""

    error_code: Int16 = field(default=0)
    partition_errors: list[LeaderAndIsrPartitionError] = field("0-4", default_factory=list)
    topics: list[LeaderAndIsrTopicError] = field("5+", default_factory=list)
