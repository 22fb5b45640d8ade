"""The addresses of the brokers' ``coordinator.listener``, in ``/ottla/coordinators``.

The design has one port per broker; here consumers register at a listener of its own, whose address no node of Kafka's
has a place for.
"""

from __future__ import annotations

from contextlib import suppress

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.store.api import NodeExistsError, NoNodeError, Store, StoreError
from ottla_broker.store.keys import BadNodeError, CoordinatorListenerNode, decimal
from ottla_broker.store.rereading import Rereading
from ottla_protocol.push import Broker

_log = get_logger()


class Directory:
    """Registers this broker's address, and knows the others'. Owned by the loop thread.

    Attributes:
        brokers: all registered addresses, by the brokers' numbers.
    """

    def __init__(self, store: Store, own: Broker, clock: Clock) -> None:
        self.brokers: tuple[Broker, ...] = (own,)
        self._store = store
        self._own = own
        self._rereading = Rereading(
            store, clock, self._refresh, "addresses of coordinators can't be read now"
        )

    def start(self) -> None:
        self._rereading.start(CoordinatorListenerNode.PARENT, CoordinatorListenerNode.path(self._own.id))

    async def close(self) -> None:
        await self._rereading.close()
        try:
            await self._store.delete(CoordinatorListenerNode.path(self._own.id))
        except StoreError as error:
            _log.debug("the end of the session removes the listener's node", reason=str(error))

    async def _refresh(self) -> None:
        await self._register()
        await self._read()

    async def _register(self) -> None:
        own = self._own
        # The node of this session, or of an earlier one, whose end is watched.
        with suppress(NodeExistsError):
            await self._store.create(
                CoordinatorListenerNode.path(own.id),
                CoordinatorListenerNode.encode(own.host, own.port),
                ephemeral=True,
                parents=True,
            )

    async def _read(self) -> None:
        found = {self._own.id: self._own}
        for name in await self._store.children(CoordinatorListenerNode.PARENT):
            broker_id = decimal(name)
            if broker_id is None or broker_id == self._own.id:
                continue
            path = CoordinatorListenerNode.path(broker_id)
            try:
                data, _ = await self._store.get(path)
                found[broker_id] = Broker(broker_id, *CoordinatorListenerNode.decode(path, data))
            except NoNodeError:
                pass  # it has left since its name was read
            except BadNodeError as error:
                _log.warning("a coordinator's address is not known", reason=str(error))
        self.brokers = tuple(each for _, each in sorted(found.items()))
