"""Checks of new topics, partitions and replicas, with Kafka's messages (``AdminZkClient``, ``Topic``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from ottla_broker.config.server_keys import MOST_NEW_PARTITIONS
from ottla_broker.controller.api import MorePartitions, NewTopic
from ottla_broker.controller.placement import place
from ottla_broker.log.names import MAX_TOPIC_NAME, is_topic_name
from ottla_protocol.errors import ErrorCode, KafkaError

_MOST_NAMED: Final = 5
"""The most topics that a message names."""


def check_topic_name(name: str) -> None:
    """Raises KafkaError(INVALID_TOPIC_EXCEPTION) for a name that no topic can have."""
    if is_topic_name(name):
        return
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_TOPIC_NAME:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_TOPIC_NAME}"
    else:
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


class Collisions:
    """Existing topic names. Names that differ only in ``.`` and ``_`` collide in names of metrics."""

    def __init__(self, existing: Iterable[str]) -> None:
        self._taken: dict[str, list[str]] = {}
        for name in existing:
            self.add(name)

    def add(self, name: str) -> None:
        self._taken.setdefault(name.replace(".", "_"), []).append(name)

    def check(self, name: str) -> None:
        """Raises KafkaError(INVALID_TOPIC_EXCEPTION) for a name that collides with another."""
        colliding = self._taken.get(name.replace(".", "_"))
        if colliding:
            more = len(colliding) - _MOST_NAMED
            named = [*colliding[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topics: {', '.join(named)}",
            )


def check_batch_size(partitions: int) -> None:
    """Limit the new partitions in one request, so that they don't keep the broker busy for long.

    Raises KafkaError: POLICY_VIOLATION, as in Kafka's KRaft controller (``ReplicationControlManager``).
    """
    if partitions > MOST_NEW_PARTITIONS:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Unable to perform excessively large batch operation: {partitions} partitions in one request,"
            f" {MOST_NEW_PARTITIONS} are allowed.",
        )


def assignments_of(
    topic: NewTopic, brokers: Sequence[int], default_partitions: int, default_replication: int
) -> dict[int, Sequence[int]]:
    """The replicas of a new topic's partitions.

    Raises:
        KafkaError: INVALID_REQUEST, INVALID_PARTITIONS, INVALID_REPLICATION_FACTOR or
        INVALID_REPLICA_ASSIGNMENT.
    """
    if not topic.assignments:
        count = default_partitions if topic.num_partitions == -1 else topic.num_partitions
        factor = default_replication if topic.replication_factor == -1 else topic.replication_factor
        check_batch_size(count)
        return dict(place(dict.fromkeys(brokers), count, factor))
    if topic.num_partitions != -1 or topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used"
            " at the same time.",
        )
    if topic.assigned_twice is not None:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Found multiple manual partition assignments for partition {topic.assigned_twice}",
        )
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    _check_replicas(topic.assignments, len(next(iter(topic.assignments.values()))), brokers)
    return {index: tuple(topic.assignments[index]) for index in sorted(topic.assignments)}


def assignments_of_more(
    topic: MorePartitions, existing: int, replication_factor: int, brokers: Sequence[int]
) -> dict[int, Sequence[int]]:
    """The replicas of a topic's new partitions, when it has ``existing`` ones.

    Raises KafkaError: INVALID_PARTITIONS or INVALID_REPLICA_ASSIGNMENT.
    """
    more = topic.count - existing
    if more < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {existing} partitions, which is higher than the requested {topic.count}.",
        )
    if more == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partitions.")
    if topic.assignments is None:
        check_batch_size(more)
        return dict(place(dict.fromkeys(brokers), more, replication_factor, first=existing))
    if len(topic.assignments) != more:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Increasing the number of partitions by {more} but {len(topic.assignments)} assignments"
            " provided.",
        )
    given = {existing + step: tuple(replicas) for step, replicas in enumerate(topic.assignments)}
    _check_replicas(given, replication_factor, brokers)
    return dict(given)


def _check_replicas(given: Mapping[int, Sequence[int]], size: int, brokers: Sequence[int]) -> None:
    """Raises KafkaError(INVALID_REPLICA_ASSIGNMENT) for replicas that a partition can't have."""

    def refuse(reason: str) -> None:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)

    unknown = sorted({broker for replicas in given.values() for broker in replicas} - set(brokers))
    if unknown:
        refuse(f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    for index, replicas in given.items():
        if not replicas:
            refuse(f"Cannot have replication factor of 0 for partition id {index}.")
        if len(set(replicas)) != len(replicas):
            refuse(
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} for"
                f" partition id {index}."
            )
        if len(replicas) != size:
            refuse("All partitions should have the same number of replicas")


def check_reassignment(replicas: Sequence[int], current: Collection[int], live: Collection[int]) -> None:
    """Refuse replicas that a partition can't move to, with Kafka's messages (``KafkaController.validateReplicas``).

    Raises KafkaError: INVALID_REPLICA_ASSIGNMENT.
    """
    given = ",".join(map(str, replicas))
    dead = [broker for broker in replicas if broker not in current and broker not in live]
    if not replicas:
        reason = "Empty replica list specified in partition reassignment."
    elif len(set(replicas)) != len(replicas):
        reason = f"Duplicate replica ids in partition reassignment replica list: {given}"
    elif min(replicas) < 0:
        reason = f"Invalid broker id in replica list: {given}"
    elif dead:
        new = ",".join(str(broker) for broker in replicas if broker not in current)
        reason = (
            f"Replica assignment has brokers that are not alive. Replica list: {new},"
            f" live broker list: {','.join(map(str, sorted(live)))}"
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
