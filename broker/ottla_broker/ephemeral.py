"""Runs a broker for a test: in a temporary folder, on a free port, with settings that avoid waiting.

Both ``ottla broker --ephemeral`` and :class:`ottla_broker.testing.EmbeddedBroker` use it.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from ottla_broker.config import BrokerConfig
    from ottla_broker.server import Broker

HOST: Final = "127.0.0.1"

SETTINGS: Final[Mapping[str, str]] = {
    # A new group doesn't wait for further members; the default is 3 s.
    "group.initial.rebalance.delay.ms": "0",
    # Short sessions are allowed; the default of 6 s would slow down a test of a dying member.
    "group.min.session.timeout.ms": "100",
    # One partition instead of 50 makes the first group quicker.
    "offsets.topic.num.partitions": "1",
    # A broker that doesn't last needs no history of groups' lag, and no topic for it.
    "ottla.lag.history.enable": "false",
}
"""Defaults that differ from those of ``ottla broker``."""

FOLDER_PREFIX: Final = "ottla-broker-"

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """The way to run such a broker.

    Attributes:
        config: the broker's configuration.
        announce: called when the broker accepts clients.
        topics: partitions by name of topics to create first; existing ones are left alone.
        lifeline: a descriptor whose end of file stops the broker, or None.
        durable: whether acknowledged records must survive a crash of the machine. They survive a kill of the broker
            in any case.
    """

    config: BrokerConfig
    announce: Callable[[Broker], None]
    topics: Mapping[str, int] = field(default_factory=dict)
    lifeline: int | None = None
    durable: bool = False


def run(life: Ephemeral) -> None:
    """Run the broker until SIGTERM, SIGINT or the end of its lifeline.

    Raises StartError: the broker can't start, or can't create a topic.
    """
    from ottla_broker import daemon
    from ottla_broker.controller.api import NewTopic
    from ottla_broker.server import StartError
    from ottla_protocol.errors import ErrorCode

    if not life.durable:
        _disable_fsync()

    async def prepare(broker: Broker) -> None:
        topics = [NewTopic(name, partitions) for name, partitions in life.topics.items()]
        for made in await broker.controller.create_topics(topics, validate_only=False):
            if made.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise StartError(f"topic {made.name}: {made.message or made.error.name}")

    daemon.run(life.config, prepare=prepare, announce=life.announce, lifeline=life.lifeline)


def address(broker: Broker) -> str:
    """Return ``host:port``, a value for clients' ``bootstrap_servers``."""
    return ",".join(endpoint.advertised.partition("://")[2] for endpoint in broker.endpoints)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder for the block, and remove it even after SIGTERM or SIGINT."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    # Until the broker's loop handles the signals, they must not end the process without the removal.
    for number in _STOP_SIGNALS:
        signal.signal(number, end)
    # A signal between the folder's creation and the block would leave the folder.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)
        yield Path(folder)
    finally:
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)


def _disable_fsync() -> None:
    """Turn fsync off in this process.

    The data is temporary, and without fsync a write is still visible to the next process.
    """

    def nothing(*_: object) -> None:
        pass

    for name in ("fsync", "fdatasync", "sync"):
        setattr(os, name, nothing)
