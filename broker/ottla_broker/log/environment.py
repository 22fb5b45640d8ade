"""Parts that all logs of a broker share: files, time, random numbers, the flusher, delayed work."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from ottla_broker.log.files import Files
from ottla_broker.log.flush import Flushable, Flusher
from ottla_broker.log.producer_limit import ProducerLimit

_DAY_MS = 24 * 60 * 60 * 1000


def no_time() -> float:
    """Before any connection: for tools, tests, and a log that is being opened."""
    return 0.0


def _run_now(delay_ms: int, function: Callable[[], None]) -> None:
    """Run the function now: for tools and tests, where nothing runs later."""
    function()


@dataclass(slots=True, eq=False)
class LogEnvironment:
    """Passed to each log by the log manager; tests build their own.

    Attributes:
        monotonic: the time by which connections are dated; see :mod:`.producer_state`.
        later: ``later(delay_ms, function)`` runs a function on a thread after a delay; it may touch only files.
        max_producers: ``max.producers.per.partition``.
        producer_limit: of all partitions together.
        verifies_transactions: ``transaction.partition.verification.enable``: a producer's first batch in a transaction
            needs the coordinator's word.
        on_removal: calls a function on a thread for a log whose end was removed, and then, where the last argument is
            true, writes recovery points and log starts; the future is done afterwards.
        on_failure: called with the data folder of a log whose disk refuses, on the thread that used it.
    """

    files: Files
    now_ms: Callable[[], int]
    random: Random
    producer_id_expiration_ms: int = _DAY_MS
    max_producers: int = 20_000
    producer_limit: ProducerLimit | None = None
    verifies_transactions: bool = False
    flusher: Flusher | None = None
    monotonic: Callable[[], float] = no_time
    later: Callable[[int, Callable[[], None]], None] = _run_now
    on_removal: Callable[[Callable[[], None], Flushable, bool], Future[None]] | None = None
    on_failure: Callable[[str], None] | None = None
