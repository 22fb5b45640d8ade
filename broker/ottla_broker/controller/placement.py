"""Chooses the brokers that get a topic's replicas: Kafka's ``AdminUtils.assignReplicasToBrokers``.

Without racks, partition p's first replica goes to broker p (counted from a random start), and the others are spread
with a shift that grows each time all brokers have had a first one, so that the load of a broker that fails falls on
all others. With racks (KIP-36) the brokers are ordered so that neighbours are in different racks, and replicas of a
partition are put into as many racks as there are.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla_protocol.errors import ErrorCode, KafkaError

Assignments = dict[int, tuple[int, ...]]


def place(
    brokers: Mapping[int, str | None],
    count: int,
    replication_factor: int,
    *,
    first: int = 0,
    start: int = 0,
    shift: int = 0,
) -> Assignments:
    """Replicas for ``count`` partitions numbered from ``first``, the preferred leader first.

    ``brokers`` has the racks, which count only if every broker has one. ``start`` is the index of partition 0's first
    replica among the brokers, ``shift`` the distance to its second: random numbers for a new topic.

    Raises KafkaError: INVALID_PARTITIONS or INVALID_REPLICATION_FACTOR.
    """
    if count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(brokers)}.",
        )
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    if len(racks) == len(brokers):
        return _by_rack(racks, count, replication_factor, first, start, shift)
    order = sorted(brokers)
    made: Assignments = {}
    for index in range(first, first + count):
        if index > 0 and index % len(order) == 0:
            shift += 1
        head = (index + start) % len(order)
        places = [head, *(_place(head, shift, j, len(order)) for j in range(replication_factor - 1))]
        made[index] = tuple(order[place] for place in places)
    return made


def _place(head: int, shift: int, step: int, size: int) -> int:
    """The index for the replica ``step`` places behind the first one, which is never the first one's."""
    return (head + 1 + (shift + step) % (size - 1)) % size


def _by_rack(
    racks: Mapping[int, str], count: int, replication_factor: int, first: int, start: int, shift: int
) -> Assignments:
    order = alternated(racks)
    rack_count = len(set(racks.values()))
    made: Assignments = {}
    for index in range(first, first + count):
        if index > 0 and index % len(order) == 0:
            shift += 1
        head = (index + start) % len(order)
        replicas = [order[head]]
        used = {racks[order[head]]}
        step = 0
        while len(replicas) < replication_factor:
            broker = order[_place(head, shift * rack_count, step, len(order))]
            step += 1
            # A second replica in a rack only when every rack has one; never a second one on a broker.
            if broker not in replicas and (racks[broker] not in used or len(used) == rack_count):
                replicas.append(broker)
                used.add(racks[broker])
        made[index] = tuple(replicas)
    return made


def alternated(racks: Mapping[int, str]) -> list[int]:
    """The brokers, taking turns between racks: ``{0: a, 1: a, 2: b}`` gives 0, 2, 1."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    queues = [by_rack[rack] for rack in sorted(by_rack)]
    return [
        queue[turn]
        for turn in range(max(map(len, queues), default=0))
        for queue in queues
        if turn < len(queue)
    ]
