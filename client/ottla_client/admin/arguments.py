"""Checks of the arguments of Admin's calls, made before a request is sent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ..errors import ConfigurationError

T = TypeVar("T")


def listed(given: Iterable[T], kind: type[T]) -> list[T]:
    """The items in ``given``.

    Raises ConfigurationError for items of another type, and for a single item outside a list: a str would be read as a
    list of letters.
    """
    if isinstance(given, str | kind):
        raise ConfigurationError(f"a list is needed, also for a single {_called(kind)}: [{given!r}]")
    things = list(given)
    for thing in things:
        if not isinstance(thing, kind):
            raise ConfigurationError(f"{thing!r} is given where a {_called(kind)} is needed")
    return things


def _called(kind: type) -> str:
    return "name" if kind is str else kind.__name__


def config_text(name: str, value: object) -> str | None:
    """A config's value as text, None for the default. Raises ConfigurationError."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise ConfigurationError(f"the config {name} is {value!r}; a text, number or bool is needed")
