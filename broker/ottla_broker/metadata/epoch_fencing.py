"""Who may tell this broker what to do: the controller in its latest epoch, to the broker in its present one."""

from __future__ import annotations

import asyncio

from ottla_protocol.errors import ErrorCode

NOBODY = -1
_REGISTRATION_SECONDS = 10.0


class EpochFence:
    """Owned by the loop thread.

    Attributes:
        controller_id: the broker that is the controller, -1 while nobody is known to be.
        controller_epoch: the highest that has been heard of.
        broker_epoch: of this broker's present registration; -1 before the first.
        registered: set once there is one.
    """

    def __init__(self) -> None:
        self.controller_id = NOBODY
        self.controller_epoch = 0
        self.registered = asyncio.Event()
        self._broker_epoch = -1

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: int) -> None:
        self._broker_epoch = epoch
        self.registered.set()

    async def admit(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """As :meth:`check`, once this broker is registered.

        A process that has just started may be told what was meant for the one before it, as the controller finds
        somebody at the address; only its own registration tells that apart. STALE_BROKER_EPOCH when that takes long.
        """
        try:
            async with asyncio.timeout(_REGISTRATION_SECONDS):
                await self.registered.wait()
        except TimeoutError:
            return ErrorCode.STALE_BROKER_EPOCH
        return self.check(controller_id, controller_epoch, broker_epoch)

    def check(self, controller_id: int, controller_epoch: int, broker_epoch: int) -> ErrorCode:
        """Whether to obey a request; takes note of a newer controller.

        STALE_CONTROLLER_EPOCH: of a controller that has been replaced. STALE_BROKER_EPOCH: meant for an earlier life of
        this broker (KIP-380); a request that doesn't say (-1) is not checked.
        """
        if broker_epoch not in (-1, self.broker_epoch) and broker_epoch < self.broker_epoch:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        return ErrorCode.NONE
