"""A broker for a test: a temporary folder, a free port, settings that don't make a test wait; gone at its end.

``ottla broker --ephemeral`` and :class:`ottla_broker.testing.EmbeddedBroker` both run this.
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
    # A new group doesn't wait for further members: 3 s by default.
    "group.initial.rebalance.delay.ms": "0",
    # Members may have short sessions, so that a test of one that dies need not wait for 6 s.
    "group.min.session.timeout.ms": "100",
    # One partition instead of 50: the first group of a test is there sooner.
    "offsets.topic.num.partitions": "1",
}
"""What differs from ``ottla broker``; what is given for a key goes before this."""

FOLDER_PREFIX: Final = "ottla-broker-"


@dataclass(frozen=True, slots=True)
class Ephemeral:
    """How a broker that doesn't last lives.

    Attributes:
        config: of the broker.
        topics: name → partitions, made before it says that it is ready; one that exists is left alone.
        announce: is told when clients are accepted.
        lifeline: a descriptor whose end stops the broker, or ``None``.
        durable: whether what is acknowledged has to bear a crash of the machine. It bears a kill of the broker in any
            case.
    """

    config: BrokerConfig
    announce: Callable[[Broker], None]
    topics: Mapping[str, int] = field(default_factory=dict)
    lifeline: int | None = None
    durable: bool = False


def run(life: Ephemeral) -> None:
    """Run it until SIGTERM, SIGINT or the end of its lifeline.

    Raises:
        StartError: it can't start, or a topic can't be made.
    """
    from ottla_broker import server
    from ottla_broker.controller.api import NewTopic
    from ottla_protocol.errors import ErrorCode

    if not life.durable:
        _sync_nothing()

    async def prepare(broker: Broker) -> None:
        topics = [NewTopic(name, partitions) for name, partitions in life.topics.items()]
        for made in await broker.controller.create_topics(topics, validate_only=False):
            if made.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise server.StartError(f"topic {made.name}: {made.message or made.error.name}")

    server.run(life.config, prepare=prepare, announce=life.announce, lifeline=life.lifeline)


def address(broker: Broker) -> str:
    """``host:port``, as clients take it for ``bootstrap_servers``."""
    return ",".join(endpoint.advertised.partition("://")[2] for endpoint in broker.endpoints)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for the time of the block, removed also when SIGTERM or SIGINT end it."""

    def end(number: int, _frame: object) -> NoReturn:
        raise SystemExit(128 + number)

    # Until the broker's loop takes them over: a signal must not end the process without the removal.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    folder = tempfile.mkdtemp(prefix=FOLDER_PREFIX)
    try:
        yield Path(folder)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        shutil.rmtree(folder, ignore_errors=True)


def _sync_nothing() -> None:
    """Have nothing in this process wait for the device.

    The data goes with the process, and what a process has written is there for the next one without fsync.
    """

    def nothing(*_: object) -> None:
        pass

    for name in ("fsync", "fdatasync", "sync"):
        setattr(os, name, nothing)
