"""Partitions that move to other replicas (KIP-455): Kafka's ``KafkaController.onPartitionReassignment``.

``/brokers/topics/T`` lists the replicas to add and to remove beside the replicas. A move has two phases::

    phase     replicas       in-sync replicas    ends when
    moving    old and new    unchanged           all replicas that stay are in sync
    moved     new            among the new       -

Then one write makes a new replica the leader, unless one leads already, and removes the old ones from the in-sync
replicas; after that the old ones are deleted. The next controller continues a move that its predecessor began. To
cancel a move is to move back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.batch import NewBatch
from ottla_broker.controller.cluster.context import NO_LEADER, Context, Topic
from ottla_broker.controller.cluster.event_queue import EventQueue
from ottla_broker.controller.cluster.leader_election import Elected
from ottla_broker.controller.cluster.partition_state_machine import Choose, PartitionStateMachine
from ottla_broker.controller.cluster.persistence import Persistence
from ottla_broker.controller.validation import check_reassignment
from ottla_broker.events import get_logger
from ottla_broker.store.api import BadVersionError
from ottla_broker.store.keys import Assignment, PartitionState
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

_ATTEMPTS: Final = 5


def origin(assignment: Assignment) -> list[int]:
    return [broker for broker in assignment.replicas if broker not in assignment.adding]


def target(assignment: Assignment) -> list[int]:
    return [broker for broker in assignment.replicas if broker not in assignment.removing]


def towards(assignment: Assignment, replicas: Sequence[int]) -> Assignment:
    """The assignment of a partition that starts to move, or changes its target on the way."""
    before = origin(assignment)
    both = list(dict.fromkeys([*replicas, *before]))
    return Assignment(
        both,
        [broker for broker in both if broker not in before],
        [broker for broker in both if broker not in replicas],
    )


def is_moving(assignment: Assignment) -> bool:
    return bool(assignment.adding or assignment.removing)


@dataclass(eq=False)
class Reassignments:
    """Owned by the controller's task.

    ``read_again`` reads a topic that another process has changed.
    """

    _context: Context
    _persistence: Persistence
    _events: EventQueue
    _new_batch: NewBatch
    _states: PartitionStateMachine
    _read_again: Callable[[str], Awaitable[None]]
    _moving: set[Partition] = field(default_factory=set, init=False)

    def load(self) -> None:
        for topic in self._context.topics.values():
            self.note(topic)

    def note(self, topic: Topic) -> None:
        """Note the moves of a topic that was read from the store."""
        for index, assignment in topic.assignments.items():
            if is_moving(assignment) and topic.name not in self._context.deleting:
                self._moving.add((topic.name, index))

    def forget(self, topic: str) -> None:
        """Drop the moves of a topic that is deleted."""
        self._moving = {each for each in self._moving if each[0] != topic}

    def any(self) -> bool:
        return bool(self._moving)

    def current(self) -> dict[Partition, Assignment]:
        return {partition: self._context.assignment(partition) for partition in sorted(self._moving)}

    async def begin(self, partition: Partition, replicas: Sequence[int] | None) -> None:
        """Move a partition, or (None) cancel its move. Raises KafkaError, ControllerMovedError, StoreError."""
        context = self._context
        if not context.has(partition) or context.is_deleting(partition):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        for _ in range(_ATTEMPTS):
            assignment = context.assignment(partition)
            if replicas is None:
                if not is_moving(assignment):
                    raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
                wanted = towards(assignment, origin(assignment))
            else:
                check_reassignment(replicas, origin(assignment), context.live())
                wanted = towards(assignment, replicas)
            self._check_safe(partition, wanted)
            try:
                await self._start(partition, assignment, wanted)
            except BadVersionError:
                # Another process has changed the topic, for example added partitions.
                await self._read_again(partition[0])
                continue
            await self.resume([partition])
            return
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition[0]}: another process keeps changing it")

    def _check_safe(self, partition: Partition, wanted: Assignment) -> None:
        """Check that an in-sync replica stays: cancelling a move drops the added replicas at once."""
        view = self._context.view(partition)
        if view is not None and not set(view.state.isr) & set(wanted.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"None of the replicas {','.join(map(str, wanted.replicas))} is in sync.",
            )

    async def _start(self, partition: Partition, before: Assignment, wanted: Assignment) -> None:
        """Write the assignment, and send all replicas a new leader epoch. Raises BadVersionError, StoreError."""
        context = self._context
        name, index = partition
        if wanted != before:
            await self._persistence.set_assignments(context.topics[name], {index: wanted})
        if is_moving(wanted):
            self._moving.add(partition)
        else:
            self._moving.discard(partition)
        _log.info(
            "reassignment",
            partition=f"{name}-{index}",
            replicas=list(wanted.replicas),
            adding=list(wanted.adding),
            removing=list(wanted.removing),
        )
        batch = self._new_batch()
        await self._states.elect([partition], self._among(wanted.replicas, always=True), batch)
        batch.leader_and_isr(wanted.adding, partition, is_new=True)
        # An earlier move may have added replicas that this one doesn't want.
        unneeded = [broker for broker in before.replicas if broker not in wanted.replicas]
        batch.stop_replica(unneeded, partition, delete=True)
        await batch.send()

    def _among(self, replicas: Sequence[int], *, always: bool) -> Choose:
        """Let only ``replicas`` lead and be in sync, in a new epoch. ``always``: even if none of them can lead."""

        def choose(partition: Partition, state: PartitionState) -> Elected | None:
            stay = tuple(broker for broker in state.isr if broker in replicas)
            online = self._context.online(partition)
            able = [broker for broker in replicas if broker in online and broker in stay]
            if state.leader in able:
                return Elected(state.leader, stay)
            if able:
                return Elected(able[0], stay)
            return Elected(NO_LEADER, stay) if always and stay else None

        return choose

    async def resume(self, partitions: Iterable[Partition] | None = None) -> None:
        """Finish the moves whose new replicas are all in sync."""
        context = self._context
        moving = list(self._moving) if partitions is None else [p for p in partitions if p in self._moving]
        for partition in moving:
            view = context.view(partition)
            if not context.has(partition) or view is None:
                continue
            wanted = target(context.assignment(partition))
            if set(wanted) <= set(view.state.isr):
                await self._finish(partition, wanted)

    async def _finish(self, partition: Partition, wanted: Sequence[int]) -> None:
        context = self._context
        name, index = partition
        removing = list(context.assignment(partition).removing)
        batch = self._new_batch()
        changed = await self._states.elect([partition], self._among(wanted, always=False), batch)
        if partition not in changed:
            # None of the new replicas can lead now.
            await batch.send()
            return
        try:
            await self._persistence.set_assignments(context.topics[name], {index: Assignment(list(wanted))})
        except BadVersionError:
            await batch.send()
            await self._read_again(name)
            self._events.post(partial(self.resume, [partition]))
            return
        self._moving.discard(partition)
        _log.info("reassigned", partition=f"{name}-{index}", replicas=list(wanted))
        batch.leader_and_isr(wanted, partition)
        batch.stop_replica(removing, partition, delete=True)
        batch.update_metadata(context.live_or_shutting_down(), [partition])
        await batch.send()
