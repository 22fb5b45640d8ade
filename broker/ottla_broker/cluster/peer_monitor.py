"""A look at the other brokers: when the process of one dies, this broker knows it at once.

An open connection is all it takes: a process that dies closes its sockets. While the connection to a broker is broken,
clients are told that what it leads has no leader: they ask again in a moment, and not after the second or more that
they give a leader that is said to be there. When new connections are refused, nobody listens there any more. If that is
the controller's broker, the others stand for election, one after the other so that they don't get in each other's way.
That whoever stands may be wrong about the controller is no danger (see ``controller_election``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerConnection, PeerError, Peers, PeerUnreachableError, Purpose

log = get_logger()

_CONNECT_SECONDS: Final = 5.0
_REFUSALS: Final = 2
_TURN_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.05
_REST_SECONDS: Final = 1.0


class PeerMonitor:
    """Owned by the loop thread; one task for each broker that is watched."""

    def __init__(
        self,
        broker_id: int,
        peers: Peers,
        clock: Clock,
        place: Callable[[int], int],
        on_dead: Callable[[int], None],
        on_reach: Callable[[int, bool], None],
    ) -> None:
        """``place``: how many brokers stand before this one when a broker is to be replaced as the controller.

        ``on_dead`` is told a broker whose process is gone, again and again while it is watched; ``on_reach`` whether
        there is a connection to a broker, whenever that changes.
        """
        self._broker_id = broker_id
        self._peers = peers
        self._clock = clock
        self._place = place
        self._on_dead = on_dead
        self._on_reach = on_reach
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._connections: dict[int, PeerConnection] = {}
        # Brokers that could not be asked last time because nobody listens there.
        self._refused: set[int] = set()

    def is_dead(self, broker: int) -> bool:
        """Whether a broker's process is known to have ended: its machine refused the last attempt to connect."""
        return broker in self._refused

    def watch(self, brokers: Collection[int]) -> None:
        """Watch these brokers from now on, and no others."""
        wanted = set(brokers) - {self._broker_id}
        for broker in self._tasks.keys() - wanted:
            self._tasks.pop(broker).cancel()
            self._refused.discard(broker)
            self._connections.pop(broker, None)
            self._on_reach(broker, True)
        for broker in wanted - self._tasks.keys():
            self._tasks[broker] = asyncio.get_running_loop().create_task(self._run(broker))

    def look(self) -> None:
        """Find out now which processes have ended, though the event loop has not come to it."""
        for connection in list(self._connections.values()):
            connection.look()

    async def close(self) -> None:
        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _broken(self, broker: int, reason: PeerError | None = None) -> None:
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
                # Told in the turn of the loop in which it breaks: clients of that broker ask at the same moment.
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
            except PeerError as error:
                log.debug("a broker is not reached", broker=broker, reason=str(error))
                refusals = 0
                self._refused.discard(broker)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                refusals = 0  # its address has changed
            if refusals >= _REFUSALS:
                await self._clock.sleep(self._place(broker) * _TURN_SECONDS)
                self._on_dead(broker)
                refusals = 0
                await self._clock.sleep(_REST_SECONDS)
            await self._clock.sleep(_RETRY_SECONDS)
