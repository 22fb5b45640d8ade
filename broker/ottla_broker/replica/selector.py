"""Which replica a consumer reads from: the one in its own rack (KIP-392).

Source: Java's ``RackAwareReplicaSelector``, the only one that Kafka brings along.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.replica.partition import Partition
from ottla_broker.replica.replicated import ReplicatedPartition, Role


class RackAwareSelector:
    """See above."""

    def __init__(self, broker_id: int, rack_of: Callable[[int], str | None]) -> None:
        """``rack_of`` gives the rack of a broker that is alive, None for others."""
        self._broker_id = broker_id
        self._rack_of = rack_of

    def choose(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The most advanced in-sync replica in the consumer's rack that has ``offset``; None: the leader."""
        if not isinstance(partition, ReplicatedPartition) or partition.role is not Role.LEADER:
            return None
        if self._rack_of(self._broker_id) == rack:
            return None
        near = [
            remote
            for broker_id, remote in partition.remotes.items()
            if broker_id in partition.isr
            and self._rack_of(broker_id) == rack
            and 0 <= remote.start_offset <= offset <= remote.end_offset
        ]
        if not near:
            return None
        return max(
            near, key=lambda remote: (remote.end_offset, remote.caught_up, -remote.broker_id)
        ).broker_id
