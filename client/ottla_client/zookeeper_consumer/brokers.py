"""Finds the brokers in ZooKeeper, and finds them again when they move.

"The purpose of the logical broker id is to allow a broker to be moved to a different physical machine without affecting
consumers."
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ..deadline import Deadline, wait_at_most
from ..errors import BadNodeError, BootstrapError, ClientError
from . import paths
from .registry import Registry

_log = logging.getLogger("ottla_client")

_LOOK_AGAIN: Final = 1.0
"""Seconds until ZooKeeper is asked again while it has no brokers, or doesn't answer."""


class RegisteredBrokers:
    """The brokers' addresses, as ``/brokers/ids`` has them. Belongs to the event loop's thread."""

    def __init__(self, registry: Registry, security_protocol: str, where: str) -> None:
        """``where`` is ZooKeeper's address, for messages."""
        self._registry = registry
        self._protocol = security_protocol
        self._where = where
        self._changed = asyncio.Event()

    async def find(self, deadline: Deadline) -> list[str]:
        """The addresses; waits for the first broker. Raises BootstrapError at the deadline, ZooKeeperError."""
        while True:
            self._changed.clear()
            found = await self._read()
            if found:
                return found
            if deadline.passed():
                raise BootstrapError(
                    f"no broker with a {self._protocol} listener is registered in ZooKeeper at"
                    f" {self._where}{paths.BROKERS}"
                )
            await wait_at_most(self._changed, deadline.left(_LOOK_AGAIN))

    async def follow(self, use: Callable[[list[str]], None]) -> None:
        """Pass the addresses to ``use`` after each change, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                found = await self._read()
            except ClientError as error:
                _log.warning("the brokers can't be read from ZooKeeper now, retrying: %s", error)
                await asyncio.sleep(_LOOK_AGAIN)
                self._changed.set()
                continue
            if found:
                use(found)

    async def _read(self) -> list[str]:
        found: list[str] = []
        for broker_id in await self._registry.children(paths.BROKERS, self._changed.set):
            path = paths.broker(broker_id)
            node = await self._registry.read(path, self._changed.set)
            if node is None:
                continue  # it has just left
            try:
                address = paths.read_address(path, node, self._protocol)
            except BadNodeError as error:
                _log.warning("a broker is left out: %s", error)
                continue
            found += [] if address is None else [address]
        return found
