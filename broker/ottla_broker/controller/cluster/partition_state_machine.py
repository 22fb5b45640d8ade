"""Changes of partitions' leaders and in-sync replicas: chosen, written to the store, and added to a batch of requests.

Kafka's ``ZkPartitionStateMachine``. Each of these writes raises the partition's leader epoch::

    new        -> online    the live replicas are in sync, and the first of them leads
    offline    -> online    leader_election.when_offline, among the in-sync replicas
    online     -> online    another leader (preferred, shutting down, reassigned), or fewer in-sync replicas
    online     -> offline   no replica can lead: the leader is -1. The in-sync replicas stay, because each of them has
                            all committed records; the first to come back leads
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final

from ottla_broker.controller.api import Partition
from ottla_broker.controller.cluster.batch import Batch
from ottla_broker.controller.cluster.context import NO_LEADER, PORTION, Context
from ottla_broker.controller.cluster.leader_election import Elected, when_offline
from ottla_broker.controller.cluster.persistence import ControllerMovedError, Persistence
from ottla_broker.events import get_logger
from ottla_broker.store.keys import PartitionState
from ottla_broker.tasks import unhurried

_log = get_logger()

_ATTEMPTS: Final = 5

Choose = Callable[[Partition, PartitionState], Elected | None]
"""A partition's new leader and in-sync replicas; None leaves the partition as it is."""


@dataclass(eq=False)
class PartitionStateMachine:
    """Owned by the controller's task.

    ``unclean_allowed`` says whether a topic may get a leader that lacks committed records.
    """

    _context: Context
    _persistence: Persistence
    _unclean_allowed: Callable[[str], bool]
    _monotonic: Callable[[], float]

    async def create(self, partitions: Iterable[Partition], batch: Batch) -> None:
        """Write the first states of new partitions; a partition without a live replica stays without one."""
        context = self._context
        states: dict[Partition, PartitionState] = {}
        async for partition in unhurried(partitions, PORTION):
            state = self.first_state(partition)
            if state is not None:
                states[partition] = state
            else:
                _log.warning(
                    "a new partition has no live replica", partition=f"{partition[0]}-{partition[1]}"
                )
        made = await self._persistence.create_states(states)
        async for partition, view in unhurried(made.items(), PORTION):
            context.set_view(partition, view)
            batch.leader_and_isr(context.replicas(partition), partition, is_new=True)

    def first_state(self, partition: Partition) -> PartitionState | None:
        """A new partition's state, or None when it has no live replica."""
        context = self._context
        able = [broker for broker in context.replicas(partition) if context.is_online(broker, partition)]
        return PartitionState(able[0], 0, able, context.epoch) if able else None

    async def elect(self, partitions: Iterable[Partition], choose: Choose, batch: Batch) -> set[Partition]:
        """Change partitions as ``choose`` says. Returns the changed ones."""
        since = self._monotonic()
        changed = await self._elect(partitions, choose, batch)
        if changed:
            self._context.elections.add(self._monotonic() - since)
        return changed

    async def _elect(self, partitions: Iterable[Partition], choose: Choose, batch: Batch) -> set[Partition]:
        context = self._context
        left = set(partitions)
        changed: set[Partition] = set()
        for _ in range(_ATTEMPTS):
            states: dict[Partition, tuple[PartitionState, int]] = {}
            unclean: set[Partition] = set()
            async for partition in unhurried(left, PORTION):
                view = context.view(partition)
                if view is None:
                    continue
                elected = choose(partition, view.state)
                if elected is not None:
                    states[partition] = (self._next(view.state, elected), view.version)
                    if elected.unclean:
                        unclean.add(partition)
                        _log.warning(
                            "unclean election: committed records may be lost",
                            partition=f"{partition[0]}-{partition[1]}",
                            leader=elected.leader,
                        )
            if not states:
                return changed
            written = await self._persistence.write_states(states)
            async for partition, view in unhurried(written.items(), PORTION):
                context.set_view(partition, view)
                batch.leader_and_isr(context.replicas(partition), partition)
            changed |= written.keys()
            context.unclean_elections += len(unclean & written.keys())
            left = states.keys() - written.keys()
            if not left:
                return changed
            await self.refresh(left, batch)
        _log.error("partitions could not be changed: another process writes them", count=len(left))
        return changed

    def _next(self, state: PartitionState, elected: Elected) -> PartitionState:
        return PartitionState(elected.leader, state.leader_epoch + 1, list(elected.isr), self._context.epoch)

    async def refresh(self, partitions: Iterable[Partition], batch: Batch) -> None:
        """Read states from the store that may differ from those known.

        A leader of an old release writes its state itself; and this controller doesn't learn of its own write when the
        connection breaks first. Raises ControllerMovedError, StoreError.
        """
        context = self._context
        found = await self._persistence.read_states(list(partitions))
        async for partition, view in unhurried(found.items(), PORTION):
            if view.state.controller_epoch > context.epoch:
                raise ControllerMovedError(
                    f"a partition was written by a controller of epoch {view.state.controller_epoch}"
                )
            if context.has(partition) and view != context.view(partition):
                context.set_view(partition, view)
                batch.leader_and_isr(context.replicas(partition), partition)

    def without(self, gone: Collection[int]) -> Choose:
        """Replace leaders on these brokers, and remove the brokers from the in-sync replicas."""

        def choose(partition: Partition, state: PartitionState) -> Elected | None:
            if self._context.is_deleting(partition):
                return None
            if state.leader not in gone and state.leader != NO_LEADER:
                stay = tuple(broker for broker in state.isr if broker not in gone)
                # A leader is always in sync with itself.
                return Elected(state.leader, stay) if stay and len(stay) < len(state.isr) else None
            elected = self._when_offline(partition, state)
            if elected is None and state.leader != NO_LEADER:
                return Elected(NO_LEADER, tuple(state.isr))
            return elected

        return choose

    def offline(self, partition: Partition, state: PartitionState) -> Elected | None:
        """Choose a leader for a partition without one, if a replica can lead now."""
        if self._context.is_led(partition) or self._context.is_deleting(partition):
            return None
        return self._when_offline(partition, state)

    def _when_offline(self, partition: Partition, state: PartitionState) -> Elected | None:
        context = self._context
        return when_offline(
            context.replicas(partition),
            state.isr,
            context.online(partition),
            self._unclean_allowed(partition[0]),
        )
