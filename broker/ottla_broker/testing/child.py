"""The process of an embedded broker: what :mod:`ottla_broker.testing.embedded` runs."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from ottla_broker.server import Broker

READY = b"ready\n"
LIFELINE = 0
"""The descriptor by which it knows that whoever started it is there: standard input."""


class Spec(TypedDict):
    """What it is told, as JSON.

    ``path`` is ``sys.path``, ``remove`` the folder that goes when whoever started it has gone.
    """

    path: list[str]
    settings: Mapping[str, str]
    topics: Mapping[str, int]
    log_level: str
    durable: bool
    remove: str


def main(spec: Spec) -> None:
    """Serve until told to stop; ``ready`` on standard output says that clients are accepted."""
    # What is imported stays: collections on the way would find nothing, and take a tenth of the start.
    gc.disable()
    from ottla_broker import ephemeral, events
    from ottla_broker.config import BrokerConfig, ConfigError
    from ottla_broker.server import StartError

    gc.enable()
    events.configure(spec["log_level"], json=False)
    try:
        config = BrokerConfig.from_properties({**ephemeral.SETTINGS, **spec["settings"]}, "settings")
        ephemeral.run(
            ephemeral.Ephemeral(config, _say_ready, spec["topics"], LIFELINE, durable=spec["durable"])
        )
    except (ConfigError, StartError) as error:
        sys.exit(str(error))
    finally:
        if _left_alone():
            shutil.rmtree(spec["remove"], ignore_errors=True)


def _say_ready(_broker: Broker) -> None:
    os.write(1, READY)


def _left_alone() -> bool:
    """Whether the other end of the lifeline is closed. It has to be looked at without waiting for it."""
    os.set_blocking(LIFELINE, False)
    try:
        return not os.read(LIFELINE, 1)
    except BlockingIOError:
        return False
