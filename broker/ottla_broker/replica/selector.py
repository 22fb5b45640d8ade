"""Chooses the replica that a consumer reads from: the one in its own rack (KIP-392).

Source: Java's ``RackAwareReplicaSelector``, the only one that Kafka ships.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.replica.partition import Partition, Role


class RackAwareSelector:
    """Prefers in-sync replicas in the consumer's rack."""

    def __init__(self, broker_id: int, rack_of: Callable[[int], str | None]) -> None:
        """``rack_of`` returns the rack of a live broker, None for others."""
        self._broker_id = broker_id
        self._rack_of = rack_of

    def choose(self, partition: Partition, rack: str, offset: int) -> int | None:
        """The most advanced in-sync replica in the consumer's rack that has ``offset``; None: the leader."""
        if partition.role is not Role.LEADER:
            return None
        if self._rack_of(self._broker_id) == rack:
            return None
        near = [
            follower
            for broker_id, follower in partition.followers.items()
            if broker_id in partition.isr
            and self._rack_of(broker_id) == rack
            and 0 <= follower.start_offset <= offset <= follower.end_offset
        ]
        if not near:
            return None
        return max(near, key=lambda each: (each.end_offset, each.caught_up, -each.broker_id)).broker_id
