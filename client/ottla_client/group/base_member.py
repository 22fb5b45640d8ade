"""The base of members of all protocols.

A member has two tasks: one takes assignments and awaits the callbacks, the other sends heartbeats, also while callbacks
run.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Set
from time import monotonic
from typing import TYPE_CHECKING

from ottla_protocol.errors import ErrorCode

from ..deadline import Deadline, wait_at_most
from ..errors import ClientError, ConfigurationError, FencedInstanceError, PollIntervalExceededError
from ..types import TopicPartition
from .coordinator import Coordinator
from .settings import MemberCallbacks, MemberSettings

if TYPE_CHECKING:
    from ..cluster import Cluster

_log = logging.getLogger("ottla_client")


class BaseMember(ABC):
    """A member of one group. Belongs to one event loop."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        settings: MemberSettings,
        callbacks: MemberCallbacks,
    ) -> None:
        """Raises ConfigurationError for an empty group id."""
        if not group_id:
            raise ConfigurationError("a group member needs a group_id")
        self.group_id = group_id
        self.assignment: frozenset[TopicPartition] = frozenset()
        """The partitions to read. Changes before ``on_assigned``, and after ``on_revoked`` and ``on_lost``."""
        self.failure: ClientError | None = None
        """An error that was not raised yet; ``polled`` raises it."""
        self._settings = settings
        self._callbacks = callbacks
        self._cluster = cluster
        self._coordinator = Coordinator(cluster, group_id)
        self._topics: frozenset[str] | None = None
        self._polled_at = monotonic()
        # Joins, or takes assignments; the callbacks run in it.
        self._join_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._heartbeat_wanted = asyncio.Event()
        # Set while no callback runs.
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    @abstractmethod
    def subscribe(self, topics: Collection[str]) -> None: ...

    @abstractmethod
    def start(self) -> None: ...

    def polled(self) -> None:
        """The application polled. Call it at least every ``max_poll_interval_ms``, also during a long poll.

        Raises ``failure`` once; then the member tries again by itself. Only FencedInstanceError is final, and raised
        each time.
        """
        self._polled_at = monotonic()
        failure = self.failure
        if failure is None:
            return
        if not isinstance(failure, FencedInstanceError):
            self.failure = None
            self._try_again()
        raise failure

    @abstractmethod
    def _try_again(self) -> None:
        """The application has got the failure."""

    @abstractmethod
    async def close(self, deadline: Deadline) -> None: ...

    async def _give_up(self, partitions: Set[TopicPartition], *, lost: bool = False) -> None:
        if partitions:
            partitions = frozenset(partitions)
            callback = self._callbacks.on_lost if lost else self._callbacks.on_revoked
            await self._call(callback, partitions)
            self.assignment -= partitions

    async def _give_up_all(self, deadline: Deadline, *, lost: bool) -> None:
        """Give up the assignment at the close; the callback may run until the deadline."""
        if self.assignment:
            try:
                async with deadline.timeout() as limit:
                    await self._give_up(self.assignment, lost=lost)
            except TimeoutError:
                if not limit.expired():
                    raise
                _log.warning(
                    "group %s: giving up its partitions took too long, and was left unfinished", self.group_id
                )
            self.assignment = frozenset()

    async def _call(
        self,
        callback: Callable[[frozenset[TopicPartition]], Awaitable[None]],
        partitions: frozenset[TopicPartition],
    ) -> None:
        was_closed = self._closed
        self._idle.clear()
        try:
            await callback(partitions)
        except Exception as error:
            _log.exception("group %s: a rebalance callback failed", self.group_id)
            failure = error if isinstance(error, ClientError) else None
            if failure is None:
                failure = ClientError(f"group {self.group_id!r}: a rebalance callback raised {error!r}")
                failure.__cause__ = error
            if self.failure is None:
                self.failure = failure
        finally:
            self._idle.set()
        if self._closed and not was_closed and asyncio.current_task() is self._join_task:
            raise asyncio.CancelledError  # the callback closed the consumer

    async def _stop_joining(self, deadline: Deadline) -> None:
        """Stop the join task; a running callback may finish until the deadline."""
        if self._join_task is None or self._join_task is asyncio.current_task():
            return
        try:
            async with deadline.timeout() as limit:
                while not self._idle.is_set():
                    await self._idle.wait()
        except TimeoutError:
            if not limit.expired():
                raise
            _log.warning("group %s: the close interrupted a rebalance callback", self.group_id)
        self._join_task.cancel()
        await asyncio.wait((self._join_task,))

    async def _cancel_tasks(self) -> None:
        tasks = [
            task
            for task in (self._join_task, self._heartbeat_task)
            if task not in (None, asyncio.current_task())
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _pause(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until a heartbeat is wanted at once."""
        await wait_at_most(self._heartbeat_wanted, seconds)

    def _instance_fenced(self, code: ErrorCode) -> FencedInstanceError:
        return FencedInstanceError(
            code,
            f"group {self.group_id!r}: another member joined with the group_instance_id"
            f" {self._settings.group_instance_id!r} and replaced this one; each process needs its own",
        )

    def _poll_interval_exceeded(self) -> PollIntervalExceededError:
        interval = self._settings.max_poll_interval_ms
        return PollIntervalExceededError(
            f"group {self.group_id!r}: the application did not poll for max_poll_interval_ms ({interval} ms), so the"
            " member left the group and others get its partitions; it joins again now. Raise max_poll_interval_ms, or"
            " lower max_poll_records"
        )
