"""Partitions that move to other replicas (KIP-455): Kafka's ``KafkaController.onPartitionReassignment``.

What is to come and to go stands beside the replicas in ``/brokers/topics/T``. A move has two phases::

    phase     replicas            in sync        goes on when
    moving    old and new ones    as they are    all that are to stay are in sync
    moved     the new ones        of the new     -

When it has moved, one write makes one of the new replicas the leader, if none of them was, and takes the old ones out
of the in-sync replicas; then the old ones are deleted. A controller that dies in between leaves what the next one goes
on with. Stopping a move is a move to the replicas that there were before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ottla_broker.controller.cluster.context import NO_LEADER, Partition, Topic
from ottla_broker.controller.cluster.leader_election import Elected
from ottla_broker.controller.validation import check_reassignment
from ottla_broker.events import get_logger
from ottla_broker.store.api import BadVersionError
from ottla_broker.store.keys import Assignment, PartitionState
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.controller import ActiveController
    from ottla_broker.controller.cluster.partition_state_machine import Choose

log = get_logger()

_ATTEMPTS: Final = 5


def origin(assignment: Assignment) -> list[int]:
    """The replicas before the move, and those that nobody moves."""
    return [broker for broker in assignment.replicas if broker not in assignment.adding]


def target(assignment: Assignment) -> list[int]:
    """The replicas after the move."""
    return [broker for broker in assignment.replicas if broker not in assignment.removing]


def towards(assignment: Assignment, replicas: Sequence[int]) -> Assignment:
    """The assignment of a partition that begins to move, or turns elsewhere on its way."""
    before = origin(assignment)
    all_of_them = list(dict.fromkeys([*replicas, *before]))
    return Assignment(
        all_of_them,
        [broker for broker in all_of_them if broker not in before],
        [broker for broker in all_of_them if broker not in replicas],
    )


def is_moving(assignment: Assignment) -> bool:
    return bool(assignment.adding or assignment.removing)


class Reassignments:
    """Owned by the controller's task."""

    def __init__(self, controller: ActiveController) -> None:
        self._controller = controller
        self._context = controller.context
        self._moving: set[Partition] = set()

    # ---- what is going on

    def load(self) -> None:
        for topic in self._context.topics.values():
            self.note(topic)

    def note(self, topic: Topic) -> None:
        """A topic that was read from the store may be moving."""
        for index, assignment in topic.assignments.items():
            if is_moving(assignment) and topic.name not in self._context.deleting:
                self._moving.add((topic.name, index))

    def forget(self, topic: str) -> None:
        """A topic that goes doesn't move any more."""
        self._moving = {each for each in self._moving if each[0] != topic}

    def any(self) -> bool:
        return bool(self._moving)

    def current(self) -> dict[Partition, Assignment]:
        """What is moving."""
        return {partition: self._context.assignment(partition) for partition in sorted(self._moving)}

    # ---- changes

    async def begin(self, partition: Partition, replicas: Sequence[int] | None) -> None:
        """Move a partition, or (None) stop moving it. Raises KafkaError, ControllerMovedError, StoreError."""
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
                # Somebody else has changed the topic, as by giving it more partitions.
                await self._controller.topics.read_again(partition[0])
                continue
            await self.resume([partition])
            return
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{partition[0]}: somebody else goes on changing it")

    def _check_safe(self, partition: Partition, wanted: Assignment) -> None:
        """A replica that is dropped at once, as when a move is stopped, must not be the last one in sync."""
        view = self._context.view(partition)
        if view is not None and not set(view.state.isr) & set(wanted.replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"None of the replicas {','.join(map(str, wanted.replicas))} is in sync.",
            )

    async def _start(self, partition: Partition, before: Assignment, wanted: Assignment) -> None:
        """Write the assignment, and have all replicas told in a new epoch. Raises BadVersionError, StoreError."""
        controller, context = self._controller, self._context
        name, index = partition
        if wanted != before:
            await controller.persistence.set_assignments(context.topics[name], {index: wanted})
        if is_moving(wanted):
            self._moving.add(partition)
        else:
            self._moving.discard(partition)
        log.info(
            "reassignment",
            partition=f"{name}-{index}",
            replicas=list(wanted.replicas),
            adding=list(wanted.adding),
            removing=list(wanted.removing),
        )
        batch = controller.batch()
        await controller.partition_states.elect([partition], self._among(wanted.replicas, always=True), batch)
        batch.lead(wanted.adding, partition, is_new=True)
        # Replicas that an earlier move had begun, and this one has no use for.
        unneeded = [broker for broker in before.replicas if broker not in wanted.replicas]
        batch.stop(unneeded, partition, delete=True)
        controller.send(batch)

    def _among(self, replicas: Sequence[int], *, always: bool) -> Choose:
        """Nobody but ``replicas`` in sync and leading any more, in a new epoch. ``always``: even if nobody can lead."""

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
        """Finish those moves whose new replicas are all in sync."""
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
        """Leave a partition to its new replicas."""
        controller, context = self._controller, self._context
        name, index = partition
        removing = list(context.assignment(partition).removing)
        batch = controller.batch()
        changed = await controller.partition_states.elect(
            [partition], self._among(wanted, always=False), batch
        )
        if partition not in changed:
            # Nobody of them can lead now.
            controller.send(batch)
            return
        try:
            await controller.persistence.set_assignments(
                context.topics[name], {index: Assignment(list(wanted))}
            )
        except BadVersionError:
            controller.send(batch)
            await controller.topics.read_again(name)
            controller.post(lambda: self.resume([partition]))
            return
        self._moving.discard(partition)
        log.info("reassigned", partition=f"{name}-{index}", replicas=list(wanted))
        batch.lead(wanted, partition)
        batch.stop(removing, partition, delete=True)
        batch.tell(context.live_or_leaving(), [partition])
        controller.send(batch)
