"""The transactional ids of one partition of ``__transaction_state``: the state machine in a coordinator's shard.

Memory follows the log: a transaction's next state is *pending* from the append of its record until the log has
committed it. Meanwhile requests get CONCURRENT_TRANSACTIONS. A record that takes longer than its request may wait stays
pending, and the request gets an error; nothing is taken back that the log already has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.shard import Shard, ShardState
from ottla_broker.coordinator.transaction import records
from ottla_broker.coordinator.transaction.markers import MarkerJob
from ottla_broker.coordinator.transaction.metadata import NO_EPOCH, TransactionMetadata
from ottla_broker.coordinator.transaction.states import ONGOING, PREPARED
from ottla_broker.events import get_logger
from ottla_broker.log.heard_connections import HeardConnections
from ottla_protocol.errors import KafkaError
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.record import Record

_log = get_logger()

Reply = Callable[[int], None]
"""Called once with an error code."""

MAX_WAIT_MS: Final = 30_000
"""The longest wait of a request for the replicas: clients usually wait as long for an answer."""
_LOOK_AGAIN_SECONDS: Final = 0.2
HOLD_SECONDS: Final = 0.1
"""How long a request waits for the end of the transaction before it. Clients send it again after 20 ms or more."""
_MOST_HELD: Final = 8
"""Requests of one transactional id that wait. Java's producer has at most 5 under way to a broker."""

LOG_ERRORS: Final[Mapping[int, int]] = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_ENOUGH_REPLICAS: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_ENOUGH_REPLICAS_AFTER_APPEND: codes.COORDINATOR_NOT_AVAILABLE,
    codes.REQUEST_TIMED_OUT: codes.COORDINATOR_NOT_AVAILABLE,
    codes.NOT_LEADER_OR_FOLLOWER: codes.NOT_COORDINATOR,
    codes.KAFKA_STORAGE_ERROR: codes.NOT_COORDINATOR,
    codes.MESSAGE_TOO_LARGE: codes.UNKNOWN_SERVER_ERROR,
    codes.RECORD_LIST_TOO_LARGE: codes.UNKNOWN_SERVER_ERROR,
}
"""What clients get for the log's errors, which are about a topic that they don't know."""


def log_error(error: int) -> int:
    return LOG_ERRORS.get(error, error)


class _Held(NamedTuple):
    """A request that waits for the end of the transaction before it."""

    resume: Callable[[], None]
    timer: TimerHandle


class Transaction:
    """A transactional id. Owned by its shard.

    Attributes:
        metadata: what the log has committed.
        pending: what comes next, from its append until the log has committed it.
        job: sends the markers of a transaction that has ended.
        heard: the connections that its producer uses, of those accepted since this broker became the coordinator.
        held: the first requests of the next transaction, which wait for the end of this one.
    """

    __slots__ = ("heard", "held", "job", "metadata", "pending", "transactional_id")

    def __init__(
        self, transactional_id: str, metadata: TransactionMetadata, heard_since: float = 0.0
    ) -> None:
        self.heard = HeardConnections(heard_since)
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.pending: TransactionMetadata | None = None
        self.job: MarkerJob | None = None
        self.held: list[_Held] = []


class TransactionShard:
    """Loads transactional ids, changes them, and unloads them. Owned by the loop thread.

    Attributes:
        transactions: all ids by name, while the shard is active.
        ongoing: those whose transaction is open.
    """

    __slots__ = ("_changes", "_clock", "_loaded", "_resume", "ongoing", "shard", "transactions")

    def __init__(self, shard: Shard, clock: Clock, resume: Callable[[TransactionShard], None]) -> None:
        """``resume`` is called when the shard is active, to send the markers of transactions that have ended."""
        self.shard = shard
        self.transactions: dict[str, Transaction] = {}
        self.ongoing: dict[str, Transaction] = {}
        self._clock = clock
        self._resume = resume
        self._loaded: dict[str, TransactionMetadata] = {}
        self._changes: set[_Change] = set()

    @property
    def coordinator_epoch(self) -> int:
        """The leader epoch of the partition: markers with an older one are refused."""
        return self.shard.partition.leader_epoch

    @property
    def is_active(self) -> bool:
        return self.shard.state is ShardState.ACTIVE

    # The log

    def replay(self, record: Record, batch: BatchHeader) -> None:
        """See :class:`~ottla_broker.coordinator.shard.StateMachine`."""
        transactional_id = records.read_key(record.key)
        if record.value is None:
            self._loaded.pop(transactional_id, None)
        else:
            self._loaded[transactional_id] = records.read_value(record.value)

    def replay_marker(self, record: Record, batch: BatchHeader) -> None:
        """No transaction writes to this topic."""

    def publish(self) -> Iterator[None]:
        """Add all ids; the transactions that have ended get their markers once the shard is active."""
        for transactional_id, metadata in self._loaded.items():
            self._adopt(Transaction(transactional_id, metadata, self.shard.started_at))
            yield
        self._loaded = {}
        self._clock.call_later(0, self._begin)

    def _begin(self) -> None:
        if self.is_active:
            self._resume(self)

    def prepared(self) -> list[Transaction]:
        """The transactions that have ended and that lack markers."""
        return [each for each in self.transactions.values() if each.metadata.state in PREPARED]

    def unload(self) -> None:
        """Send everyone who waits to the new coordinator, which also completes what has ended."""
        transactions, self.transactions = self.transactions, {}
        self.ongoing = {}
        self._loaded = {}
        for transaction in transactions.values():
            if transaction.job is not None:
                transaction.job.cancel()
        changes, self._changes = self._changes, set()
        for change in changes:
            change.answer(codes.NOT_COORDINATOR)
        for transaction in transactions.values():
            self._release(transaction)

    # Changes

    def _adopt(self, transaction: Transaction) -> None:
        self.transactions[transaction.transactional_id] = transaction
        if transaction.metadata.state is ONGOING:
            self.ongoing[transaction.transactional_id] = transaction

    def change(
        self,
        transaction: Transaction,
        successor: TransactionMetadata,
        reply: Reply,
        committed: Callable[[], None] | None = None,
    ) -> None:
        """Append the next state of a transaction, and apply it when the log has committed it.

        ``reply`` gets the error code for the request, in time. ``committed`` is called when the change is applied.
        """
        if transaction.pending is not None:
            raise RuntimeError(f"{transaction.transactional_id} is changing already")
        transaction.metadata.check_successor(successor)
        key = records.transaction_key(transaction.transactional_id)
        try:
            end_offset = self.shard.write([(key, records.transaction_value(successor))])
        except KafkaError as error:
            reply(log_error(int(error.code)))
            return
        if transaction.metadata.producer_epoch == NO_EPOCH:
            self.transactions[transaction.transactional_id] = transaction
        transaction.pending = successor

        def apply() -> None:
            self._apply(transaction, successor)
            change.answer(codes.NONE)
            if committed is not None:
                committed()
            if transaction.pending is None and transaction.metadata.state not in PREPARED:
                self._release(transaction)

        change = _Change(reply, apply)
        self._wait(change, end_offset, min(successor.timeout_ms, MAX_WAIT_MS))

    def remove(self, expired: list[Transaction], reply: Reply) -> None:
        """Append the tombstones of expired ids, and forget the ids when the log has committed them."""
        tombstones = [(records.transaction_key(each.transactional_id), None) for each in expired]
        dead = [each.metadata.expired() for each in expired]
        try:
            end_offset = self.shard.write(tombstones)
        except KafkaError as error:
            reply(log_error(int(error.code)))
            return
        for transaction, metadata in zip(expired, dead, strict=True):
            transaction.pending = metadata

        def apply() -> None:
            for transaction, metadata in zip(expired, dead, strict=True):
                transaction.metadata, transaction.pending = metadata, None
                self.transactions.pop(transaction.transactional_id, None)
            change.answer(codes.NONE)
            for transaction in expired:
                self._release(transaction)

        change = _Change(reply, apply)
        self._wait(change, end_offset, MAX_WAIT_MS)

    def hold(self, transaction: Transaction, resume: Callable[[], None]) -> bool:
        """Call ``resume`` once: when the transaction under way is complete, or after :data:`HOLD_SECONDS`.

        False: too many requests wait for that already, and ``resume`` won't be called.
        """
        if len(transaction.held) >= _MOST_HELD:
            return False
        timer = self._clock.call_later(HOLD_SECONDS, self._release, transaction)
        transaction.held.append(_Held(resume, timer))
        return True

    @staticmethod
    def _release(transaction: Transaction) -> None:
        held, transaction.held = transaction.held, []
        for each in held:
            each.timer.cancel()
        for each in held:
            each.resume()

    def _apply(self, transaction: Transaction, successor: TransactionMetadata) -> None:
        transaction.metadata, transaction.pending = successor, None
        if successor.state is ONGOING:
            self.ongoing[transaction.transactional_id] = transaction
        else:
            self.ongoing.pop(transaction.transactional_id, None)

    def _wait(self, change: _Change, end_offset: int, wait_ms: int) -> None:
        self._changes.add(change)

        def settled(error: int) -> None:
            if change not in self._changes:
                return
            if error == codes.NONE:
                self._changes.discard(change)
                change.apply()
                return
            # Leadership has ended, and this shard will be closed; or it is in doubt for a while.
            change.answer(log_error(error))
            self._clock.call_later(_LOOK_AGAIN_SECONDS, look_again)

        def look_again() -> None:
            if change in self._changes:
                self.shard.when_settled(end_offset, settled)

        self.shard.when_settled(end_offset, settled)
        if change in self._changes:
            change.limit(
                self._clock.call_later(wait_ms / 1000, change.answer, codes.COORDINATOR_NOT_AVAILABLE)
            )


class _Change:
    """A record that has been appended: whom to answer, and what to do when it is committed."""

    __slots__ = ("_reply", "_timer", "apply")

    def __init__(self, reply: Reply, apply: Callable[[], None]) -> None:
        self._reply: Reply | None = reply
        self.apply = apply
        self._timer: TimerHandle | None = None

    def limit(self, timer: TimerHandle) -> None:
        """The timer that answers when the request has waited long enough."""
        self._timer = timer

    def answer(self, error: int) -> None:
        """Answer the request, unless it has been answered."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        reply, self._reply = self._reply, None
        if reply is not None:
            reply(error)
