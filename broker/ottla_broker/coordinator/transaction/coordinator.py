"""The transaction coordinator, which the handlers of the transaction APIs call.

Kafka: ``TransactionCoordinator.scala``, ``TransactionStateManager.scala``. A transactional id lives on the broker that
leads the partition of ``__transaction_state`` that it hashes to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.refusals import Refusals
from ottla_broker.coordinator.shard import Shard, ShardHost
from ottla_broker.coordinator.time_sliced_task import Sweeps
from ottla_broker.coordinator.transaction.markers import DeliverMarkers, LeaderOf, MarkerJob, MarkerSender
from ottla_broker.coordinator.transaction.metadata import (
    NO_PRODUCER_ID,
    TRANSACTION_VERSION_2,
    Producer,
    TopicPartition,
    TransactionMetadata,
)
from ottla_broker.coordinator.transaction.settings import TransactionSettings
from ottla_broker.coordinator.transaction.states import (
    CAN_EXPIRE,
    DEAD,
    END,
    END_REPEATED,
    END_WITH_BUMP,
    ONGOING,
    PREPARED,
    STATE_BY_NAME,
)
from ottla_broker.coordinator.transaction.transaction_shard import (
    HOLD_SECONDS,
    MAX_WAIT_MS,
    Reply,
    Transaction,
    TransactionShard,
)
from ottla_broker.events import get_logger
from ottla_broker.log.heard_connections import Arrival, ConnectionAge
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC

_log = get_logger()

_NAME_CHARACTERS: Final = 256
"""A transactional id counts as another one for every so many characters."""

DrawProducerId = Callable[[Callable[[int, int], None]], None]
"""``draw(drawn)`` calls ``drawn(error_code, producer_id)`` once, now or later."""

_COMPRESSION_NONE = 0
_WRITE_AGAIN_SECONDS = 0.2
_TOMBSTONES_PER_BATCH = 500
"""Keeps a batch below max.message.bytes with ids of any usual length."""


class ProducerResult(NamedTuple):
    """The answer to InitProducerId, and to EndTxn, with the producer of the next transaction."""

    error: int
    producer_id: int = -1
    producer_epoch: int = -1


ProducerReply = Callable[[ProducerResult], None]


class Described(NamedTuple):
    """A transactional id as DescribeTransactions shows it."""

    error: int
    metadata: TransactionMetadata | None = None
    partitions: Collection[TopicPartition] = ()
    """The partitions of an open transaction, or those that lack a marker of one that has ended."""


class Listed(NamedTuple):
    """A transactional id as ListTransactions shows it."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionCoordinator:
    """All transactional ids that this broker coordinates. Owned by the loop thread.

    A listener of the replica manager (``on_leader``, ``on_stop``). ``partitions()`` is the number of partitions of
    ``__transaction_state``: the topic's, or the configured one if there is no topic. ``draw`` gives out producer ids.
    Before :meth:`start` and after :meth:`stop` requests get COORDINATOR_NOT_AVAILABLE.

    Each reply is called exactly once, before the method returns or later.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        clock: Clock,
        partitions: Callable[[], int],
        draw: DrawProducerId,
        leader_of: LeaderOf,
        deliver: DeliverMarkers,
        catch_up: Callable[[], None] = lambda: None,
    ) -> None:
        """``catch_up`` has markers written that wait; it is called before each request."""
        self._settings = settings
        self._clock = clock
        self._draw = draw
        self._sender = MarkerSender(clock, leader_of, deliver)
        self._shards: dict[int, TransactionShard] = {}
        self._host = ShardHost(
            TRANSACTION_TOPIC, partitions, self._make_shard, clock, _COMPRESSION_NONE, MAX_WAIT_MS
        )
        self.on_leader = self._host.on_leader
        self.on_stop = self._host.on_stop
        self.partition_for = self._host.partition_for
        self._catch_up = catch_up
        self._active = False
        self._timers: dict[str, TimerHandle] = {}
        self._sweeps = Sweeps(clock, "a sweep over transactions failed")
        self._refusals = Refusals(clock)

    # Life

    def start(self) -> None:
        """Serve requests; from time to time abort what takes too long, and forget what isn't used."""
        self._active = True
        self._every(self._settings.abort_interval_ms, self._time_out)
        self._every(self._settings.expiry_interval_ms, self._expire)

    def stop(self) -> None:
        """Answer all waiting requests with NOT_COORDINATOR, and stop all work."""
        self._active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._sweeps.close()
        self._host.close()
        self._shards.clear()

    def _every(self, interval_ms: int, steps: Callable[[], Iterator[None]]) -> None:
        name = steps.__name__

        def due() -> None:
            self._sweeps.start(steps(), name)
            self._every(interval_ms, steps)

        self._timers[name] = self._clock.call_later(interval_ms / 1000, due)

    def _make_shard(self, shard: Shard) -> TransactionShard:
        made = self._shards[shard.index] = TransactionShard(shard, self._clock, self._resume)
        return made

    @property
    def transactions(self) -> Sequence[Transaction]:
        """The transactional ids as they are now: for metrics, which read them and change nothing."""
        return [each for shard in self._shards.values() for each in shard.transactions.values()]

    @property
    def loading(self) -> bool:
        """Whether transactional ids are being loaded."""
        return self._host.loading

    # Finding transactions

    def _find(self, transactional_id: str) -> tuple[int, TransactionShard | None, Transaction | None]:
        """The id and its shard; or the error code for an id that cannot be served here."""
        if not transactional_id:
            return codes.INVALID_REQUEST, None, None
        if not self._active:
            return codes.COORDINATOR_NOT_AVAILABLE, None, None
        self._catch_up()
        error, found = self._host.find(transactional_id)
        if found is None:
            return error, None, None
        shard = self._shards[found.index]
        return codes.NONE, shard, shard.transactions.get(transactional_id)

    def _is_full(self, transactional_id: str) -> bool:
        """Whether a further transactional id is refused, which is logged.

        A long id is refused earlier: it takes as much memory as several.
        """
        most = self._settings.max_ids // (1 + len(transactional_id) // _NAME_CHARACTERS)
        if sum(len(shard.transactions) for shard in self._shards.values()) < most:
            return False
        self._refusals.log(
            "transactional id refused: there are as many as max.transactional.ids allows", most
        )
        return True

    def _find_producer(
        self, transactional_id: str, producer: Producer
    ) -> tuple[int, TransactionShard | None, Transaction | None]:
        """As :meth:`_find`, and the error code for another producer than the current one."""
        error, shard, transaction = self._find(transactional_id)
        if shard is None:
            return error, None, None
        if transaction is None:
            return codes.INVALID_PRODUCER_ID_MAPPING, None, None
        error = transaction.metadata.check_producer(producer)
        return (error, None, None) if error != codes.NONE else (codes.NONE, shard, transaction)

    def hear(
        self, transactional_id: str, producer: Producer | None, connection: ConnectionAge, api: int
    ) -> Arrival:
        """Tell whether a producer's request is late, and note its connection.

        The client has continued on a newer connection or with another coordinator, so a late request must not reach
        into its next transaction (decision 9). ``producer``: None where the request names none.
        """
        _, _, transaction = self._find(transactional_id)
        if transaction is None:
            return Arrival.TIMELY
        if producer is not None and transaction.metadata.check_producer(producer) != codes.NONE:
            return Arrival.TIMELY  # The caller refuses the request for that.
        return transaction.heard.hear(connection, (transactional_id, api), self._clock.monotonic())

    def _draw_id(self, again: Callable[[int], None], refuse: Reply) -> None:
        """Draw a producer id, and serve the request ``again`` with it; ``refuse`` it if there is none."""

        def drawn(error: int, producer_id: int) -> None:
            if error != codes.NONE:
                refuse(error)
            else:
                again(producer_id)

        self._draw(drawn)

    # InitProducerId

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        reply: ProducerReply,
        connection: ConnectionAge | None = None,
    ) -> None:
        """Give a producer the id and the next epoch of its transactional id; older instances are fenced.

        ``expected`` is the producer that wants to continue after an error (KIP-360). An ongoing transaction is aborted,
        and the client asks again (CONCURRENT_TRANSACTIONS) until its markers are written. If the id is new, the
        ``connection`` is noted.
        """
        if transactional_id and not 0 < timeout_ms <= self._settings.max_timeout_ms:
            reply(ProducerResult(codes.INVALID_TRANSACTION_TIMEOUT))
        else:
            self._init(transactional_id, timeout_ms, expected, reply, connection, None)

    def _init(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: Producer | None,
        reply: ProducerReply,
        connection: ConnectionAge | None,
        new_id: int | None,
    ) -> None:
        """``new_id``: a producer id that has been drawn because one was needed; everything is looked at again."""
        error, shard, transaction = self._find(transactional_id)
        if shard is None:
            reply(ProducerResult(error))
            return
        draw_first = partial(
            self._draw_id,
            partial(self._init, transactional_id, timeout_ms, expected, reply, connection),
            lambda error: reply(ProducerResult(error)),
        )
        now_ms = self._clock.now_ms()
        if transaction is None:
            if self._is_full(transactional_id):
                reply(ProducerResult(codes.POLICY_VIOLATION))
                return
            if new_id is None:
                draw_first()
                return
            made = TransactionMetadata(new_id, timeout_ms=timeout_ms, update_ms=now_ms)
            transaction = Transaction(transactional_id, made)
            if connection is not None:
                transaction.heard.newest = connection.accepted_at
            new_id = None
        metadata = transaction.metadata
        if transaction.pending is not None:
            reply(ProducerResult(codes.CONCURRENT_TRANSACTIONS))
        elif metadata.refuses(expected):
            reply(ProducerResult(codes.PRODUCER_FENCED))
        elif metadata.state in PREPARED:
            reply(ProducerResult(codes.CONCURRENT_TRANSACTIONS))
        elif metadata.state is ONGOING and expected is not None and metadata.check_producer(expected):
            # Kafka has it abort the transaction of the producer that has replaced it.
            reply(ProducerResult(codes.PRODUCER_FENCED))
        elif metadata.state is ONGOING:
            self._fence(
                shard,
                transaction,
                lambda error: reply(ProducerResult(error if error else codes.CONCURRENT_TRANSACTIONS)),
            )
        elif (rotates := metadata.needs_producer_id(expected)) and new_id is None:
            draw_first()
        else:
            successor = metadata.initialized(expected, timeout_ms, now_ms, new_id if rotates else None)
            if successor is None:
                reply(ProducerResult(codes.PRODUCER_FENCED))
            else:
                self._initialize(shard, transaction, successor, reply)

    @staticmethod
    def _initialize(
        shard: TransactionShard,
        transaction: Transaction,
        successor: TransactionMetadata,
        reply: ProducerReply,
    ) -> None:
        def written(error: int) -> None:
            if error != codes.NONE:
                reply(ProducerResult(error))
                return
            _log.info(
                "transactional id initialized",
                transactional_id=transaction.transactional_id,
                producer_id=successor.producer_id,
                producer_epoch=successor.producer_epoch,
            )
            reply(ProducerResult(codes.NONE, successor.producer_id, successor.producer_epoch))

        shard.change(transaction, successor, written)

    # AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        reply: Reply,
        again: Callable[[], None] | None = None,
        client_version: int = 0,
    ) -> None:
        """Make partitions part of the transaction, which the first ones begin; ``reply`` gets the error code.

        While the transaction before lacks markers, the error is CONCURRENT_TRANSACTIONS. With ``again`` the request is
        held for a moment instead: ``again`` is called in place of ``reply``, and serves it from the beginning, because
        its producer may have been replaced meanwhile.
        """
        error, shard, transaction = self._find_producer(transactional_id, producer)
        if shard is None or transaction is None:
            reply(error)
            return
        metadata = transaction.metadata
        if transaction.pending is not None or metadata.state in PREPARED:
            if again is None or not shard.hold(transaction, again):
                reply(codes.CONCURRENT_TRANSACTIONS)
        elif metadata.state is ONGOING and metadata.partitions.issuperset(partitions):
            reply(codes.NONE)
        else:
            successor = metadata.added(partitions, self._clock.now_ms(), client_version)
            shard.change(transaction, successor, reply)

    def add_for_leader(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        reply: Reply,
    ) -> None:
        """Make partitions part of a transaction because its client, of version 2, writes to them.

        As :meth:`add_partitions`, but a few requests are held, each until its moment is over.
        """
        until = self._clock.monotonic() + HOLD_SECONDS

        def serve() -> None:
            again = serve if self._clock.monotonic() < until else None
            self.add_partitions(transactional_id, producer, partitions, reply, again, TRANSACTION_VERSION_2)

        serve()

    def verify_partitions(
        self, transactional_id: str, producer: Producer, partitions: Collection[TopicPartition]
    ) -> tuple[int, set[TopicPartition]]:
        """Whether partitions are part of the producer's transaction (KIP-890).

        Returns an error code for all of them; or NONE, and the partitions that are not part of it.
        """
        error, _, transaction = self._find_producer(transactional_id, producer)
        if transaction is None:
            return error, set()
        metadata = transaction.metadata
        if metadata.state in PREPARED:
            return codes.CONCURRENT_TRANSACTIONS, set()
        return codes.NONE, set(partitions).difference(metadata.partitions)

    # EndTxn

    def end(self, transactional_id: str, producer: Producer, commit: bool, reply: Reply) -> None:
        """Commit or abort: answered when the decision is in the log; then the markers are sent."""
        error, shard, transaction = self._find_producer(transactional_id, producer)
        if shard is None or transaction is None:
            reply(error)
            return
        metadata = transaction.metadata
        if transaction.pending is not None:
            reply(codes.CONCURRENT_TRANSACTIONS)
            return
        answer = END[metadata.state][0 if commit else 1]
        if answer is not None:
            reply(answer)
            return
        successor = metadata.ended(commit, self._clock.now_ms())
        shard.change(transaction, successor, reply, partial(self._send_markers, shard, transaction))

    def end_with_bump(
        self,
        transactional_id: str,
        producer: Producer,
        commit: bool,
        reply: ProducerReply,
        next_id: int = NO_PRODUCER_ID,
    ) -> None:
        """As :meth:`end`, for a client of transaction version 2, which continues with a higher epoch.

        A repeated request names the epoch before. ``next_id``: a producer id that has been drawn because one was
        needed; everything is looked at again.
        """
        error, shard, transaction = self._find(transactional_id)
        if shard is None:
            reply(ProducerResult(error))
            return
        if transaction is None:
            reply(ProducerResult(codes.INVALID_PRODUCER_ID_MAPPING))
            return
        metadata = transaction.metadata
        repeated = metadata.was_ended_by(producer)
        error = codes.NONE if repeated else metadata.check_producer(producer)
        if error == codes.NONE and transaction.pending is not None:
            error = codes.CONCURRENT_TRANSACTIONS
        if error != codes.NONE:
            reply(ProducerResult(error))
            return
        answer = (END_REPEATED if repeated else END_WITH_BUMP)[metadata.state][0 if commit else 1]
        if answer is not None:
            reply(_ended(answer, metadata))
        elif metadata.is_exhausted and next_id == NO_PRODUCER_ID:
            self._draw_id(
                partial(self.end_with_bump, transactional_id, producer, commit, reply),
                lambda error: reply(ProducerResult(error)),
            )
        else:
            successor = metadata.ended_with_bump(
                commit, self._clock.now_ms(), next_id if metadata.is_exhausted else NO_PRODUCER_ID
            )
            shard.change(
                transaction,
                successor,
                lambda error: reply(_ended(error, successor)),
                partial(self._send_markers, shard, transaction),
            )

    def _fence(self, shard: TransactionShard, transaction: Transaction, reply: Reply) -> None:
        """Abort an ongoing transaction with an epoch that keeps its producer out."""
        successor = transaction.metadata.fenced(self._clock.now_ms())
        shard.change(transaction, successor, reply, partial(self._send_markers, shard, transaction))

    def _resume(self, shard: TransactionShard) -> None:
        """Complete the transactions that an earlier coordinator has ended."""
        for transaction in shard.prepared():
            _log.info(
                "completing a transaction after loading",
                transactional_id=transaction.transactional_id,
                state=transaction.metadata.state.value,
                partitions=len(transaction.metadata.partitions),
            )
            self._send_markers(shard, transaction)

    def _send_markers(self, shard: TransactionShard, transaction: Transaction) -> None:
        metadata = transaction.metadata
        transaction.job = MarkerJob(
            transaction.transactional_id,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.commits,
            metadata.partitions,
            lambda: shard.coordinator_epoch,
            lambda: self._complete(shard, transaction, metadata),
            metadata.client_version,
        )
        self._sender.send(transaction.job)

    def _complete(
        self, shard: TransactionShard, transaction: Transaction, ended: TransactionMetadata
    ) -> None:
        """All markers of the transaction that has ``ended`` are there: write that down, until the log has it."""
        if transaction.metadata is not ended or transaction.pending is not None or not shard.is_active:
            return
        transaction.job = None

        def written(error: int) -> None:
            # A record that is in the log stays pending until it is committed.
            if error != codes.NONE and transaction.pending is None:
                self._clock.call_later(_WRITE_AGAIN_SECONDS, self._complete, shard, transaction, ended)

        shard.change(transaction, ended.completed(self._clock.now_ms()), written)

    # Time

    def _time_out(self) -> Iterator[None]:
        """Abort the transactions whose time is up, one per step."""
        now_ms = self._clock.now_ms()
        for shard in list(self._shards.values()):
            for transaction in list(shard.ongoing.values()):
                metadata = transaction.metadata
                if (
                    shard.is_active
                    and transaction.pending is None
                    and metadata.state is ONGOING
                    and metadata.end_ms() < now_ms
                ):
                    self._abort_late(shard, transaction)
                yield

    def _abort_late(self, shard: TransactionShard, transaction: Transaction) -> None:
        about = {
            "transactional_id": transaction.transactional_id,
            "producer_id": transaction.metadata.producer_id,
            "timeout_ms": transaction.metadata.timeout_ms,
        }

        def written(error: int) -> None:
            if error == codes.NONE:
                _log.info("transaction aborted, its time is up", **about)
            else:
                _log.warning("transaction not aborted, although its time is up", error=error, **about)

        self._fence(shard, transaction, written)

    def _expire(self) -> Iterator[None]:
        """Remove the ids that aren't used any more."""
        limit_ms = self._clock.now_ms() - self._settings.id_expiration_ms
        for shard in list(self._shards.values()):
            expired: list[Transaction] = []
            for transaction in list(shard.transactions.values()):
                if _is_expired(transaction, limit_ms):
                    expired.append(transaction)
                if len(expired) >= _TOMBSTONES_PER_BATCH:
                    self._remove(shard, expired, limit_ms)
                    expired = []
                yield
            self._remove(shard, expired, limit_ms)

    @staticmethod
    def _remove(shard: TransactionShard, found: Sequence[Transaction], limit_ms: int) -> None:
        # Requests may have come between the steps.
        expired = [each for each in found if _is_expired(each, limit_ms)]
        if not expired or not shard.is_active:
            return

        def written(error: int) -> None:
            if error == codes.NONE:
                _log.info("expired transactional ids removed", count=len(expired))
            else:
                _log.warning("expired transactional ids not removed", count=len(expired), error=error)

        shard.remove(expired, written)

    # Administration

    def describe(self, transactional_id: str) -> Described:
        """DescribeTransactions for one id."""
        error, shard, transaction = self._find(transactional_id)
        if shard is None:
            return Described(error)
        if transaction is None:
            return Described(codes.TRANSACTIONAL_ID_NOT_FOUND)
        metadata = transaction.metadata
        partitions = metadata.partitions if transaction.job is None else transaction.job.left
        return Described(codes.NONE, metadata, sorted(partitions))

    def list(
        self, states: Sequence[str], producer_ids: Collection[int], duration_ms: int
    ) -> tuple[int, list[str], Iterator[Listed | None]]:
        """ListTransactions: the error code, the names that are no state, and the ids that the filters select.

        ``duration_ms`` selects by the time since a transaction began; below 0, and where the others are empty, all are
        selected. As in Kafka, an id without a transaction has the duration of all time. For each that isn't selected
        there is a None, so that a caller can pause after a number of them.
        """
        if not self._active:
            return codes.COORDINATOR_NOT_AVAILABLE, [], iter(())
        if self._host.loading:
            return codes.COORDINATOR_LOAD_IN_PROGRESS, [], iter(())
        unknown = [name for name in states if name not in STATE_BY_NAME]
        wanted = {STATE_BY_NAME[name] for name in states if name in STATE_BY_NAME}
        now_ms = self._clock.now_ms()

        def select(transaction: Transaction) -> Listed | None:
            metadata = transaction.metadata
            if (
                metadata.state is not DEAD
                and (not states or metadata.state in wanted)
                and (not producer_ids or metadata.producer_id in producer_ids)
                and (duration_ms < 0 or now_ms - metadata.start_ms > duration_ms)
            ):
                return Listed(transaction.transactional_id, metadata.producer_id, metadata.state.value)
            return None

        every = [each for shard in self._shards.values() for each in shard.transactions.values()]
        return codes.NONE, unknown, map(select, every)


def _ended(error: int, metadata: TransactionMetadata) -> ProducerResult:
    return ProducerResult(error, *metadata.next_producer) if error == codes.NONE else ProducerResult(error)


def _is_expired(transaction: Transaction, limit_ms: int) -> bool:
    metadata = transaction.metadata
    return transaction.pending is None and metadata.state in CAN_EXPIRE and metadata.update_ms <= limit_ms
