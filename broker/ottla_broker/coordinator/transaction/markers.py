"""Sends the markers that end transactions to the leaders of their partitions.

Kafka: ``TransactionMarkerChannelManager``, ``TransactionMarkerRequestCompletionHandler``. Each broker gets one
WriteTxnMarkers at a time; markers that come up meanwhile go into the next one together. A transaction's decision is
final, so markers are sent until all partitions have them: leaders are looked up again after each failure, and
partitions that no longer exist are passed over. A defect doesn't end that: a request that raises, or that has no answer
in time, counts as unanswered, and a transaction whose completion raises is completed later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Final

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.coordinator.transaction.metadata import TopicPartition
from ottla_broker.events import get_logger
from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.replica.txn_markers import MarkerErrors, TxnMarker
from ottla_protocol.errors import ErrorCode

_log = get_logger()

MOST_MARKERS: Final = 500
"""Transactions in one request."""
MOST_PARTITIONS: Final = 5_000
"""Partitions in one request, unless a single transaction has more on a broker."""

RETRY_SECONDS: Final = (0.02, 1.0)
"""The pause after a first failure, and the longest; it doubles each time."""
REFUSED_SECONDS: Final = 10.0
"""The pause after an error that only a new coordinator or an administrator can remove."""
ANSWER_SECONDS: Final = 60.0
"""How long a request may take. Deliveries have shorter deadlines of their own, so this one is for their defects."""


class _Action(Enum):
    """The next step after the answer for one partition."""

    __hash__ = object.__hash__

    DONE = "the partition needs no marker from here on"
    RETRY = "send it again, to the partition's leader by then"
    WAIT = "send it again after a long pause"


_ACTIONS: Final[Mapping[ErrorCode, _Action]] = {
    ErrorCode.NONE: _Action.DONE,
    # The partition's format has no transactions, so the producer has written nothing to it.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Action.DONE,
    ErrorCode.UNSUPPORTED_VERSION: _Action.DONE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _Action.RETRY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _Action.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS: _Action.RETRY,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: _Action.RETRY,
    ErrorCode.REQUEST_TIMED_OUT: _Action.RETRY,
    ErrorCode.KAFKA_STORAGE_ERROR: _Action.RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _Action.RETRY,
    # A newer coordinator or producer has been at the partition: this coordinator will be closed, or something is wrong.
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: _Action.WAIT,
    ErrorCode.INVALID_PRODUCER_EPOCH: _Action.WAIT,
}
"""Other errors are unexpected, and wait too."""


Written = Callable[[list[MarkerErrors] | None], None]
"""Called once with the errors of each marker; None: the broker didn't answer, and may or may not have written them."""

DeliverMarkers = Callable[[int, Sequence[TxnMarker], Written], None]
"""``deliver(broker_id, markers, written)`` delivers markers to a broker, which may be this one."""

LeaderOf = Callable[[str, int], int | None]
"""The broker that leads a partition; -1: no one can be asked now; None: there is no such partition."""


class MarkerJob:
    """The markers of one transaction that has ended.

    Attributes:
        left: the partitions that lack their marker. Only the sender changes it.
    """

    __slots__ = (
        "cancelled",
        "commit",
        "coordinator_epoch",
        "done",
        "failures",
        "left",
        "producer_epoch",
        "producer_id",
        "transaction_version",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commit: bool,
        partitions: Iterable[TopicPartition],
        coordinator_epoch: Callable[[], int],
        done: Callable[[], None],
        transaction_version: int = 0,
    ) -> None:
        """``done`` is called when all partitions have their marker, again if it raises; not after :meth:`cancel`."""
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.commit = commit
        self.transaction_version = transaction_version
        self.left = set(partitions)
        self.coordinator_epoch = coordinator_epoch
        self.done = done
        self.failures = 0
        self.cancelled = False

    def cancel(self) -> None:
        """Send no further markers: another coordinator will."""
        self.cancelled = True


_Batch = list[tuple[MarkerJob, set[TopicPartition]]]


class _Request:
    """A request under way to a broker, until it is answered or given up."""

    __slots__ = ("batch", "deadline")

    def __init__(self, batch: _Batch) -> None:
        self.batch = batch
        self.deadline: TimerHandle | None = None


class _Destination:
    """A broker, the markers that wait for it, and the request under way."""

    __slots__ = ("broker_id", "pumping", "queue", "request")

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.queue: dict[MarkerJob, set[TopicPartition]] = {}
        self.request: _Request | None = None
        self.pumping = False


class MarkerSender:
    """Owned by the loop thread."""

    def __init__(self, clock: Clock, leader_of: LeaderOf, deliver: DeliverMarkers) -> None:
        self._clock = clock
        self._leader_of = leader_of
        self._deliver = deliver
        self._destinations: dict[int, _Destination] = {}

    def send(self, job: MarkerJob) -> None:
        """Send a transaction's markers until all partitions have them."""
        self._route(job, frozenset(job.left))

    def _route(self, job: MarkerJob, partitions: Collection[TopicPartition]) -> None:
        if job.cancelled:
            return
        waiting: set[TopicPartition] = set()
        gone: set[TopicPartition] = set()
        destinations: list[_Destination] = []
        for partition in partitions:
            leader = self._leader_of(*partition)
            if leader is None:
                gone.add(partition)
            elif leader == NO_LEADER:
                waiting.add(partition)
            else:
                destination = self._destinations.get(leader)
                if destination is None:
                    destination = self._destinations[leader] = _Destination(leader)
                destination.queue.setdefault(job, set()).add(partition)
                destinations.append(destination)
        if gone:
            _log.info(
                "no markers for deleted partitions",
                transactional_id=job.transactional_id,
                partitions=sorted(gone),
            )
        if waiting:
            self._later(job, waiting, self._pause(job))
        self._mark(job, gone)
        for destination in dict.fromkeys(destinations):
            self._pump(destination)

    def _mark(self, job: MarkerJob, partitions: Collection[TopicPartition]) -> None:
        """Note that partitions need no marker from here on."""
        job.left.difference_update(partitions)
        if not job.left:
            self._finish(job)

    def _finish(self, job: MarkerJob) -> None:
        """Complete a transaction. Other transactions' markers may be in the same request, so its errors end here."""
        if job.cancelled:
            return
        try:
            job.done()
        except Exception as error:
            _log.error(
                "a transaction with all its markers was not completed",
                transactional_id=job.transactional_id,
                exc_info=error,
            )
            self._clock.call_later(REFUSED_SECONDS, self._finish, job)
        else:
            job.cancelled = True

    def _pause(self, job: MarkerJob) -> float:
        first, longest = RETRY_SECONDS
        pause: float = min(longest, first * 2**job.failures)
        job.failures = min(job.failures + 1, 10)
        return pause

    def _later(self, job: MarkerJob, partitions: Collection[TopicPartition], seconds: float) -> None:
        self._clock.call_later(seconds, self._route, job, partitions)

    def _pump(self, destination: _Destination) -> None:
        """Send what waits for a broker, unless a request to it is under way."""
        if destination.pumping:
            return
        destination.pumping = True
        try:
            while destination.request is None:
                batch = _take(destination.queue)
                if not batch:
                    break
                self._request(destination, _Request(batch))
        finally:
            destination.pumping = False

    def _request(self, destination: _Destination, request: _Request) -> None:
        destination.request = request
        try:
            self._deliver(
                destination.broker_id, _markers(request.batch), partial(self._answered, destination, request)
            )
        except Exception as error:
            _log.error("markers could not be sent", broker=destination.broker_id, exc_info=error)
            self._answered(destination, request, None)
        if destination.request is request:
            request.deadline = self._clock.call_later(ANSWER_SECONDS, self._give_up, destination, request)

    def _give_up(self, destination: _Destination, request: _Request) -> None:
        _log.error("markers have no answer", broker=destination.broker_id, transactions=len(request.batch))
        self._answered(destination, request, None)

    def _answered(
        self, destination: _Destination, request: _Request, errors: list[MarkerErrors] | None
    ) -> None:
        if destination.request is not request:
            return  # It has been given up.
        destination.request = None
        if request.deadline is not None:
            request.deadline.cancel()
        try:
            self._handle_response(destination.broker_id, request.batch, errors)
        finally:
            self._pump(destination)

    def _handle_response(self, broker_id: int, batch: _Batch, errors: list[MarkerErrors] | None) -> None:
        for index, (job, partitions) in enumerate(batch):
            if not job.cancelled:
                # What the answer leaves out is sent again.
                found = {} if errors is None else errors[index]
                unanswered = ErrorCode.REQUEST_TIMED_OUT
                self._handle_answers(
                    broker_id, job, {each: found.get(each, unanswered) for each in partitions}
                )

    def _handle_answers(self, broker_id: int, job: MarkerJob, answers: MarkerErrors) -> None:
        sorted_out: dict[_Action, list[TopicPartition]] = {action: [] for action in _Action}
        for partition, error in answers.items():
            sorted_out[_ACTIONS.get(error, _Action.WAIT)].append(partition)
        if refused := sorted_out[_Action.WAIT]:
            _log.error(
                "a transaction's markers are refused",
                transactional_id=job.transactional_id,
                producer_id=job.producer_id,
                producer_epoch=job.producer_epoch,
                broker=broker_id,
                errors={f"{name}-{index}": answers[name, index].name for name, index in refused},
            )
            self._later(job, refused, REFUSED_SECONDS)
        if again := sorted_out[_Action.RETRY]:
            self._later(job, again, self._pause(job))
        else:
            job.failures = 0
        self._mark(job, sorted_out[_Action.DONE])


def _take(queue: dict[MarkerJob, set[TopicPartition]]) -> _Batch:
    """The next request's markers, oldest first."""
    batch: _Batch = []
    size = 0
    while queue and len(batch) < MOST_MARKERS:
        job = next(iter(queue))
        if job.cancelled:
            del queue[job]
            continue
        if batch and size + len(queue[job]) > MOST_PARTITIONS:
            break
        partitions = queue.pop(job)
        size += len(partitions)
        batch.append((job, partitions))
    return batch


def _markers(batch: _Batch) -> list[TxnMarker]:
    return [
        TxnMarker(
            job.producer_id,
            job.producer_epoch,
            job.coordinator_epoch(),
            job.commit,
            sorted(partitions),
            job.transaction_version,
        )
        for job, partitions in batch
    ]
