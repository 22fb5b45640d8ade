"""Coordinators that are built when they are first needed.

Importing the coordinators takes a tenth of a broker's start and two megabytes, and many brokers have no groups and no
transactions. So each is built when a partition of one of its topics is led here, or when a request first asks for it.
Its modules are imported a few at a time, between which other requests are served; who asks for it waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from importlib import import_module
from typing import Final, Generic, TypeVar

from ottla_broker.events import get_logger
from ottla_broker.replica.manager import ReplicaListener
from ottla_broker.replica.partition import Partition

_log = get_logger()

T = TypeVar("T")

GROUP_MODULES: Final = (
    "ottla_broker.coordinator.group.member",
    "ottla_broker.coordinator.group.records",
    "ottla_broker.coordinator.group.modern.consumer_group",
    "ottla_broker.coordinator.group.share.group",
    "ottla_broker.coordinator.share.state_coordinator",
    "ottla_broker.coordinator.group.rebalance",
    "ottla_broker.coordinator.group.modern.fencing",
    "ottla_broker.coordinator.group.share.groups",
    "ottla_broker.coordinator.group.commits",
    "ottla_broker.coordinator.group.modern.consumer_groups",
    "ottla_broker.coordinator.group.coordinator",
    "ottla_broker.coordinator.share.share_partition",
    "ottla_broker.group_coordinators",
)
"""What the coordinators of groups are made of, each with not many modules that those before it haven't imported."""

TRANSACTION_MODULES: Final = (
    "ottla_broker.coordinator.transaction.metadata",
    "ottla_broker.coordinator.transaction.coordinator",
    "ottla_broker.coordinator.transaction.local_delivery",
    "ottla_broker.coordinator.transaction.producer_id_source",
)


async def import_in_steps(modules: Sequence[str]) -> None:
    """Import the modules, and let others have the event loop after each; the first import what the later ones use."""
    for name in modules:
        import_module(name)
        await asyncio.sleep(0)


class OnDemand(Generic[T]):
    """A listener of the replica manager. Owned by the loop thread.

    Attributes:
        made: the coordinator; None until it is needed.
        listeners: learn which partitions are led here, once the coordinator is made.
        stopping: the steps that stop what was started with it, last first.
        is_closed: a coordinator that is made now must not be started.
    """

    def __init__(self, topics: Collection[str], modules: Sequence[str], make: Callable[[], T]) -> None:
        """``make`` builds the coordinator, and adds to ``listeners`` and ``stopping``; it imports ``modules``."""
        self.made: T | None = None
        self.listeners: list[ReplicaListener] = []
        self.stopping: list[Callable[[], Awaitable[None] | None]] = []
        self.is_closed = False
        self._topics = frozenset(topics)
        self._modules = modules
        self._make = make
        # The partitions of its topics that are led here, until it is made.
        self._led: dict[tuple[str, int], Partition] = {}
        self._loading: asyncio.Task[None] | None = None

    @property
    def is_needed(self) -> bool:
        """Whether it is made, or must be made because partitions of its topics are led here."""
        return self.made is not None or bool(self._led)

    def get(self) -> T:
        """The coordinator, which is made if this is the first use; at once, so :meth:`load` should come before."""
        made = self.made
        if made is None:
            made = self.made = self._make()
            led, self._led = self._led, {}
            for partition in led.values():
                self._announce(partition)
        return made

    async def load(self) -> None:
        """Make the coordinator without holding the event loop for long. Raises CancelledError if the broker stops."""
        self.want()
        if self.made is None and self._loading is not None:
            await asyncio.shield(self._loading)

    def want(self) -> None:
        """Begin to load the coordinator."""
        if self.made is None and self._loading is None and not self.is_closed:
            self._loading = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        try:
            await import_in_steps(self._modules)
            self.get()
        except Exception as error:
            _log.error("a coordinator can't be built", modules=self._modules[-1], exc_info=error)
            raise

    async def close(self) -> None:
        """Make and start nothing from now on."""
        self.is_closed = True
        if self._loading is not None and not self._loading.done():
            self._loading.cancel()
            await asyncio.wait([self._loading])

    def on_leader(self, partition: Partition) -> None:
        """A partition is led here; the coordinator is needed if it is of its topics."""
        if self.made is not None:
            self._announce(partition)
        elif partition.topic in self._topics:
            self._led[partition.topic, partition.partition] = partition
            self.want()

    def on_stop(self, topic: str, partition: int) -> None:
        """A partition is no longer led here."""
        self._led.pop((topic, partition), None)
        for listener in self.listeners:
            listener.on_stop(topic, partition)

    def _announce(self, partition: Partition) -> None:
        for listener in self.listeners:
            listener.on_leader(partition)
