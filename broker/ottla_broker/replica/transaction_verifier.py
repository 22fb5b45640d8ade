"""Asks transaction coordinators whether partitions belong to a producer's open transaction, or to add them (KIP-890).

A batch that begins a transaction in a partition is held until its coordinator has confirmed that. Otherwise a batch
that arrives after its transaction's marker would begin a transaction that no one ends. Clients of transaction version 2
leave it to the leader to add the partition. Source: Kafka's ``AddPartitionsToTxnManager``.

Each coordinator's broker gets one request at a time; what comes meanwhile goes into the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode

_log = get_logger()

TopicPartition = tuple[str, int]

Verdicts = Mapping[TopicPartition, ErrorCode]
"""Why partitions are not verified; those that are verified are missing."""

Verified = Callable[[Verdicts], None]

TIMEOUT_SECONDS: Final = 30.0
"""How long a coordinator may take (Kafka's ``request.timeout.ms``)."""

MAX_WAITING_BYTES: Final = 256 * 1024 * 1024
"""How many bytes of records may wait for coordinators; beyond that, producers are asked to send them again."""


ADD_AGAIN_SECONDS: Final = (0.002, 0.02)
"""The first and the longest pause before partitions are added again, while the transaction before lacks markers."""
ADD_SECONDS: Final = 0.1
"""How long that is tried; then the client does (Kafka's ``add.partitions.to.txn.retry.backoff.max.ms``)."""


class Verification(NamedTuple):
    """A producer's transaction, and the partitions that should belong to it, or that ``adds`` adds to it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Collection[TopicPartition]
    adds: bool = False


VerifyHere = Callable[[Verification, Callable[[int, Collection[TopicPartition]], None]], None]
"""The transaction coordinator of this broker. It calls back once, now or later, with an error code for all partitions;
or NONE, and those that are not part of the producer's transaction."""

Answers = Sequence[Verdicts] | ErrorCode | None
"""A coordinator's answer: verdicts for each transaction; one error for all; None: it can't verify transactions."""

Ask = Callable[[int, Sequence[Verification], Callable[[Answers], None]], None]
"""``ask(broker_id, verifications, answered)`` asks another broker, and calls ``answered`` once, later."""


class _Waiting:
    """One transaction that its coordinator is asked about, for one or several produce requests."""

    __slots__ = ("adds", "callbacks", "partitions", "producer_epoch", "producer_id")

    def __init__(self, verification: Verification) -> None:
        self.producer_id = verification.producer_id
        self.producer_epoch = verification.producer_epoch
        self.adds = verification.adds
        self.partitions: dict[TopicPartition, None] = {}
        self.callbacks: list[tuple[Collection[TopicPartition], Verified]] = []

    def add(self, partitions: Collection[TopicPartition], verified: Verified) -> None:
        self.partitions.update(dict.fromkeys(partitions))
        self.callbacks.append((partitions, verified))

    def fail(self, code: ErrorCode) -> None:
        self.answer(dict.fromkeys(self.partitions, code))

    def answer(self, verdicts: Verdicts) -> None:
        """Pass the verdicts on. A request that a defect keeps from going on doesn't keep the others waiting."""
        for partitions, verified in self.callbacks:
            try:
                verified({each: verdicts[each] for each in partitions if each in verdicts})
            except Exception as error:
                _log.error("a verified request failed", producer_id=self.producer_id, exc_info=error)


class TransactionVerifier:
    """Owned by the loop thread.

    Attributes:
        waiting_bytes: of records that wait for their verification.
    """

    def __init__(
        self,
        broker_id: int,
        clock: Clock,
        verify_here: VerifyHere,
        broker_of: Callable[[str], int | None],
        ask: Ask | None,
    ) -> None:
        """``broker_of``: the broker that coordinates a transactional id, None or -1 without one.

        ``ask``: None for a broker that stands alone.
        """
        self._broker_id = broker_id
        self._clock = clock
        self._coordinate = verify_here
        self._broker_of = broker_of
        self._ask = ask
        self.waiting_bytes = 0
        # By broker, the transactions that go into the next request, by transactional id.
        self._next: dict[int, dict[str, _Waiting]] = {}
        # Brokers with a request under way.
        self._asked: set[int] = set()

    def other_broker_of(self, transactional_id: str) -> int | None:
        """The other broker that coordinates a transactional id; None if there is none."""
        broker_id = self._broker_of(transactional_id)
        if broker_id is None or broker_id < 0 or broker_id == self._broker_id:
            return None
        return broker_id

    def verify(self, verification: Verification, verified: Verified) -> None:
        """Call ``verified`` once with the verdicts: at once if this broker is the coordinator and knows, else later.

        The coordinator's errors stay as they are, except that PRODUCER_FENCED is INVALID_PRODUCER_EPOCH, which
        producers expect here. A coordinator that isn't known or doesn't answer is COORDINATOR_NOT_AVAILABLE or
        NETWORK_EXCEPTION.
        """
        broker_id = self._broker_of(verification.transactional_id)
        if broker_id == self._broker_id:
            self._coordinate(
                verification,
                lambda error, missing: verified(_verdicts(verification.partitions, error, missing)),
            )
        elif broker_id is None or broker_id < 0 or self._ask is None:
            verified(dict.fromkeys(verification.partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif verification.adds:
            _Adding(self, self._clock, verification, verified).ask()
        else:
            self.queue(broker_id, verification, verified)

    def queue(self, broker_id: int, verification: Verification, verified: Verified) -> None:
        """Ask another broker."""
        queue = self._next.setdefault(broker_id, {})
        waiting = queue.get(verification.transactional_id)
        if waiting is not None:
            # Epochs of different ids can't be compared: the coordinator knows which is the current one.
            same_id = waiting.producer_id == verification.producer_id
            if same_id and waiting.producer_epoch > verification.producer_epoch:
                verified(dict.fromkeys(verification.partitions, ErrorCode.INVALID_PRODUCER_EPOCH))
                return
            asked = (verification.producer_id, verification.producer_epoch, verification.adds)
            if (waiting.producer_id, waiting.producer_epoch, waiting.adds) != asked:
                is_fenced = same_id and waiting.producer_epoch < verification.producer_epoch
                del queue[verification.transactional_id]
                waiting.fail(ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION)
                waiting = None
        if waiting is None:
            waiting = queue[verification.transactional_id] = _Waiting(verification)
        waiting.add(verification.partitions, verified)
        if broker_id not in self._asked:
            self._send(broker_id)

    def _send(self, broker_id: int) -> None:
        queue = self._next.pop(broker_id, None)
        if not queue:
            return
        assert self._ask is not None
        self._asked.add(broker_id)
        verifications = [
            Verification(name, each.producer_id, each.producer_epoch, list(each.partitions), each.adds)
            for name, each in queue.items()
        ]

        def answered(answers: Answers) -> None:
            self._asked.discard(broker_id)
            for number, waiting in enumerate(queue.values()):
                if answers is None and waiting.adds:
                    waiting.fail(ErrorCode.UNSUPPORTED_VERSION)
                elif answers is None:
                    waiting.answer({})
                elif isinstance(answers, ErrorCode):
                    waiting.fail(answers)
                else:
                    waiting.answer(answers[number])
            if broker_id not in self._asked:
                self._send(broker_id)

        self._ask(broker_id, verifications, answered)


class _Adding:
    """Partitions that another broker adds, once it has ended the transaction before."""

    def __init__(
        self, verifier: TransactionVerifier, clock: Clock, asked: Verification, verified: Verified
    ) -> None:
        self._verifier = verifier
        self._clock = clock
        self._asked = asked
        self._verified = verified
        self._pause, self._longest = ADD_AGAIN_SECONDS
        self._until = clock.monotonic() + ADD_SECONDS

    def ask(self) -> None:
        broker_id = self._verifier.other_broker_of(self._asked.transactional_id)
        if broker_id is None:
            self._verified(dict.fromkeys(self._asked.partitions, ErrorCode.NOT_COORDINATOR))
        else:
            self._verifier.queue(broker_id, self._asked, self._answered)

    def _answered(self, verdicts: Verdicts) -> None:
        pause = self._pause
        is_early = ErrorCode.CONCURRENT_TRANSACTIONS in verdicts.values()
        if is_early and self._clock.monotonic() + pause < self._until:
            self._pause = min(2 * pause, self._longest)
            self._clock.call_later(pause, self.ask)
        else:
            self._verified(verdicts)


def _verdicts(
    partitions: Collection[TopicPartition], error: int, missing: Collection[TopicPartition]
) -> Verdicts:
    if error:
        return dict.fromkeys(partitions, for_producers(ErrorCode(error)))
    return dict.fromkeys(missing, ErrorCode.TRANSACTION_ABORTABLE)


def for_producers(code: ErrorCode) -> ErrorCode:
    """A coordinator's error as producers expect it."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
