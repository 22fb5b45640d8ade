"""The producer's transactions on the wire: a task that asks the coordinators, and the calls that wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.features import TRANSACTION_VERSION

from ..cluster import CoordinatorType
from ..deadline import Deadline
from ..errors import (
    ClientError,
    ClosedError,
    ConfigurationError,
    ProducerFencedError,
    RequestTimeoutError,
    TransactionAbortedError,
    UnsupportedApiError,
    is_retriable,
)
from ..requests.transactions import (
    ADD_PARTITIONS_UP_TO,
    COMMIT_ADDS_SINCE,
    END_RAISES_EPOCH_SINCE,
    MEMBERS_SINCE,
    PRODUCE_ADDS_SINCE,
    RAISES_EPOCH_SINCE,
)
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .transaction_manager import Ask, TransactionManager, is_concurrent
from .transaction_state import Reaction, Step, TransactionState

if TYPE_CHECKING:
    from ..cluster import Cluster
    from ..connection import Connection
    from .accumulator import Accumulator
    from .queue import PartitionQueue
    from .settings import ProducerSettings

_log = logging.getLogger("ottla_client.producer")

SOON = 0.002
"""Seconds before the first retry while the coordinator still ends the last transaction; markers take that long."""
_GATHER_SECONDS = 0.001
"""How long the first batches of a transaction of version 2 wait for each other, at most: leaders add those that come
together with one record of the coordinator. A commit ends the wait."""
_QUIET_TURNS = 2
"""Full batches wait no longer after so many turns of the loop that brought none of a further partition."""
SOON_AT_MOST = 0.02
"""As Java waits between these retries."""


class Transactions:
    """One producer's transactions. Belongs to its event loop."""

    def __init__(
        self,
        cluster: Cluster,
        settings: ProducerSettings,
        *,
        stop: Callable[[Exception], None],
    ) -> None:
        """``stop`` is called with the error that ends the producer."""
        assert settings.transactional_id is not None
        self.manager = TransactionManager(
            settings.transactional_id, settings.transaction_timeout_ms, self._changed
        )
        self._cluster = cluster
        self._accumulator: Accumulator
        self._settings = settings
        self._stop = stop
        self._route_all: Callable[[], None] = lambda: None
        self._collect: Callable[[], object] = lambda: None
        self._wake = asyncio.Event()
        self._waiters: list[tuple[asyncio.Future[None], Callable[[], bool]]] = []
        """The futures of those who wait, and the changes that they wait for."""
        self._last: Exception | None = None
        """The error of the last attempt to ask a coordinator."""
        self._task: asyncio.Task[None] | None = None
        self._idle = False
        """Whether the task waits for something to ask."""
        self._ending = False
        """Whether an EndTxn is under way that the task has not sent."""
        self._pause = 0.0
        """Seconds that the task has to wait after it."""
        self._undrained: set[PartitionQueue] = set()
        """Queues that a transaction that is being ended waits for."""
        self._gathering: asyncio.TimerHandle | None = None
        """Lets the first batches of a transaction go."""
        self._full: set[PartitionQueue] = set()
        """Queues of full batches among those that wait for each other, until they are sent."""
        self._quiet_turns = 0
        """Turns of the loop since the last one of them has come."""
        self._state = TransactionState.UNINITIALIZED
        """The last state whose entry was handled."""

    async def start(
        self,
        accumulator: Accumulator,
        route_all: Callable[[], None],
        collect: Callable[[], object],
        deadline: Deadline,
    ) -> None:
        """Get the producer's id. ``route_all`` sends batches that waited for their partitions to be added.

        ``collect`` asks for the partitions of all batches that have been opened, so that one request adds them.

        Raises ProducerFencedError, BrokerError, UnsupportedApiError, RequestTimeoutError.
        """
        self._accumulator = accumulator
        self._route_all = route_all
        self._collect = collect
        self._task = asyncio.get_running_loop().create_task(self._run())
        self._task.add_done_callback(self._ended)
        self.manager.initialize()
        await self._until_not(
            (TransactionState.INITIALIZING,), deadline, "the coordinator gave no producer id"
        )
        self._check_not_fatal()

    async def end(self) -> None:
        """End all tasks."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    # The application's calls.

    def begin(self) -> None:
        """Raises TransactionStateError if one is open, and the reason for a producer that can't continue."""
        self.manager.begin(version_2=self._cluster.features.has_transaction_version_2)

    async def add_offsets(
        self,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        deadline: Deadline,
    ) -> None:
        """Commit offsets of a group with the transaction.

        Raises CommitFailedError and other GroupErrors, after which the transaction has to be aborted;
        RequestTimeoutError; TransactionStateError.
        """
        for partition, each in offsets.items():
            if each.offset < 0:
                raise ConfigurationError(f"the offset {each.offset} can't be committed for {partition}")
        self.manager.check_sending()
        if not offsets:
            return
        sent = self.manager.add_offsets(group, offsets)
        await self._until(
            lambda: sent.done, deadline, f"the offsets of group {group.group_id!r} were not taken"
        )
        if sent.error is not None:
            raise sent.error

    async def commit(self, deadline: Deadline) -> None:
        """Send what is buffered, and commit.

        Raises TransactionAbortedError if the transaction has failed: abort it then. After RequestTimeoutError the
        outcome is unknown: call it again.
        """
        manager = self.manager
        if manager.state is not TransactionState.COMMITTING:
            manager.commit()
            # Sends that wait for room are too late. They learn it before the last answer makes room and ends this.
            self._accumulator.memory.refuse(manager.not_open())
            self._drain()
        await self._until_not(
            (TransactionState.COMMITTING,), deadline, "whether the transaction was committed is unknown"
        )
        self._check_not_fatal()
        if manager.state is TransactionState.ABORTABLE_ERROR:
            manager.check_sending()

    async def abort(self, deadline: Deadline) -> None:
        """Drop what was not sent, and abort. After RequestTimeoutError it goes on; call it again to wait."""
        manager = self.manager
        if manager.state not in (TransactionState.ABORTING, TransactionState.INITIALIZING):
            manager.abort()
            self._drop_unsent(manager.aborted())
            self._drain()
        await self._until_not(
            (TransactionState.ABORTING, TransactionState.INITIALIZING),
            deadline,
            "the transaction is not aborted yet",
        )
        self._check_not_fatal()

    async def close(self, deadline: Deadline) -> None:
        """Abort an open transaction, or wait for the end of the last one.

        Raises RequestTimeoutError if it is unknown whether it was committed.
        """
        state = self.manager.state
        if state is TransactionState.COMMITTING:
            try:
                await self.commit(deadline)
            except TransactionAbortedError:
                # The call that began the commit has reported it.
                state = self.manager.state
        if state in (
            TransactionState.IN_TRANSACTION,
            TransactionState.ABORTABLE_ERROR,
            TransactionState.ABORTING,
        ):
            try:
                await self.abort(deadline)
            except ClientError as error:
                if isinstance(error, ProducerFencedError):
                    _log.warning("%s", error)
                else:
                    _log.warning(
                        "%s; the coordinator aborts the transaction %d ms after its begin (transaction_timeout_ms)",
                        error,
                        self._settings.transaction_timeout_ms,
                    )

    # The sender's.

    def may_send(self, queue: PartitionQueue) -> bool:
        """Whether the first batch of ``queue`` may be sent. If not, asks for what it lacks."""
        manager = self.manager
        partition = TopicPartition(queue.topic, queue.partition)
        if manager.state in (TransactionState.IN_TRANSACTION, TransactionState.COMMITTING):
            if partition in manager.partitions:
                return True
            if manager.is_version_2 and not manager.partitions and manager.is_open:
                self._gather(queue)
                return False
            manager.add_partition(partition)
            return partition in manager.partitions
        # Batches that brokers may have are sent until their outcome is known.
        return bool(queue.batches) and queue.batches[0].sequence is not None

    def _gather(self, queue: PartitionQueue) -> None:
        """Have the first batch of ``queue`` in a transaction of version 2 wait for those of other partitions."""
        loop = asyncio.get_running_loop()
        if self._gathering is None:
            self._gathering = loop.call_later(_GATHER_SECONDS, self._gathered)
        if queue.batches[0] is not queue.tail and queue not in self._full:
            if not self._full:
                loop.call_soon(self._end_turn)
            self._full.add(queue)
            self._quiet_turns = 0

    @property
    def gathers(self) -> bool:
        """Whether full batches wait for others, or to be sent, until the loop has had a few turns."""
        return bool(self._full)

    def _end_turn(self) -> None:
        if self._gathering is None:
            self._full.clear()  # they were sent in this turn
            return
        self._quiet_turns += 1
        if self._quiet_turns == _QUIET_TURNS:
            self._gathered()
        asyncio.get_running_loop().call_soon(self._end_turn)

    def _gathered(self) -> None:
        """Send the first batches of a transaction of version 2."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        for queue in self._accumulator.all_queues():
            if queue.batches:
                self.manager.add_partition(TopicPartition(queue.topic, queue.partition))
        self._route_all()

    def produce_version(self, connection: Connection) -> int:
        """The version in which batches are sent. Raises UnsupportedApiError."""
        known = connection.version_of(ApiKey.PRODUCE)
        return _limited(known, PRODUCE_ADDS_SINCE, self.manager.is_version_2)

    def batch_failed(self, error: Exception, numbered: bool) -> None:
        """A batch of the transaction won't be delivered."""
        self.manager.batch_failed(error, numbered=numbered)
        if self._undrained:
            # Later, because the queue is in the middle of failing it.
            asyncio.get_running_loop().call_soon(self._look_at_undrained)

    def returned(self, queue: PartitionQueue) -> None:
        """A batch of ``queue`` is no longer in flight."""
        if queue in self._undrained and not (queue.batches or queue.in_flight):
            self._undrained.remove(queue)
            if not self._undrained:
                self._drained()

    # The task.

    def _changed(self) -> None:
        """The manager's state has changed."""
        self._wake.set()
        self._notify()
        state = self.manager.state
        if state is self._state:
            return
        self._state = state
        error = self.manager.error
        if state is TransactionState.ABORTABLE_ERROR:
            # Later, because a queue may be in the middle of failing a batch.
            asyncio.get_running_loop().call_soon(self._drop_after_error)
        elif state is TransactionState.FATAL_ERROR:
            assert error is not None
            self._stop(error)

    def _notify(self) -> None:
        for future, settled in self._waiters:
            if not future.done() and settled():
                future.set_result(None)

    def _drop_after_error(self) -> None:
        if self.manager.state is TransactionState.ABORTABLE_ERROR:
            self._drop_unsent(self.manager.aborted())

    def _drop_unsent(self, error: Exception) -> None:
        """Fail what was never sent, and the sends that wait for room."""
        self._accumulator.plain.clear()
        self._accumulator.memory.refuse(error)
        for queue in self._accumulator.all_queues():
            queue.drop_unsent(error)

    def _drain(self) -> None:
        """Send what is buffered, and end the transaction when every batch has an outcome.

        Batches whose time was up while they were in flight count as well. delivery_timeout_ms bounds it.
        """
        self._accumulator.plain.clear()
        self._accumulator.hurry()
        if self._gathering is not None:
            self._gathered()
        self._undrained = {
            queue for queue in self._accumulator.all_queues() if queue.batches or queue.in_flight
        }
        if not self._undrained:
            self._drained()

    def _look_at_undrained(self) -> None:
        """Batches have failed, maybe the last ones that a transaction waits for."""
        if self._undrained:
            self._undrained = {queue for queue in self._undrained if queue.batches or queue.in_flight}
            if not self._undrained:
                self._drained()

    async def _run(self) -> None:
        """Ask the coordinators for what is due."""
        failures = 0
        while True:
            if self.manager.adds_partitions:
                self._collect()
            self._wake.clear()
            if self._pause:
                pause, self._pause = self._pause, 0.0
                await asyncio.sleep(pause)
            ask = None if self._ending else self.manager.next()
            if ask is None:
                failures = 0
                self._idle = True
                await self._wake.wait()
                self._idle = False
                continue
            delay = await self._attempt(ask, failures + 1)
            failures = 0 if delay is None else failures + 1
            if delay:
                await asyncio.sleep(delay)

    def _drained(self) -> None:
        """Every batch has an outcome: end the transaction, in the turn of the loop that brought the last answer.

        Where the coordinator isn't connected or the task is at work, the task does it.
        """
        manager = self.manager
        manager.drained()
        ask = manager.next()
        connection = self._cluster.open_coordinator(manager.transactional_id, CoordinatorType.TRANSACTION)
        if ask is None or ask.step is not Step.END or not self._idle or self._ending or connection is None:
            return
        try:
            version = _version(ask, connection.version_of(ApiKey.END_TXN), version_2=manager.is_version_2)
            manager.sent(ask)
            self._ending = True
            connection.call(
                ask.request,
                partial(self._ended_at_once, ask),
                timeout=self._cluster.request_timeout,
                version=version,
            )
        except ClientError as error:
            self._ending = False
            _log.debug("%s: EndTxn was not sent at once: %s", manager, error)

    def _ended_at_once(self, ask: Ask, response: Any, error: Exception | None) -> None:
        self._ending = False
        try:
            if error is None:
                self._pause = self._answered(ask, response, 1) or 0.0
            else:
                self._pause = self._failed(ask, error, 1) or 0.0
        except Exception as broken:
            self._broke(broken)
        self._wake.set()

    async def _attempt(self, ask: Ask, attempt: int) -> float | None:
        """Send one request and take its answer. Returns the seconds until a retry; None if none is needed."""
        cluster, manager = self._cluster, self.manager
        kind, key = self._coordinator(ask)
        deadline = Deadline(cluster.request_timeout)
        try:
            node = await cluster.coordinator(key, deadline, kind)
            connection = await cluster.connection(node, deadline)
            known = connection.version_of(_APIS[ask.step])
            version = _version(ask, known, version_2=manager.is_version_2)
            manager.sent(ask)
            response = await connection.submit(ask.request, timeout=cluster.request_timeout, version=version)
        except (ClientError, TimeoutError) as error:
            if isinstance(error, ClosedError):
                raise asyncio.CancelledError from error
            return self._failed(ask, error, attempt)
        return self._answered(ask, response, attempt)

    def _coordinator(self, ask: Ask) -> tuple[CoordinatorType, str]:
        if ask.group_id is not None:
            return CoordinatorType.GROUP, ask.group_id
        return CoordinatorType.TRANSACTION, self.manager.transactional_id

    def _failed(self, ask: Ask, error: Exception, attempt: int) -> float | None:
        """A request has no answer. Returns the seconds until a retry; None if there is none."""
        cluster, manager = self._cluster, self.manager
        kind, key = self._coordinator(ask)
        cluster.forget_coordinator(key, kind)
        if isinstance(error, ClientError) and not is_retriable(error):
            manager.refused(ask, error)
            return None
        self._last = error
        _log.debug("%s: %s failed: %s", manager, ask.step.name, error)
        return cluster.backoff.after(attempt)

    def _answered(self, ask: Ask, response: Any, attempt: int) -> float | None:
        """A request's answer has come. Returns the seconds until the next request, if it has to wait."""
        cluster, manager = self._cluster, self.manager
        reaction = manager.answered(ask, response)
        if ask.step is Step.ADD_PARTITIONS and reaction is Reaction.DONE:
            self._route_all()
        throttle: float = response.throttle_time_ms / 1000
        if reaction not in (Reaction.RETRY, Reaction.FIND_COORDINATOR):
            return throttle or None
        self._last = manager.refusal(ask, response)
        if reaction is Reaction.FIND_COORDINATOR:
            kind, key = self._coordinator(ask)
            cluster.forget_coordinator(key, kind)
        if is_concurrent(ask, response):
            return max(throttle, min(SOON_AT_MOST, SOON * 2.0 ** min(attempt - 1, 10)))
        return max(throttle, cluster.backoff.after(attempt))

    def _ended(self, task: asyncio.Task[None]) -> None:
        for future, _ in self._waiters:
            if not future.done():
                future.set_result(None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broke(error)

    def _broke(self, error: BaseException) -> None:
        """A defect: stop the producer."""
        _log.error("the producer's transactions broke", exc_info=error)
        self.manager.stop(error if isinstance(error, Exception) else RuntimeError(str(error)))

    # Waiting.

    @contextmanager
    def _news(self, settled: Callable[[], bool]) -> Iterator[asyncio.Future[None]]:
        """A future that is done when a change has ``settled`` what is waited for."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (future, settled)
        self._waiters.append(waiter)
        try:
            yield future
        finally:
            self._waiters.remove(waiter)

    async def _until_not(self, states: tuple[TransactionState, ...], deadline: Deadline, what: str) -> None:
        await self._until(lambda: self.manager.state not in states, deadline, what)

    async def _until(self, settled: Callable[[], bool], deadline: Deadline, what: str) -> None:
        """Raises RequestTimeoutError at the deadline, ClosedError if the producer is closed meanwhile."""
        began = monotonic()
        self._last = None
        while not settled():
            if self._task is None or self._task.done():
                self._check_not_fatal()
                raise ClosedError(f"{self.manager}: {what}: the producer was closed")
            try:
                with self._news(settled) as news:
                    async with deadline.timeout():
                        await news
            except TimeoutError:
                if settled():
                    return
                why = f": {self._last}" if self._last is not None else ""
                raise RequestTimeoutError(
                    f"{self.manager}: {what} after {monotonic() - began:.1f} s{why}"
                ) from self._last

    def _check_not_fatal(self) -> None:
        if self.manager.state is TransactionState.FATAL_ERROR:
            assert self.manager.error is not None
            raise self.manager.error


_APIS = {
    Step.INIT_PRODUCER_ID: ApiKey.INIT_PRODUCER_ID,
    Step.ADD_PARTITIONS: ApiKey.ADD_PARTITIONS_TO_TXN,
    Step.ADD_OFFSETS: ApiKey.ADD_OFFSETS_TO_TXN,
    Step.COMMIT_OFFSETS: ApiKey.TXN_OFFSET_COMMIT,
    Step.END: ApiKey.END_TXN,
}


def _limited(known: int, adds_since: int, version_2: bool) -> int:
    """The version of a request that has a meaning of its own in transaction version 2. Raises UnsupportedApiError."""
    if not version_2:
        return min(known, adds_since - 1)
    if known < adds_since:
        raise UnsupportedApiError(
            f"the broker doesn't serve {TRANSACTION_VERSION} 2, which its cluster has finalized"
        )
    return known


def _version(ask: Ask, known: int, *, version_2: bool) -> int:
    """The version for a request, given the highest one that both sides know. Raises UnsupportedApiError."""
    if ask.step is Step.END:
        return _limited(known, END_RAISES_EPOCH_SINCE, version_2)
    if ask.step is Step.ADD_PARTITIONS:
        return min(known, ADD_PARTITIONS_UP_TO)
    if ask.step is Step.INIT_PRODUCER_ID and ask.raises_epoch and known < RAISES_EPOCH_SINCE:
        raise UnsupportedApiError(
            "the broker is older than Kafka 2.5 and can't raise the epoch of a producer after a failed transaction;"
            " create a new producer"
        )
    if ask.step is Step.COMMIT_OFFSETS and known < MEMBERS_SINCE:
        assert ask.offsets is not None
        if ask.offsets.group.member_id:
            raise UnsupportedApiError(
                "the broker is older than Kafka 2.5 and can't check a member's generation in a transaction; pass the"
                " group's id and the offsets instead of the consumer"
            )
    if ask.step is Step.COMMIT_OFFSETS:
        return _limited(known, COMMIT_ADDS_SINCE, version_2)
    return known
