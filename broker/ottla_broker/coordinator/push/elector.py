"""The elector: one broker of the cluster is the 2012 coordinator, and has its id in ``/consumers/coordinator``.

"The elector, upon initialization, will immediately try to elect as the coordinator. If someone else has become the
coordinator, it will listen to the coordinator path for data change, and try to re-elect whenever the current elector
resigns."
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.events import get_logger
from ottla_broker.store.api import NodeExistsError, NoNodeError, SessionState, Store, StoreError, Watch
from ottla_broker.store.keys import BadNodeError, CoordinatorNode
from ottla_broker.store.rereading import Rereading

_log = get_logger()


class Elector:
    """Owned by the loop thread.

    Attributes:
        coordinator_id: the broker that is the coordinator, -1 while there is none.
        leading: whether it is this broker.
    """

    def __init__(
        self,
        store: Store,
        broker_id: int,
        clock: Clock,
        doubt_seconds: float,
        elected: Callable[[], None],
        resigned: Callable[[str], None],
    ) -> None:
        """``doubt_seconds``: how long this broker stays coordinator while its session with the store is suspended."""
        self.coordinator_id = -1
        self.leading = False
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._doubt_seconds = doubt_seconds
        self._elected = elected
        self._resigned = resigned
        self._rereading = Rereading(store, clock, self._try, "the consumer coordinator can't be elected now")
        self._session: Watch | None = None
        self._doubt: TimerHandle | None = None

    def start(self) -> None:
        """Try to become the coordinator, now and whenever there is none."""
        self._rereading.start(CoordinatorNode.PATH)

    async def close(self) -> None:
        await self._rereading.close()
        was_leading = self.leading
        self._resign("the broker stops")
        self._forget_session()
        if was_leading:
            try:
                await self._store.delete(CoordinatorNode.PATH)
            except StoreError as error:
                _log.info("the end of the session removes the coordinator's node", reason=str(error))

    async def _try(self) -> None:
        try:
            await self._elect()
        except BadNodeError as error:
            self.coordinator_id = -1
            _log.error("there is no consumer coordinator; delete the node", reason=str(error))

    async def _elect(self) -> None:
        try:
            data, _ = await self._store.get(CoordinatorNode.PATH)
            self.coordinator_id = CoordinatorNode.decode(data)
            if self.leading and self.coordinator_id != self._broker_id:
                leader = self.coordinator_id
                self._resign(f"broker {leader} has become the coordinator")
                self.coordinator_id = leader
            if self.leading or self.coordinator_id != self._broker_id:
                return
            # Of an earlier session, or from before this broker was in doubt: begin again.
            await self._store.delete(CoordinatorNode.PATH)
            self.coordinator_id = -1
        except NoNodeError:
            self._resign("its node has gone")
            self.coordinator_id = -1
        try:
            await self._store.create(
                CoordinatorNode.PATH, CoordinatorNode.encode(self._broker_id), ephemeral=True, parents=True
            )
        except NodeExistsError:
            self._rereading.wake()  # another broker was quicker
            return
        self._forget_session()
        self._session = self._store.watch_session(self._session_changed)
        self.coordinator_id = self._broker_id
        self.leading = True
        _log.info("this broker is the consumer coordinator")
        self._elected()

    def _session_changed(self, state: SessionState) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None
        if state is SessionState.LOST:
            self._resign("the session with the store has ended")
            self._rereading.wake()
        elif state is SessionState.SUSPENDED:
            self._doubt = self._clock.call_later(
                self._doubt_seconds, self._resign, "the store doesn't answer, and may elect another"
            )
        else:
            self._rereading.wake()

    def _forget_session(self) -> None:
        if self._session is not None:
            self._session.cancel()
            self._session = None

    def _resign(self, reason: str) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
            self._doubt = None
        if self.leading:
            self.leading = False
            self.coordinator_id = -1
            _log.info("this broker is no longer the consumer coordinator", reason=reason)
            self._resigned(reason)
