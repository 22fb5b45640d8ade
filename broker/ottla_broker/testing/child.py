"""The child process that :mod:`ottla_broker.testing.embedded` starts."""

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
"""Standard input: its end of file means that the parent has ended."""


class Spec(TypedDict):
    """The child's JSON argument: ``path`` is ``sys.path``, ``remove`` the folder to remove when the parent has gone."""

    path: list[str]
    settings: Mapping[str, str]
    topics: Mapping[str, int]
    log_level: str
    durable: bool
    remove: str


def main(spec: Spec) -> None:
    """Run the broker until it is stopped; print ``ready`` when it accepts clients."""
    # Imported objects stay, so collections would find nothing and take a tenth of the start.
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
        if _parent_gone():
            shutil.rmtree(spec["remove"], ignore_errors=True)


def _say_ready(_broker: Broker) -> None:
    os.write(1, READY)


def _parent_gone() -> bool:
    """Whether the other end of the lifeline is closed, without waiting."""
    os.set_blocking(LIFELINE, False)
    try:
        return not os.read(LIFELINE, 1)
    except BlockingIOError:
        return False
