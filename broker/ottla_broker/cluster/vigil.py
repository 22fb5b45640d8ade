"""A look at the controller's broker: when its process dies, this broker knows it at once and stands for election.

An open connection is all it takes: a process that dies closes its sockets. When that connection breaks and new ones are
refused, nobody listens there any more. The brokers then try one after the other, so that they don't get in each other's
way; that whoever tries may be wrong about the controller is no danger (see ``election``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.network.peer import PeerError, Peers, PeerUnreachableError, Purpose

log = get_logger()

_CONNECT_SECONDS: Final = 5.0
_REFUSALS: Final = 2
_TURN_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.05


class Vigil:
    """Owned by the loop thread; one task watches."""

    def __init__(
        self, broker_id: int, peers: Peers, place: Callable[[int], int], on_dead: Callable[[int], None]
    ) -> None:
        """``place``: how many brokers stand before this one when a controller is to be replaced."""
        self._broker_id = broker_id
        self._peers = peers
        self._place = place
        self._on_dead = on_dead
        self._task: asyncio.Task[None] | None = None

    def watch(self, controller: int) -> None:
        """Watch this broker from now on; nobody, if it is this one itself, or none."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if controller not in (self._broker_id, -1):
            self._task = asyncio.get_running_loop().create_task(self._run(controller))

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self, controller: int) -> None:
        refusals = 0
        while True:
            try:
                connection = await self._peers.connection(controller, Purpose.WATCH, _CONNECT_SECONDS)
                refusals = 0
                await connection.wait_closed()
                continue
            except PeerUnreachableError as error:
                refusals = refusals + 1 if error.refused else 0
            except PeerError as error:
                log.debug("the controller is not reached", controller=controller, reason=str(error))
                refusals = 0
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                refusals = 0  # its address has changed
            if refusals >= _REFUSALS:
                await asyncio.sleep(self._place(controller) * _TURN_SECONDS)
                log.warning("the controller's process is gone", controller=controller)
                self._on_dead(controller)
                refusals = 0
                # Whoever is elected is told to ``watch``; if nobody is, look again.
                await asyncio.sleep(1.0)
            await asyncio.sleep(_RETRY_SECONDS)
