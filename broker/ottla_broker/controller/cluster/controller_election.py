"""The election of the controller: the broker that created ``/controller``. As in Kafka, but faster when it dies.

Winning is one transaction: it creates the node and raises the controller epoch, if the epoch's node still has the
version that was read. Every write of a controller checks that version, so a controller that has been replaced can't
write, even if it doesn't know yet. That also makes :meth:`ControllerElection.take_over` safe: when the controller's
process is known to be dead, another broker replaces it before its session ends. If that judgement is wrong, the old
controller finds out with its next write, or because its node is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ottla_broker.clock import Clock
from ottla_broker.controller.cluster.persistence import ClusterStore
from ottla_broker.events import get_logger
from ottla_broker.store.api import (
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    SessionLostError,
    SessionState,
    Set,
    StoreError,
    StoreEvent,
    UnknownOutcomeError,
    Watch,
)
from ottla_broker.store.keys import BadNodeError, ControllerEpochNode, ControllerNode

_log = get_logger()

_RETRY_SECONDS: Final = 0.2
_UNREADABLE_SECONDS: Final = 5.0
"""How long to wait for a change when a node can't be read; its writer is the controller until it goes."""
_NONE: Final = -1


@dataclass(eq=False)
class ControllerElection:
    """One broker's part in the election. Owned by the loop thread.

    ``on_elected`` is awaited with the new epoch and its node's version, ``on_resigned`` when this broker is no longer
    the controller. ``on_controller`` is called with the controller's id, or -1, whenever that changes.
    """

    _store: ClusterStore
    _broker_id: int
    _clock: Clock
    _on_elected: Callable[[int, int], Awaitable[None]]
    _on_resigned: Callable[[], Awaitable[None]]
    _on_controller: Callable[[int], None]
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _watch: Watch | None = field(default=None, init=False)
    _dead_controller: int | None = field(default=None, init=False)
    _resign: bool = field(default=False, init=False)
    _epoch_version: int = field(default=-1, init=False)
    controller: int = field(default=_NONE, init=False)
    is_controller: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Take part until the session with the store ends, or this is cancelled."""
        try:
            self._watch = self._store.watch(ControllerNode.PATH, self._on_change)
        except SessionLostError:
            return  # the session ended before its first election
        # A node's watch reports nothing once the session is over.
        session = self._store.watch_session(self._on_change)
        try:
            while True:
                self._wake.clear()
                try:
                    await self._step()
                except SessionLostError:
                    return  # the next session has an election of its own
                except StoreError as error:
                    _log.error("the election of a controller failed and is retried", reason=str(error))
                    await self._clock.sleep(_RETRY_SECONDS)
                except BadNodeError as error:
                    _log.error("no controller can be elected", reason=str(error))
                    await self._wait(_UNREADABLE_SECONDS)
                else:
                    await self._wait(None)
        finally:
            session.cancel()
            self._watch.cancel()
            await self.step_down()

    async def _wait(self, timeout: float | None) -> None:
        """Wait until something happens, or for ``timeout`` seconds."""
        try:
            async with self._clock.timeout(timeout):
                await self._wake.wait()
        except TimeoutError:
            return

    def resign(self) -> None:
        """Stop being the controller: another one has a higher epoch, or this broker stops."""
        self._resign = True
        self._wake.set()

    async def step_down(self) -> None:
        """Stop being the controller while the store is unreachable: it may have elected another one.

        The node stays until the store removes it, or :meth:`stand` finds it.
        """
        if self.is_controller:
            self.is_controller = False
            await self._on_resigned()

    def stand(self) -> None:
        """Take part again: the store is reachable."""
        self._wake.set()

    def take_over(self, dead: int) -> None:
        """Replace a controller whose process is gone."""
        self._dead_controller = dead
        self._wake.set()

    def _on_change(self, news: StoreEvent | SessionState) -> None:
        self._wake.set()

    async def _step(self) -> None:
        if self._resign:
            self._resign = False
            await self._give_up()
        current = await self._current()
        dead, self._dead_controller = self._dead_controller, None
        if self.is_controller and current != self._broker_id:
            _log.warning("another broker is the controller", controller=current)
            await self.step_down()
        # A node with this broker's id was left by an earlier process of it.
        if not self.is_controller and current in (_NONE, self._broker_id, dead):
            won = await self._try(current)
            current = self._broker_id if won else await self._current()
        if current != self.controller:
            self.controller = current
            self._on_controller(current)

    async def _give_up(self) -> None:
        if not self.is_controller:
            return
        await self.step_down()
        try:
            # As long as the epoch is unchanged, the node is this broker's, or gone.
            await self._store.transaction(
                [Check(ControllerEpochNode.PATH, self._epoch_version), Delete(ControllerNode.PATH)]
            )
        except (NoNodeError, BadVersionError):
            return

    async def _current(self) -> int:
        try:
            data, _ = await self._store.get(ControllerNode.PATH)
        except NoNodeError:
            return _NONE
        return ControllerNode.decode(data)

    async def _try(self, predecessor: int) -> bool:
        """Try to become the controller, in place of a dead one or of none. Returns whether that worked."""
        epoch, version = await self._epoch()
        # Read it after the epoch: if another broker wins from here on, the epoch's version tells.
        if await self._current() != predecessor:
            self._wake.set()
            return False
        takes_over = predecessor != _NONE
        operations: list[Operation] = [
            Set(ControllerEpochNode.PATH, ControllerEpochNode.encode(epoch + 1), version)
        ]
        if takes_over:
            operations.append(Delete(ControllerNode.PATH))
        node = ControllerNode.encode(self._broker_id, self._clock.now_ms())
        operations.append(Create(ControllerNode.PATH, node, ephemeral=True))
        try:
            await self._store.transaction(operations)
        except (BadVersionError, NodeExistsError, NoNodeError):
            return False  # another broker was quicker
        except UnknownOutcomeError:
            if await self._current() != self._broker_id or await self._epoch() != (epoch + 1, version + 1):
                return False
        _log.info("elected controller", epoch=epoch + 1, took_over=takes_over)
        self.is_controller = True
        self._epoch_version = version + 1
        # Before the new controller starts working, so that this broker's own requests find it.
        self.controller = self._broker_id
        self._on_controller(self._broker_id)
        await self._on_elected(epoch + 1, version + 1)
        return True

    async def _epoch(self) -> tuple[int, int]:
        """The controller epoch and the version of its node, which is created if it doesn't exist."""
        while True:
            try:
                data, version = await self._store.get(ControllerEpochNode.PATH)
            except NoNodeError:
                try:
                    await self._store.create(ControllerEpochNode.PATH, ControllerEpochNode.encode(0))
                except NodeExistsError:
                    continue
                return 0, 0
            return ControllerEpochNode.decode(data), version
