"""How many file descriptors brokers have open, by ``/health/process`` of their ``metrics.listener``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .broker_pages import Page


class Descriptors(NamedTuple):
    """How many are open, and how many may be."""

    open: int
    most: int


def _read(document: Mapping[str, Any]) -> Descriptors | None:
    """A broker's descriptors; None if its system doesn't count or limit them."""
    numbers = document["open_descriptors"], document["max_descriptors"]
    return None if None in numbers else Descriptors(*map(int, numbers))


DESCRIPTORS: Final = Page("/health/process", "file descriptors", _read)
