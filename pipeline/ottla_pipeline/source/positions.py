"""The options for where to start and to end: a word, offsets, or times."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ottla_client import TopicPartition

from .errors import OptionError
from .units import one_of

EARLIEST: Final = -2
LATEST: Final = -1
"""Offsets in an option's JSON that stand for the log's two ends."""


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    GROUP = "group"
    OFFSETS = "offsets"
    TIME = "time"
    TIMES = "times"


@dataclass(frozen=True)
class Position:
    """Where to start or to end; ``option`` is the option's name, for messages.

    ``of`` has offsets or milliseconds by partition, ``time`` the milliseconds for all of them. ``or_latest``: if no
    record is as late as a time, take the log's end instead of raising.
    """

    kind: Kind
    option: str
    of: Mapping[TopicPartition, int] | None = None
    time: int = 0
    or_latest: bool = False


def starting(given: Mapping[str, str], default: str) -> Position:
    """From options with lower-case names; a single time overrides times, which override offsets. Raises OptionError."""
    strategy = one_of(
        "startingOffsetsByTimestampStrategy",
        given.get("startingoffsetsbytimestampstrategy", "error"),
        ("error", "latest"),
    )
    words = {"earliest": Kind.EARLIEST, "latest": Kind.LATEST, "group": Kind.GROUP}
    return _position(given, "starting", words, default, strategy == "latest")


def ending(given: Mapping[str, str]) -> Position:
    """As ``starting``; a time later than all records means the log's end."""
    return _position(given, "ending", {"latest": Kind.LATEST, "earliest": Kind.EARLIEST}, "latest", True)


def _position(
    given: Mapping[str, str], side: str, words: Mapping[str, Kind], default: str, or_latest: bool
) -> Position:
    if (text := given.get(f"{side}timestamp")) is not None:
        name = f"{side}Timestamp"
        try:
            time = int(text.strip())
        except ValueError:
            time = -1
        if time < 0:
            raise OptionError(f"{name} is {text!r}; a time in milliseconds since 1970 is needed")
        return Position(Kind.TIME, name, time=time, or_latest=or_latest)
    if (text := given.get(f"{side}offsetsbytimestamp")) is not None:
        name = f"{side}OffsetsByTimestamp"
        times = numbers(name, text, 0, '{"orders":{"0":1700000000000}}')
        return Position(Kind.TIMES, name, times, or_latest=or_latest)
    name = f"{side}Offsets"
    text = given.get(name.lower(), default).strip()
    if text.lower() in words:
        return Position(words[text.lower()], name)
    if not text.startswith("{"):
        raise OptionError(
            f'{name} is {text!r}; it can be {", ".join(words)} or offsets such as {{"orders":{{"0":23,"1":-1}}}}'
        )
    return Position(Kind.OFFSETS, name, numbers(name, text, EARLIEST, '{"orders":{"0":23,"1":-1}}'))


def numbers(name: str, text: str, at_least: int, example: str) -> dict[TopicPartition, int]:
    """A number for each partition. Raises OptionError."""
    try:
        return {
            TopicPartition(topic, _partition(number)): _number(value, at_least)
            for topic, partitions in _object(text).items()
            for number, value in _mapping(partitions).items()
        }
    except (TypeError, ValueError) as error:
        raise _unlike(name, text, example, error) from None


def partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions as ``assign`` names them. Raises OptionError."""
    try:
        found = [
            TopicPartition(topic, _number(number, 0))
            for topic, numbers in _object(text).items()
            for number in _listed(numbers)
        ]
    except (TypeError, ValueError) as error:
        raise _unlike(name, text, '{"orders":[0,1]}', error) from None
    if not found:
        raise OptionError(f"{name} is {text!r}, which names no partition")
    return tuple(sorted(set(found)))


def _unlike(name: str, text: str, example: str, error: Exception) -> OptionError:
    return OptionError(f"{name} is {text!r}; expected is, for example, {example} ({error})")


def _object(text: str) -> dict[str, Any]:
    return _mapping(json.loads(text))


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{json.dumps(value)} is no object")
    return value


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{json.dumps(value)} is no list")
    return value


def _number(value: object, at_least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise TypeError(f"{json.dumps(value)} is no whole number from {at_least} on")
    return value


def _partition(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"{json.dumps(text)} is no partition's number")
    return int(text)
