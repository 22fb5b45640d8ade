"""Watches the other brokers through open connections, and reports at once when a process dies.

A process that dies closes its sockets. While the connection to a broker is broken, Metadata names no leader for its
partitions: clients then ask again in a moment, whereas they wait a second or more for a leader that is named. A broker
that refuses new connections is dead. If it is the controller, the others replace it, one after another so that they
don't compete. A wrong judgement does no harm (see ``controller_election``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerConnection, Peers, PeerUnreachableError, Purpose

_log = get_logger()

_CONNECT_SECONDS: Final = 5.0
_REFUSALS: Final = 2
_TURN_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.05
_REST_SECONDS: Final = 1.0


@dataclass(eq=False)
class PeerMonitor:
    """Owned by the loop thread; one task for each watched broker.

    ``place`` returns how many brokers come before this one in replacing a broker as the controller.
    ``on_dead`` is called with a dead broker, repeatedly while it is watched; ``on_reach`` with a broker and whether
    it is connected, whenever that changes.
    """

    _broker_id: int
    _peers: Peers
    _clock: Clock
    _place: Callable[[int], int]
    _on_dead: Callable[[int], None]
    _on_reach: Callable[[int, bool], None]
    _tasks: dict[int, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _connections: dict[int, PeerConnection] = field(default_factory=dict, init=False)
    # Brokers that refused the last attempt to connect.
    _refused: set[int] = field(default_factory=set, init=False)

    def is_dead(self, broker: int) -> bool:
        """Whether a broker's process has ended: its machine refused the last attempt to connect."""
        return broker in self._refused

    def watch(self, brokers: Collection[int]) -> None:
        """Watch these brokers, and no others."""
        wanted = set(brokers) - {self._broker_id}
        for broker in self._tasks.keys() - wanted:
            self._tasks.pop(broker).cancel()
            self._refused.discard(broker)
            self._connections.pop(broker, None)
            self._on_reach(broker, True)
        for broker in wanted - self._tasks.keys():
            self._tasks[broker] = asyncio.get_running_loop().create_task(self._run(broker))

    def check_closed(self) -> None:
        """Check now which processes have ended, without waiting for the event loop."""
        for connection in list(self._connections.values()):
            connection.check_closed()

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _broken(self, broker: int, reason: ConnectionError | None = None) -> None:
        if broker in self._tasks:
            self._connections.pop(broker, None)
            self._on_reach(broker, False)

    async def _run(self, broker: int) -> None:
        refusals = 0
        while True:
            try:
                connection = await self._peers.connection(broker, Purpose.WATCH, _CONNECT_SECONDS)
                refusals = 0
                self._refused.discard(broker)
                self._on_reach(broker, True)
                # Report it in the same turn of the loop: that broker's clients ask at the same moment.
                self._connections[broker] = connection
                connection.on_close = partial(self._broken, broker)
                await connection.wait_closed()
                self._broken(broker)
                continue
            except PeerUnreachableError as error:
                refusals = refusals + 1 if error.refused else 0
                if error.refused and not error.vanished:
                    self._refused.add(broker)
                else:
                    self._refused.discard(broker)
            if refusals >= _REFUSALS:
                await self._clock.sleep(self._place(broker) * _TURN_SECONDS)
                self._on_dead(broker)
                refusals = 0
                await self._clock.sleep(_REST_SECONDS)
            await self._clock.sleep(_RETRY_SECONDS)
