"""Changes of who leads partitions: chosen, written to the store, and noted for the brokers to be told.

What a partition may go through; ``epoch`` is its leader epoch, which goes up with each of these writes::

    new        -> online    the first replicas that are there: they are in sync, the first of them leads
    offline    -> online    leader_election.when_offline, among those who are in sync
    online     -> online    another leader (preferred, shutting down, reassigned), or fewer in sync
    online     -> offline   nobody can lead: the leader is -1, and who was in sync stays so, for any of them has
                            all that is committed; the first to come back leads
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from ottla_broker.controller.cluster.batch import Batch
from ottla_broker.controller.cluster.context import NO_LEADER, Context, Partition, PartitionView
from ottla_broker.controller.cluster.leader_election import Elected, when_offline
from ottla_broker.controller.cluster.persistence import ControllerMovedError, Persistence
from ottla_broker.events import get_logger
from ottla_broker.store.keys import PartitionState

log = get_logger()

_ATTEMPTS: Final = 5

Choose = Callable[[Partition, PartitionState], Elected | None]
"""A partition's new leader and in-sync replicas; None: it stays as it is."""


class PartitionStateMachine:
    """Owned by the controller's task."""

    def __init__(
        self, context: Context, persistence: Persistence, unclean_allowed: Callable[[str], bool]
    ) -> None:
        """``unclean_allowed``: whether a topic takes a leader that may lack committed records."""
        self._context = context
        self._persistence = persistence
        self._unclean_allowed = unclean_allowed

    async def create(self, partitions: Iterable[Partition], batch: Batch) -> set[Partition]:
        """Have new partitions led, by those of their replicas that are there. Returns those that are led then."""
        context = self._context
        states: dict[Partition, PartitionState] = {}
        for partition in partitions:
            state = self.first_state(partition)
            if state is not None:
                states[partition] = state
            else:
                log.warning(
                    "no replica of a new partition is there", partition=f"{partition[0]}-{partition[1]}"
                )
        made = await self._persistence.create_states(states)
        for partition, view in made.items():
            context.set_view(partition, view)
            batch.lead(context.replicas(partition), partition, is_new=True)
        return set(made)

    def first_state(self, partition: Partition) -> PartitionState | None:
        """Of a new partition: the replicas that are there are in sync, the first of them leads. None: none is."""
        context = self._context
        able = [broker for broker in context.replicas(partition) if context.is_online(broker, partition)]
        return PartitionState(able[0], 0, able, context.epoch) if able else None

    async def elect(self, partitions: Iterable[Partition], choose: Choose, batch: Batch) -> set[Partition]:
        """Change partitions as ``choose`` says. Returns those that were changed."""
        context = self._context
        left = set(partitions)
        changed: set[Partition] = set()
        for _ in range(_ATTEMPTS):
            states: dict[Partition, tuple[PartitionState, int]] = {}
            for partition in left:
                view = context.view(partition)
                if view is None:
                    continue
                elected = choose(partition, view.state)
                if elected is not None:
                    states[partition] = (self._next(view.state, elected), view.version)
                    if elected.unclean:
                        log.warning(
                            "unclean election: committed records may be lost",
                            partition=f"{partition[0]}-{partition[1]}",
                            leader=elected.leader,
                        )
            if not states:
                return changed
            written = await self._persistence.write_states(states)
            for partition, view in written.items():
                context.set_view(partition, view)
                batch.lead(context.replicas(partition), partition)
            changed |= written.keys()
            left = states.keys() - written.keys()
            if not left:
                return changed
            await self._read_again(left, batch)
        log.error("partitions could not be changed: somebody else writes them", count=len(left))
        return changed

    def _next(self, state: PartitionState, elected: Elected) -> PartitionState:
        return PartitionState(elected.leader, state.leader_epoch + 1, list(elected.isr), self._context.epoch)

    async def _read_again(self, partitions: Collection[Partition], batch: Batch) -> set[Partition]:
        """What the store says is not what was known: a leader of an old release has written it, or this controller
        itself, when the connection broke before it was told so. Returns what is different. Raises ControllerMovedError.
        """
        now: Mapping[Partition, PartitionView] = await self._persistence.read_states(list(partitions))
        changed = set()
        for partition, view in now.items():
            if view.state.controller_epoch > self._context.epoch:
                raise ControllerMovedError(
                    f"a partition was written by a controller of epoch {view.state.controller_epoch}"
                )
            if self._context.has(partition) and view != self._context.view(partition):
                self._context.set_view(partition, view)
                batch.lead(self._context.replicas(partition), partition)
                changed.add(partition)
        return changed

    async def refresh(self, partitions: Iterable[Partition], batch: Batch) -> set[Partition]:
        """Read the states from the store. Returns those that were not known.

        Raises ControllerMovedError, StoreError.
        """
        return await self._read_again(list(partitions), batch)

    # ---- the choices that depend on what is alive

    def without(self, gone: Collection[int]) -> Choose:
        """Brokers are gone: another leader for what they led, and nobody of them in sync any more."""

        def choose(partition: Partition, state: PartitionState) -> Elected | None:
            if self._context.is_deleting(partition):
                return None
            online = self._context.online(partition)
            if state.leader not in gone and state.leader != NO_LEADER:
                stay = tuple(broker for broker in state.isr if broker not in gone)
                # A leader is always in sync with itself.
                return Elected(state.leader, stay) if stay and len(stay) < len(state.isr) else None
            elected = self._when_offline(partition, state, online)
            if elected is None and state.leader != NO_LEADER:
                return Elected(NO_LEADER, tuple(state.isr))
            return elected

        return choose

    def offline(self, partition: Partition, state: PartitionState) -> Elected | None:
        """A leader for a partition that has none, if there can be one now."""
        if self._context.is_led(partition) or self._context.is_deleting(partition):
            return None
        return self._when_offline(partition, state, self._context.online(partition))

    def _when_offline(
        self, partition: Partition, state: PartitionState, online: Collection[int]
    ) -> Elected | None:
        return when_offline(
            self._context.replicas(partition), state.isr, online, self._unclean_allowed(partition[0])
        )
