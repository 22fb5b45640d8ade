"""Settings from environment variables: ``OTTLA_NUM_PARTITIONS`` sets ``num.partitions``.

A variable's name is the key in capitals with an underscore for each dot, as Apache Kafka's container images do with
``KAFKA_``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla_broker.config.model import nearest

PREFIX: Final = "OTTLA_"

_FOR_OTHER_COMMANDS: Final = frozenset({"OTTLA_BOOTSTRAP_SERVER"})
"""Variables for other commands than ``ottla broker``."""


class Environment(NamedTuple):
    """Values by key, the variable of each key, and one line for each variable that looks misspelt."""

    settings: dict[str, str]
    variables: dict[str, str]
    warnings: list[str]


def variable(key: str) -> str:
    return PREFIX + key.upper().replace(".", "_")


def read_environment(environ: Mapping[str, str], keys: Iterable[str]) -> Environment:
    """Find the settings for these keys among environment variables.

    A variable that matches no key is ignored, or warned of if it is close to a key's.
    """
    found = Environment({}, {}, [])
    by_variable = {variable(key): key for key in keys}
    tails = {name.removeprefix(PREFIX): name for name in by_variable}
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in _FOR_OTHER_COMMANDS:
            continue
        key = by_variable.get(name)
        if key is not None:
            found.settings[key] = value
            found.variables[key] = name
            continue
        like = nearest(name.removeprefix(PREFIX), tails)
        if like is not None:
            found.warnings.append(f"environment variable {name} matches no key; did you mean {tails[like]}?")
    return found
