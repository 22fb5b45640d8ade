"""Settings by environment: ``OTTLA_NUM_PARTITIONS`` is ``num.partitions``.

The name is a key's in capitals, with an underscore for each dot, as Apache Kafka's container images have it with
``KAFKA_``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from ottla_broker.config.model import nearest

PREFIX: Final = "OTTLA_"

_NOT_THE_BROKERS: Final = frozenset({"OTTLA_BOOTSTRAP_SERVER"})
"""What the command line's other commands read."""


class Environment(NamedTuple):
    """What the environment sets: values by key, the variable of each, and a line for each that looks misspelt."""

    settings: dict[str, str]
    variables: dict[str, str]
    warnings: list[str]


def variable(key: str) -> str:
    """The name of a key's variable."""
    return PREFIX + key.upper().replace(".", "_")


def read_environment(environ: Mapping[str, str], keys: Iterable[str]) -> Environment:
    """The settings among these variables, for the keys there are.

    A variable of no key's name is none of the broker's, unless it looks much like one of a key.
    """
    found = Environment({}, {}, [])
    by_variable = {variable(key): key for key in keys}
    tails = {name.removeprefix(PREFIX): name for name in by_variable}
    for name, value in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in _NOT_THE_BROKERS:
            continue
        key = by_variable.get(name)
        if key is not None:
            found.settings[key] = value
            found.variables[key] = name
            continue
        like = nearest(name.removeprefix(PREFIX), tails)
        if like is not None:
            found.warnings.append(f"{name} in the environment is no key's; did you mean {tails[like]}?")
    return found
