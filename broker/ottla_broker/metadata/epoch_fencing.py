"""Tells which controller this broker obeys: the latest one, if it means this broker's present registration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ottla_broker.clock import Clock
from ottla_protocol.errors import ErrorCode

NO_CONTROLLER = -1
_REGISTRATION_SECONDS = 10.0


class EpochFence:
    """Owned by the loop thread.

    Attributes:
        controller_id: the controller's broker id, -1 while none is known.
        controller_epoch: the highest epoch of a controller that this broker has obeyed.
        broker_epoch: the epoch of this broker's present registration; -1 before the first.
        registered: set once this broker is registered.
    """

    def __init__(self, clock: Clock, latest_controller_epoch: Callable[[], Awaitable[int]]) -> None:
        """``latest_controller_epoch`` reads the epoch of the last controller that was elected."""
        self._clock = clock
        self.controller_id = NO_CONTROLLER
        self.controller_epoch = 0
        self.registered = asyncio.Event()
        self._broker_epoch = -1
        self._latest_controller_epoch = latest_controller_epoch

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: int) -> None:
        self._broker_epoch = epoch
        self.registered.set()

    async def admit(self, controller_id: int, controller_epoch: int, broker_epoch: int | None) -> ErrorCode:
        """Decide whether to obey a request, and remember a newer controller. Call it for one request at a time.

        A process that has just started waits until it is registered: a request may be meant for the process before it,
        and only the new registration tells them apart. An epoch newer than all that were obeyed is looked up, because
        anyone could name one.

        Args:
            broker_epoch: the registration that is meant (KIP-380); None where the request's version has no such field.

        Returns:
            STALE_CONTROLLER_EPOCH: the controller has been replaced, or was never elected. STALE_BROKER_EPOCH: another
            registration is meant, or none; or this broker isn't registered after 10 seconds.

        Raises:
            Exception: what ``latest_controller_epoch`` raises.
        """
        try:
            async with self._clock.timeout(_REGISTRATION_SECONDS):
                await self.registered.wait()
        except TimeoutError:
            return ErrorCode.STALE_BROKER_EPOCH
        # A newer registration than the known one is this broker's own, whose epoch ZooKeeper hasn't returned yet.
        if broker_epoch is not None and broker_epoch < self._broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if (
            controller_epoch > self.controller_epoch
            and controller_epoch > await self._latest_controller_epoch()
        ):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        return ErrorCode.NONE
