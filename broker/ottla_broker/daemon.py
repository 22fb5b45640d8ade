"""Runs a broker as a process: signals, the ready line, and settings of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from random import SystemRandom
from typing import TYPE_CHECKING

from ottla_broker import events
from ottla_broker.clock import SystemClock
from ottla_broker.events import get_logger
from ottla_broker.server import Broker, StartError

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig

_log = get_logger()

START_SECONDS = 3.0
"""Time for a starting broker to finish its start after a signal; then it exits."""
QUIET_SECONDS = 1.0
"""Time after the start before structlog is imported."""


def run(
    config: BrokerConfig,
    *,
    prepare: Callable[[Broker], Awaitable[None]] | None = None,
    announce: Callable[[Broker], None] | None = None,
    lifeline: int | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Once it is up, ``prepare`` runs, then ``announce``, which prints a line by default. ``lifeline`` is a file
    descriptor, such as the end of a pipe; end of file on it stops the broker as a signal does.

    Raises StartError: the broker can't start.
    """
    try:
        import uvloop
    except ImportError as missing:
        raise StartError(
            f"the broker needs a package that isn't installed ({missing.name}): pip install 'ottla[broker]'"
        ) from missing

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, prepare, announce or _print_line, lifeline))
    finally:
        events.release()


async def _serve(
    config: BrokerConfig,
    prepare: Callable[[Broker], Awaitable[None]] | None,
    announce: Callable[[Broker], None],
    lifeline: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    started = False

    def on_signal(number: int) -> None:
        # A second signal changes nothing: terminals and supervisors often send both at once.
        if not started and not stopping.is_set():
            loop.call_later(START_SECONDS, give_up, number)
        stopping.set()

    def give_up(number: int) -> None:
        if not started:
            _log.warning("stopped while starting, the next start recovers", seconds=START_SECONDS)
            # Recovery runs on threads that can't be interrupted. No client was accepted yet, and a kill does the
            # files no harm at any point.
            os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if lifeline is not None:
        _watch(lifeline, loop, lambda: on_signal(signal.SIGTERM))
    events.hold()
    for warning in config.warnings:
        _log.warning("configuration", what=warning)
    broker = Broker(config, SystemClock(loop), SystemRandom())
    await broker.start()
    started = True
    # The objects of the start live as long as the broker, so the collector can skip them.
    gc.freeze()
    # A collection of the middle generation looks at the survivors of six others: 120,000 objects took 14 to 27 ms,
    # 30,000 take 2 to 7. Together the collections take no longer for being smaller.
    gc.set_threshold(5_000, 5, 320)
    gc.enable()
    try:
        if prepare is not None:
            await prepare(broker)
        announce(broker)
        # The first clients are being served meanwhile; now load structlog.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), QUIET_SECONDS)
        if not stopping.is_set():
            await broker.background.run(events.load)
            events.release()
        await stopping.wait()
    finally:
        await broker.stop()


def _watch(lifeline: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Call ``ended`` on the loop at the descriptor's end of file.

    A thread waits for it, because the loop can't wait for every kind of file, such as ``/dev/null``.
    """

    def read() -> None:
        # An unreadable descriptor counts as ended.
        with contextlib.suppress(OSError):
            while os.read(lifeline, 4096):
                pass
        # The broker, and its loop, may have stopped for another reason.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=read, name="lifeline", daemon=True).start()


def _print_line(broker: Broker) -> None:
    config = broker.config
    say(
        f"ottla: broker {config.broker_id} accepts clients at {', '.join(e.advertised for e in broker.endpoints)}"
        f" (cluster {broker.metadata.cluster_id}, data in {', '.join(map(str, config.data_dirs))})"
    )


def say(line: str) -> None:
    """Print a line. A closed standard output doesn't stop the broker."""
    try:
        print(line, flush=True)
    except OSError as error:
        _log.warning("standard output is closed", error=str(error))
        # Otherwise the buffered text would fail again when the interpreter exits.
        sys.stdout = None
