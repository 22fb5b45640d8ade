"""The open file descriptors of brokers, by ``/health/process`` of their ``metrics.listener``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from .broker_pages import Page


class Descriptors(NamedTuple):
    """The numbers of file descriptors that are open, and that may be open."""

    open: int
    most: int


def _read(document: Mapping[str, Any]) -> Descriptors | None:
    """A broker's descriptors; None if its system doesn't count or limit them."""
    numbers = document["open_descriptors"], document["max_descriptors"]
    return None if None in numbers else Descriptors(*map(int, numbers))


DESCRIPTORS: Final = Page("/health/process", "file descriptors", _read)
