"""The batches of one partition: which to send next, and what a response does to them. No I/O, no clock.

A batch in flight ends when it is ``answered`` with a code, ``lost`` without a response, or ``refused`` because it can't
be sent. ``expire`` and ``abandon`` fail its records before that; the batch stays in flight. Together with ``sequences``
this decides whether a batch is sent again. Tests compare it with a model.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla_protocol.errors import ErrorCode, error_code

from ..errors import DeliveryTimeoutError, UnknownTopicError
from ..types import ProducerIdAndEpoch
from .batch import Batch
from .outcomes import OUTCOMES, Outcome, refusal
from .sequences import Sequences


class Answer(NamedTuple):
    """A broker's response for one batch, as in ProduceResponse."""

    code: int
    base_offset: int = -1
    log_append_time: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits of retries. Seconds."""

    delivery_timeout: float
    backoff: Callable[[int], float]
    """Seconds to wait after the n-th attempt."""
    one_at_a_time: bool = False
    """Send a batch only after the response to the one before: order without sequence numbers."""


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """Batches in their order in the log; retries are at the front."""

    topic: str
    partition: int
    retries: RetryPolicy
    sequences: Sequences | None
    release: Callable[[int], None]
    """Returns bytes of memory."""
    failed: Callable[[Exception, bool], None] | None = None
    """For batches of transactions: called with the error of each one that fails, and whether it has a number."""
    batches: deque[Batch] = field(default_factory=deque)
    tail: Batch | None = None
    """The last batch, if it is open."""
    in_flight: list[Batch] = field(default_factory=list)
    not_before: float = 0.0
    """The end of the back-off, on the monotonic clock."""
    count_failed: Callable[[int], None] = lambda _: None
    """Called with the number of records of a batch that fails."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def open(self, now: float) -> Batch:
        """Open a new batch at the end."""
        assert self.tail is None
        batch = self.tail = Batch(self.topic, self.partition, now, self.failed is not None)
        self.batches.append(batch)
        return batch

    def close_tail(self) -> Batch | None:
        """Close the last batch; returns it if it was open."""
        batch = self.tail
        if batch is not None:
            self.tail = None
            batch.close()
        return batch

    def ready(self, now: float) -> Batch | None:
        """The batch that may be sent now, if there is one."""
        if not self.batches or now < self.not_before:
            return None
        batch = self.batches[0]
        if self.retries.one_at_a_time and self.in_flight:
            return None
        if not batch.ready or (self.sequences is not None and not self.sequences.may_send(batch)):
            return None
        return batch

    def start_next(self) -> tuple[Batch, ProducerIdAndEpoch | None]:
        """Put the batch from ``ready``, which must be closed, in flight."""
        batch = self.batches.popleft()
        identity = None if self.sequences is None else self.sequences.number(batch)
        batch.attempts += 1
        batch.in_flight = True
        self.in_flight.append(batch)
        return batch, identity

    def answered(self, batch: Batch, answer: Answer, now: float) -> Outcome:
        """Handle the broker's response. Returns the outcome; STOP and MOVED concern the caller, too."""
        self._returned(batch)
        code = error_code(answer.code) if answer.code else ErrorCode.NONE
        outcome = OUTCOMES[code]
        if outcome is Outcome.DONE:
            if self.sequences is not None:
                self.sequences.acknowledged(batch)
            self._release_memory(batch)
            batch.complete(answer.base_offset, answer.log_append_time)
            return outcome
        error = refusal(code, str(self), answer.message, bytes_sent=batch.size)
        batch.last_error = error
        if batch.abandoned:
            self._fail(batch, error)
        elif outcome is Outcome.SPLIT and batch.count > 1:
            parts = batch.split()
            if self.sequences is not None:
                self.sequences.split(batch, parts)
            for part in reversed(parts):
                self._put_back(part)
        elif outcome is Outcome.RESEQUENCE and self._may_resequence(batch):
            assert self.sequences is not None
            self._put_back(batch)
            self.sequences.out_of_order(batch)
        elif outcome in (Outcome.RETRY, Outcome.MOVED):
            self._repeat(batch, now)
        else:
            for index, message in answer.record_errors:
                batch.record_errors[index] = refusal(code, str(self), message, bytes_sent=batch.size)
            self._fail(batch, error)
        return outcome

    def _may_resequence(self, batch: Batch) -> bool:
        """Whether a batch that is out of order may be sent again. The epoch of a transaction can't change in it."""
        if self.sequences is None:
            return False
        return self.failed is None or self.sequences.outstanding[0] is not batch

    def lost(self, batch: Batch, error: Exception, now: float) -> None:
        """No response came: send ``batch`` again, whether or not the broker has it."""
        self._returned(batch)
        batch.last_error = error
        if batch.abandoned:
            self._fail(batch, error)
        else:
            self._repeat(batch, now)

    def refused(self, batch: Batch, error: Exception) -> None:
        """``batch`` can't be sent."""
        self._returned(batch)
        self._fail(batch, error)

    def expire(self, now: float) -> float | None:
        """Fail batches that are out of time. Returns when the next one is; None if there is none."""
        timeout = self.retries.delivery_timeout
        limit = now - timeout
        for batch in [each for each in self.batches if each.created <= limit]:
            self._fail_waiting(batch, self._too_late(batch))
        for batch in self.in_flight:
            if batch.created <= limit and not batch.abandoned:
                # Wait for its response, because later sequence numbers depend on it.
                batch.abandoned = True
                self._release_memory(batch)
                error = self._too_late(batch)
                self.count_failed(batch.count)
                batch.fail(error)
                if self.failed is not None:
                    self.failed(error, True)
        waiting = [each.created for each in (*self.batches, *self.in_flight) if not each.abandoned]
        return min(waiting) + timeout if waiting else None

    def abandon(self, error: Exception) -> int:
        """Fail all batches with ``error``. Returns the number of their records."""
        records = 0
        for batch in list(self.batches):
            records += len(batch.values) or batch.count
            self._fail_waiting(batch, error)
        for batch in self.in_flight:
            if not batch.abandoned:
                records += batch.count
                batch.abandoned = True
                self._release_memory(batch)
                self.count_failed(batch.count)
                batch.fail(error)
        return records

    def drop_unsent(self, error: Exception) -> None:
        """Fail the batches that no broker can have."""
        for batch in list(self.batches):
            if batch.sequence is None:
                self._fail_waiting(batch, error)

    def _returned(self, batch: Batch) -> None:
        batch.in_flight = False
        self.in_flight.remove(batch)

    def _repeat(self, batch: Batch, now: float) -> None:
        self._put_back(batch, now + self.retries.backoff(batch.attempts))
        if self.sequences is not None:
            self.sequences.restart_if_due()

    def _put_back(self, batch: Batch, not_before: float = 0.0) -> None:
        """Put a batch back into the queue, before batches that were sent later or never.

        ``not_before``: the end of its back-off.
        """
        batches = self.batches
        if batch.sequence is None:
            batches.appendleft(batch)
        else:
            at = 0
            for each in batches:
                if each.sequence is None or each.sequence > batch.sequence:
                    break
                at += 1
            batches.insert(at, batch)
        if batches[0] is batch:
            self.not_before = max(self.not_before, not_before)

    def _fail(self, batch: Batch, error: Exception) -> None:
        self._release_memory(batch)
        if not batch.done:
            self.count_failed(batch.count)
        if self.failed is not None:
            self.failed(error, batch.sequence is not None)
        batch.fail(error)
        if self.sequences is not None and batch.sequence is not None:
            self.sequences.failed(batch)

    def _fail_waiting(self, batch: Batch, error: Exception) -> None:
        if batch is self.tail:
            self.close_tail()
        self.batches.remove(batch)
        self._fail(batch, error)

    def _release_memory(self, batch: Batch) -> None:
        reserved, batch.reserved = batch.reserved, 0
        if reserved:
            if batch is self.tail:
                self.close_tail()
            self.release(reserved)

    def _too_late(self, batch: Batch) -> Exception:
        seconds = self.retries.delivery_timeout
        last = batch.last_error
        if isinstance(last, UnknownTopicError):
            error: Exception = UnknownTopicError(
                f"{self.topic} did not exist, or had no partition {self.partition}, for {seconds:g} s "
                "(delivery_timeout_ms)"
            )
        elif batch.attempts == 0 and not batch.in_flight:
            error = DeliveryTimeoutError(
                f"records for {self} could not be sent within {seconds:g} s (delivery_timeout_ms): no broker took them"
            )
        else:
            why = "" if last is None else f"; the last attempt: {last}"
            error = DeliveryTimeoutError(
                f"records for {self} were not acknowledged within {seconds:g} s (delivery_timeout_ms), in "
                f"{batch.attempts} attempt{'' if batch.attempts == 1 else 's'}; the broker may have them{why}"
            )
        error.__cause__ = last
        return error
