"""The state of a partition's idempotent and transactional producers, which snapshot files keep.

A producer numbers its records. The last five batches of each are remembered, so that a batch sent again gets the first
answer and a gap is refused (KIP-98); an unknown producer may begin anywhere (KIP-360).

A producer's first transactional batch opens a transaction, which its marker ends. Until the marker is below the high
watermark, the transaction is *unstable*: consumers that read only committed records may not pass its first offset.

A request may be late: its connection was given up by the client, which tried again on another one and went on, but its
bytes still come. So the partition remembers on which connection each producer has written, and when a transaction of
its was aborted, as a client aborts without waiting for records that are under way; and the same of the coordinators
that send markers. See :mod:`ottla_broker.log.heard_connections`.

A snapshot is written at each roll, named by the new segment's base offset, and at a clean close, named by the end
offset; it is removed with its segment. Owned by the log's thread.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterator
from heapq import nsmallest
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.environment import no_time
from ottla_broker.log.files import CorruptFileError
from ottla_broker.log.heard_connections import Arrival, ConnectionAge, HeardSenders
from ottla_broker.log.producer_snapshot import (
    NO_EPOCH,
    SEQUENCE_MASK,
    ProducerEntry,
    SentBatch,
    decode_snapshot,
    encode_snapshot,
)
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.log.unstable_transactions import UnstableTransactions
from ottla_broker.log.verification import VerificationGuard, Verifications
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import TRANSACTIONAL, BatchHeader

if TYPE_CHECKING:
    from ottla_broker.log.environment import LogEnvironment
    from ottla_protocol.records.control import ControlRecord

_REMEMBERED: Final = 5
_PRODUCERS_PER_STEP: Final = 4096
RAISES_EPOCH: Final = 2
"""The first version of transactions that raise their producer's epoch when they end (KIP-890)."""

_log = get_logger()


class EndedTransaction(NamedTuple):
    """A transaction that its marker has just ended."""

    producer_id: int
    first_offset: int
    marker_offset: int
    aborted: bool


def read_marker(header: BatchHeader, batch: memoryview) -> ControlRecord | None:
    """The first record of a control batch; None when compaction has emptied it, as all of its transaction is gone.

    Raises CorruptRecordError.
    """
    from ottla_protocol.records.control import decode_control, decode_transaction_marker
    from ottla_protocol.records.record import decode_records

    marker = decode_transaction_marker(header, batch)
    if marker is not None:
        return marker
    records = decode_records(batch, 0, header)
    return decode_control(records[0]) if records else None


def _none_aborted(producer_id: int, offset: int) -> bool:
    return False


class ProducerStates:
    """All producers of one partition, and the snapshots in its folder.

    Attributes:
        producers: by producer id.
        unstable: their transactions that aren't stable yet.
        verifications: the producers whose next transaction has to be verified.
        end_offset: the state covers all batches below it.
        snapshots: offsets of the snapshot files, ascending.
        monotonic: the time; before any connection until the log is open.
        was_aborted: whether a producer's records at an offset were aborted. A snapshot doesn't say it.
        heard: the connections of transactional producers.
        heard_markers: the connections of the coordinators that end their transactions.
    """

    __slots__ = (
        "_environment",
        "_files",
        "_folder",
        "_full_until",
        "_name",
        "end_offset",
        "heard",
        "heard_markers",
        "last_snapshot",
        "monotonic",
        "producers",
        "snapshots",
        "unstable",
        "verifications",
        "was_aborted",
    )

    def __init__(self, environment: LogEnvironment, folder: str, name: str) -> None:
        self._environment = environment
        self._files = environment.files
        self._folder = folder
        self._name = name
        self.producers: dict[int, ProducerEntry] = {}
        self.unstable = UnstableTransactions()
        self.verifications = Verifications()
        self.end_offset = 0
        self.last_snapshot = 0
        self.snapshots: list[int] = []
        self.monotonic: Callable[[], float] = no_time
        self.was_aborted: Callable[[int, int], bool] = _none_aborted
        self.heard = HeardSenders(name, "producer")
        self.heard_markers = HeardSenders(name, "coordinator")
        # With this number of producers, forgetting some is tried again.
        self._full_until = 0

    def hear(self, producer_id: int, epoch: int, connection: ConnectionAge, request: Hashable) -> Arrival:
        """Tell whether a producer's request is late, and note its connection.

        ``request``: see :meth:`.ConnectionAge.is_sent_after`.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            return Arrival.TIMELY  # It is refused for its epoch.
        if entry is None and producer_id not in self.heard and self._environment.producer_limit is not None:
            self._environment.producer_limit.came()
        return self.heard.hear(producer_id, epoch, connection, request, self.monotonic(), self._most_heard)

    def hear_marker(self, producer_id: int, coordinator_epoch: int, connection: ConnectionAge) -> Arrival:
        """Tell whether a coordinator's marker is late, and note its connection.

        The coordinator has sent a late marker again, and the producer may have continued: the marker would end the next
        transaction.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and coordinator_epoch < entry.coordinator_epoch:
            return Arrival.TIMELY  # It is refused for its epoch.
        return self.heard_markers.hear(
            producer_id, coordinator_epoch, connection, None, self.monotonic(), self._most_heard
        )

    def marked_elsewhere(self, producer_id: int) -> None:
        """A coordinator has sent a marker to another leader: what comes here by an older connection is late."""
        entry = self.producers.get(producer_id)
        if entry is not None:
            self.heard_markers.begin(producer_id, entry.coordinator_epoch, self.monotonic(), self._most_heard)

    def hear_from_now(self) -> None:
        """Another broker may have heard the producers until now."""
        now = self.monotonic()
        self.heard.begin_all(now)
        self.heard_markers.begin_all(now)

    def hear_as(self, other: ProducerStates) -> None:
        """Take over from the states of an identical log what it has heard."""
        self.heard, self.heard_markers = other.heard, other.heard_markers

    @property
    def _most_heard(self) -> int:
        return self._environment.max_producers

    def _forget(self, producer_id: int) -> None:
        del self.producers[producer_id]
        now = self.monotonic()
        self.heard.forget(producer_id, now)
        self.heard_markers.forget(producer_id, now)

    def _forget_all(self) -> None:
        """After a truncation nothing is known of the connections any more."""
        self.producers.clear()
        self.unstable.restore([])
        now = self.monotonic()
        self.heard.forget_all(now)
        self.heard_markers.forget_all(now)

    def check(
        self,
        header: BatchHeader,
        last_sequence: int,
        *,
        from_client: bool,
        guard: VerificationGuard | None = None,
    ) -> SentBatch | None:
        """Check that the batch may be appended; a batch sent again is returned as it was stored the first time.

        No client sends a batch of an aborted transaction again, but librdkafka uses its sequence numbers again if it
        has seen no answer: the batch of the next transaction replaces it.

        With a ``guard``, a batch may begin a transaction only if it was verified under it.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for a producer that has been replaced,
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, INVALID_TXN_STATE for a plain batch inside a transaction, or one that
        may not begin a transaction; KAFKA_STORAGE_ERROR.
        """
        entry = self.producers.get(header.producer_id)
        epoch, sequence = header.producer_epoch, header.base_sequence
        if entry is None:
            if self._environment.producer_limit is not None:
                self._environment.producer_limit.came()
            if guard is not None and header.is_transactional:
                self._check_guard(header, guard)
            if from_client and self.verifications:
                self._check_lowest(header)
            return None
        batches = entry.batches
        replaces = False
        if from_client and epoch == entry.epoch:
            for at, batch in enumerate(batches):
                if batch.first_sequence == sequence:
                    if batch.aborted is None:
                        aborted = self.was_aborted(header.producer_id, batch.first_offset)
                        batch = batches[at] = batch._replace(aborted=aborted)
                    if batch.aborted and batches[-1].aborted:
                        replaces = True
                    elif batch.last_sequence == last_sequence:
                        return batch
        if epoch < entry.epoch:
            raise self._old_epoch(header, entry)
        if (
            guard is not None
            and header.is_transactional
            and (entry.txn_first_offset < 0 or epoch > entry.epoch)
        ):
            self._check_guard(header, guard)
        if from_client:
            if epoch != entry.epoch:
                if sequence != 0 and entry.epoch != NO_EPOCH:
                    raise self._out_of_order(header, f"a new epoch ({epoch} after {entry.epoch}) begins at 0")
            elif sequence >= 0 and epoch != NO_EPOCH:
                last = batches[-1].last_sequence if batches else -1
                if sequence != last + 1 and not (replaces or (sequence == 0 and last == SEQUENCE_MASK)):
                    raise self._out_of_order(header, f"{last} is the last one written")
        if entry.txn_first_offset >= 0 and not header.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._name}: producer {header.producer_id} sent a plain batch inside its transaction",
            )
        return None

    def _check_guard(self, header: BatchHeader, guard: VerificationGuard) -> None:
        if not self.verifications.is_guarded(header.producer_id, guard):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{self._name}: the batch of producer {header.producer_id} belongs to no open transaction",
            )

    def _check_lowest(self, header: BatchHeader) -> None:
        state = self.verifications.find(header.producer_id)
        if (
            state is not None
            and state.epoch == header.producer_epoch
            and header.base_sequence > state.lowest_sequence
        ):
            raise self._out_of_order(header, f"{state.lowest_sequence} comes first and isn't written yet")

    def check_marker(self, header: BatchHeader, marker: ControlRecord) -> None:
        """Check that a coordinator's marker may be appended; its producer may be unknown.

        Raises KafkaError: INVALID_PRODUCER_EPOCH for a producer that has been replaced,
        TRANSACTION_COORDINATOR_FENCED for a coordinator that has.
        """
        entry = self.producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise self._old_epoch(header, entry)
        if marker.coordinator_epoch is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{self._name}: a marker for producer {header.producer_id} has the coordinator epoch "
                f"{marker.coordinator_epoch}, {entry.coordinator_epoch} was seen",
            )

    def check_raise(self, producer_id: int, epoch: int) -> None:
        """Check a marker that raises the epoch to ``epoch``: the open transaction mustn't have that one already.

        The marker is then of the transaction before, and is here: its coordinator, or one that has taken over, has sent
        it twice. Raises KafkaError: INVALID_PRODUCER_EPOCH.
        """
        entry = self.producers.get(producer_id)
        if entry is not None and entry.txn_first_offset >= 0 and epoch == entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{self._name}: producer {producer_id} has an open transaction with epoch {epoch}, which a marker for"
                " the one before has",
            )

    def needs_verification(self, producer_id: int, epoch: int) -> bool:
        """Whether a batch with ``epoch`` would begin a transaction. One with an old epoch is refused for that."""
        entry = self.producers.get(producer_id)
        if entry is None:
            return True
        return epoch > entry.epoch or (epoch == entry.epoch and entry.txn_first_offset < 0)

    def has_written(self, producer_id: int) -> bool:
        """Whether batches of the producer are known."""
        entry = self.producers.get(producer_id)
        return entry is not None and bool(entry.batches)

    def _old_epoch(self, header: BatchHeader, entry: ProducerEntry) -> KafkaError:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"{self._name}: producer {header.producer_id} has epoch {header.producer_epoch}, {entry.epoch} was seen",
        )

    def _out_of_order(self, header: BatchHeader, why: str) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{self._name}: producer {header.producer_id} sent sequence {header.base_sequence}, {why}",
        )

    def update(
        self, header: BatchHeader, last_sequence: int, first_offset: int, last_offset: int, timestamp: int
    ) -> None:
        """Record a data batch that was appended."""
        producer_id = header.producer_id
        epoch = header.producer_epoch
        entry = self.producers.get(producer_id)
        if entry is None:
            self._make_room()
            entry = self.producers[producer_id] = ProducerEntry(producer_id, epoch)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        batches = entry.batches
        if batches and batches[-1].aborted:
            for at, batch in enumerate(batches):
                if batch.aborted and batch.first_sequence == header.base_sequence:
                    del batches[at:]
                    break
        if len(batches) == _REMEMBERED:
            del batches[0]
        batches.append(SentBatch(header.base_sequence, last_sequence, first_offset, last_offset, timestamp))
        entry.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL:
            if entry.txn_first_offset < 0:
                entry.txn_first_offset = first_offset
                self.unstable.begin(first_offset, producer_id)
            if self.verifications:
                self.verifications.end(producer_id)

    def _make_room(self) -> None:
        """Forget the producers that wrote longest ago if there are too many: each takes some 600 bytes."""
        most = self._environment.max_producers
        if len(self.producers) < max(most, self._full_until):
            return
        tenth = most // 10
        forgotten = self.forget_oldest(tenth)
        # The others have open transactions: the next look comes when there are many more.
        self._full_until = len(self.producers) + tenth if forgotten < tenth else 0
        if forgotten:
            _log.warning(
                "more producers than max.producers.per.partition: the oldest are forgotten",
                partition=self._name,
                forgotten=forgotten,
                left=len(self.producers),
            )

    @property
    def remembered(self) -> int:
        """How many producers take memory: those that have written, or have only tried to."""
        return max(len(self.producers), len(self.heard))

    def forget(self, count: int) -> int:
        """Forget up to ``count`` producers, first those that have written nothing; how many it did."""
        strangers = self.heard.strangers(self.producers, count)
        now = self.monotonic()
        for producer_id in strangers:
            self.heard.forget(producer_id, now)
        return len(strangers) + self.forget_oldest(count - len(strangers))

    def forget_oldest(self, count: int) -> int:
        """Forget up to ``count`` producers without open transactions, those that wrote longest ago; how many it did."""
        idle = [
            (entry.batches[-1].last_offset if entry.batches else -1, producer_id)
            for producer_id, entry in self.producers.items()
            if entry.txn_first_offset < 0
        ]
        oldest = nsmallest(count, idle)
        for _, producer_id in oldest:
            self._forget(producer_id)
        return len(oldest)

    def replay(
        self, header: BatchHeader, batch: memoryview, marker: ControlRecord | None = None
    ) -> EndedTransaction | None:
        """Record a batch of the log or a leader; ``marker`` is a control batch's record, if it has been read.

        Raises CorruptRecordError for a marker that can't be read.
        """
        ended = None
        if header.producer_id >= 0:
            if header.is_control:
                if marker is None:
                    marker = read_marker(header, batch)
                if marker is not None:
                    ended = self.end_transaction(header, marker, header.base_offset)
            else:
                last_sequence = header.last_sequence
                self.update(
                    header, last_sequence, header.base_offset, header.last_offset, header.max_timestamp
                )
        self.end_offset = header.last_offset + 1
        return ended

    def end_transaction(
        self, header: BatchHeader, marker: ControlRecord, marker_offset: int
    ) -> EndedTransaction | None:
        """Record a marker that was appended; returns the transaction that it has ended, if there was one."""
        from ottla_protocol.records.control import COMMIT

        coordinator_epoch = marker.coordinator_epoch
        if coordinator_epoch is None:
            return None  # Not the end of a transaction.
        entry = self.producers.get(header.producer_id)
        if entry is None:
            self._make_room()
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        # What is still under way has the old epoch, and is refused for that.
        raised = entry.txn_first_offset >= 0 and header.producer_epoch > entry.epoch
        if entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        first_offset, entry.txn_first_offset = entry.txn_first_offset, -1
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        if marker.type != COMMIT and not raised:
            self.heard.begin(entry.producer_id, entry.epoch, self.monotonic(), self._most_heard)
        if self.verifications:
            self.verifications.end(header.producer_id)
        if first_offset < 0:
            return None
        if marker.type != COMMIT:
            entry.batches = [
                batch._replace(aborted=True) if batch.first_offset >= first_offset else batch
                for batch in entry.batches
            ]
        self.unstable.end(first_offset, marker_offset)
        return EndedTransaction(header.producer_id, first_offset, marker_offset, marker.type != COMMIT)

    def aborted_entry(self, ended: EndedTransaction) -> AbortedTransaction:
        """The entry of a transaction that was just aborted, for the index of its marker's segment."""
        first_open = self.unstable.first_open
        stable = ended.marker_offset + 1 if first_open is None else first_open
        return AbortedTransaction(ended.producer_id, ended.first_offset, ended.marker_offset, stable)

    def expire(self, now_ms: int) -> Iterator[None]:
        """Forget producers without an open transaction that wrote nothing for ``producer.id.expiration.ms``.

        Some thousand producers at each step; batches may be appended in between.
        """
        oldest = now_ms - self._environment.producer_id_expiration_ms
        self.verifications.remove_older(oldest)
        producers = self.producers
        for number, producer_id in enumerate(tuple(producers), 1):
            entry = producers.get(producer_id)
            if entry is not None and entry.last_timestamp <= oldest and entry.txn_first_offset < 0:
                self._forget(producer_id)
            if number % _PRODUCERS_PER_STEP == 0:
                yield

    def find_snapshots(self, folder_names: list[str]) -> None:
        """Find the snapshot files among the folder's names."""
        offsets = [names.offset_of(name) for name in folder_names if name.endswith(names.SNAPSHOT)]
        self.snapshots = sorted(offset for offset in offsets if offset is not None)

    def folder_renamed(self, path: str) -> None:
        """The log's folder has another name."""
        self._folder = path

    def path(self, offset: int) -> str:
        """Path of the snapshot at ``offset``."""
        return f"{self._folder}/{names.segment_name(offset)}{names.SNAPSHOT}"

    def write_snapshot(self) -> bool:
        """Write the state to ``<end offset>.snapshot``; False if the last one is as new. Raises OSError."""
        if self.end_offset <= self.last_snapshot and self.snapshots:
            return False
        self._files.replace(
            self.path(self.end_offset), encode_snapshot(list(self.producers.values())), sync=False
        )
        if self.end_offset not in self.snapshots:
            insort(self.snapshots, self.end_offset)
        self.last_snapshot = self.end_offset
        return True

    def remove_snapshot(self, offset: int) -> None:
        """Remove the snapshot at ``offset``, if it exists. Raises OSError."""
        at = bisect_left(self.snapshots, offset)
        if at < len(self.snapshots) and self.snapshots[at] == offset:
            del self.snapshots[at]
        self._files.unlink(self.path(offset))

    def remove_stray(self, base_offsets: list[int]) -> None:
        """Remove snapshots that belong to no segment; the newest stays if it is newer than every segment."""
        known = set(base_offsets)
        stray = [offset for offset in self.snapshots if offset not in known]
        if stray and (not base_offsets or stray[-1] > base_offsets[-1]):
            stray.pop()
        for offset in stray:
            self.remove_snapshot(offset)

    def clear(self, offset: int) -> None:
        """Forget all producers and snapshots: the log restarts at ``offset``. Raises OSError."""
        for snapshot in list(self.snapshots):
            self.remove_snapshot(snapshot)
        self._forget_all()
        self.end_offset = self.last_snapshot = offset

    def load(self, log_start: int, end: int, now_ms: int) -> None:
        """Load the newest readable snapshot in ``(log_start, end]``, and remove damaged ones and those outside.

        Replay the batches from :attr:`end_offset` on afterwards. Raises OSError.
        """
        for offset in list(self.snapshots):
            if offset > end or offset <= log_start:
                self.remove_snapshot(offset)
        self._forget_all()
        while self.snapshots:
            offset = self.snapshots[-1]
            try:
                entries = decode_snapshot(self._files.read_all(self.path(offset)))
            except (CorruptFileError, FileNotFoundError) as error:
                _log.warning(
                    "producer snapshot damaged, going back to an older one",
                    file=self.path(offset),
                    why=str(error),
                )
                self.remove_snapshot(offset)
                continue
            oldest = now_ms - self._environment.producer_id_expiration_ms
            for entry in entries:
                if entry.last_timestamp > oldest or entry.txn_first_offset >= 0:
                    self.producers[entry.producer_id] = entry
            self.unstable.restore(
                [
                    (entry.txn_first_offset, entry.producer_id)
                    for entry in entries
                    if entry.txn_first_offset >= 0
                ]
            )
            self.end_offset = self.last_snapshot = offset
            return
        self.end_offset = self.last_snapshot = log_start
