"""Writes the markers that end transactions, for the transaction coordinators of this broker and of others.

A coordinator sends a marker to every partition that its transaction wrote to. The partition's leader appends it, and it
counts once all in-sync replicas have it. The offsets that the transaction committed to ``__consumer_offsets`` take
effect then (Kafka's ``KafkaApis.handleWriteTxnMarkersRequest``).

A defect that shows at one partition is UNKNOWN_SERVER_ERROR there, as in Kafka: the other partitions get their markers,
and the coordinator gets an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.partition import Partition, Role
from ottla_broker.tasks import TimeSlice
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

TIMEOUT_MS: Final = 30_000
"""How long a marker may take to reach the in-sync replicas (Kafka's ``request.timeout.ms``)."""


class TxnMarker(NamedTuple):
    """The end of one producer's transaction.

    Attributes:
        commit: whether it is committed; otherwise it is aborted.
        partitions: the topics and partitions that get the marker; each once, even if it is named twice.
        transaction_version: 2 for a transaction that has raised its producer's epoch; 0 also if that isn't known.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commit: bool
    partitions: Sequence[tuple[str, int]]
    transaction_version: int = 0


MarkerErrors = dict[tuple[str, int], ErrorCode]
"""By partition, what became of a marker: NONE when all in-sync replicas have it."""

Written = Callable[[list[MarkerErrors]], None]

IsLate = Callable[[TxnMarker, Partition], bool]
"""Whether a marker has become late (decision 9). It is asked before each, because they are written in slices."""


@dataclass(eq=False)
class TxnMarkers:
    """Owned by the loop thread.

    ``complete_offsets`` takes partitions of ``__consumer_offsets``, a producer id, and whether it committed.
    """

    replicas: ReplicaManager
    clock: Clock
    complete_offsets: Callable[[Iterable[int], int, bool], None]

    def write(self, markers: Sequence[TxnMarker], written: Written, is_late: IsLate | None = None) -> None:
        """Append the markers, unless one ``is_late`` by then.

        ``written`` is called once, with the errors of each, when all are replicated or failed. That takes at most
        :data:`TIMEOUT_MS`; a marker that isn't replicated by then has REQUEST_TIMED_OUT, and may be written again.
        ``written`` may be called before this returns.
        """
        _Write(self, markers, written, is_late)


class _Write:
    def __init__(
        self, owner: TxnMarkers, markers: Sequence[TxnMarker], written: Written, is_late: IsLate | None
    ) -> None:
        self._is_late = is_late
        self._replicas = owner.replicas
        self._clock = owner.clock
        self._complete_offsets = owner.complete_offsets
        self._markers = markers
        self._written = written
        self._errors: list[MarkerErrors] = [{} for _ in markers]
        # What waits for replicas: a marker's index, its partition, the offset after it.
        self._awaited: list[tuple[int, Partition, int]] = []
        self._steps = self._append()
        self._run()

    def _run(self) -> None:
        time_slice = TimeSlice(self._clock)
        for _ in self._steps:
            if time_slice.is_over:
                self._clock.call_later(0, self._run)
                return
        if not any(not partition.is_committed(offset) for _, partition, offset in self._awaited):
            self._finish([Outcome(ErrorCode.NONE, offset) for _, _, offset in self._awaited])
            return
        waits = [Awaited(partition.when_committed, offset) for _, partition, offset in self._awaited]
        DelayedProduce(waits, self._clock, self._finish).start(TIMEOUT_MS)

    def _append(self) -> Iterator[None]:
        """Append the markers, one at each step."""
        now_ms = self._clock.now_ms()
        for marker_index, marker in enumerate(self._markers):
            errors = self._errors[marker_index]
            for key in marker.partitions:
                if key in errors:
                    continue
                errors[key] = ErrorCode.NONE
                partition = self._replicas.partition(*key)
                if partition is None or partition.role is Role.OFFLINE:
                    errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                if self._is_late is not None and self._is_late(marker, partition):
                    errors[key] = ErrorCode.REQUEST_TIMED_OUT  # its coordinator has left this connection
                    continue
                try:
                    end_offset = partition.append_marker(
                        marker.producer_id,
                        marker.producer_epoch,
                        marker.coordinator_epoch,
                        marker.commit,
                        now_ms,
                        marker.transaction_version,
                    )
                except KafkaError as error:
                    errors[key] = error.code
                except Exception as error:
                    errors[key] = _failed(
                        "a marker was not written", marker, error, partition=f"{key[0]}-{key[1]}"
                    )
                else:
                    self._awaited.append((marker_index, partition, end_offset))
                yield

    def _finish(self, outcomes: Sequence[Outcome]) -> None:
        for (marker_index, partition, _), outcome in zip(self._awaited, outcomes, strict=True):
            code = outcome.error
            if code is ErrorCode.NONE:
                try:
                    if partition.is_under_min_isr():
                        code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
                except KafkaError as error:
                    code = error.code
            self._errors[marker_index][partition.topic, partition.partition] = code
        for marker, errors in zip(self._markers, self._errors, strict=True):
            indexes = [
                index
                for (topic, index), code in errors.items()
                if topic == OFFSETS_TOPIC and code is ErrorCode.NONE
            ]
            if indexes:
                try:
                    self._complete_offsets(indexes, marker.producer_id, marker.commit)
                except Exception as error:
                    code = _failed("a transaction's offsets were not completed", marker, error)
                    errors.update(((OFFSETS_TOPIC, index), code) for index in indexes)
        self._written(self._errors)


def _failed(what: str, marker: TxnMarker, error: Exception, **about: object) -> ErrorCode:
    _log.error(what, producer_id=marker.producer_id, commit=marker.commit, exc_info=error, **about)
    return ErrorCode.UNKNOWN_SERVER_ERROR
