"""StopReplica, key 5: the controller has a broker stop replicas, and delete them if requested.

Version 0 lists partitions, 1 and 2 group them by topic, 3+ say of each its leader epoch and whether to delete it; 4+
whether the controller is KRaft's. Version 2 is flexible. Kafka: ``StopReplicaRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class StopReplicaPartitionV0(Struct):
    """A partition, as version 0 lists it."""

    topic_name: String = field("0", default="")
    partition_index: Int32 = field("0", default=0)


class StopReplicaTopicV1(Struct):
    """A topic's partitions, as versions 1 and 2 list them."""

    name: String = field("1-2", default="")
    partition_indexes: list[Int32] = field("1-2", default_factory=list)


class StopReplicaPartitionState(Struct):
    """A partition to stop; leader epoch -2 means a topic that is being deleted, -1 none."""

    partition_index: Int32 = field("3+", default=0)
    leader_epoch: Int32 = field("3+", default=-1)
    delete_partition: Bool = field("3+", default=False)


class StopReplicaTopicState(Struct):
    topic_name: String = field("3+", default="")
    partition_states: list[StopReplicaPartitionState] = field("3+", default_factory=list)


class StopReplicaRequest(Message, key=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    controller_id: Int32 = field(default=0)
    is_kraft_controller: Bool = field("4+", default=False)
    controller_epoch: Int32 = field(default=0)
    broker_epoch: Int64 = field("1+", default=-1, ignorable=True)
    delete_partitions: Bool = field("0-2", default=False)
    ungrouped_partitions: list[StopReplicaPartitionV0] = field("0", default_factory=list)
    topics: list[StopReplicaTopicV1] = field("1-2", default_factory=list)
    topic_states: list[StopReplicaTopicState] = field("3+", default_factory=list)


class StopReplicaPartitionError(Struct):
    topic_name: String = field(default="")
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class StopReplicaResponse(Message, key=ApiKey.STOP_REPLICA, versions="0-4", flexible="2+"):
    """An error for all, or a code a partition."""

    error_code: Int16 = field(default=0)
    partition_errors: list[StopReplicaPartitionError] = field(default_factory=list)
