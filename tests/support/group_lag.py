"""Reads the history of a group's lag."""

from __future__ import annotations

from collections.abc import Iterable

from ottla_protocol.group_lag import HistoryReader, LagSample
from ottla_protocol.primitives import Buffer


def read_history(
    records: Iterable[tuple[Buffer | None, Buffer | None]], group_id: str, source: int, since_ms: int
) -> list[LagSample]:
    """The samples of a group since a time, from keys and values."""
    reader = HistoryReader(group_id, source, since_ms)
    for key, value in records:
        reader.add(key, value)
    return reader.samples()
