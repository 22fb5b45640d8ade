"""Defects to start a broker with (``stepped.py``), to check that the harness finds each.

The first three only show when a fault makes the broken promise matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import Commits
from ottla_broker.coordinator.group.group_shard import GroupShard
from ottla_broker.fetch.fetch_request import Fetch
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.reader import LogReader
from ottla_broker.replica.partition import Partition


def _acknowledge_early() -> None:
    """acks=all is answered as soon as the leader has the records."""
    Partition.is_committed = lambda self, end_offset: True  # type: ignore[method-assign]


def _forget_sequences() -> None:
    """A batch that an idempotent producer resends is appended again."""
    ProducerStates.check = lambda self, header, last, *, from_client: None  # type: ignore[method-assign]


def _show_uncommitted() -> None:
    """Consumers read to the log's end."""
    Partition.last_stable_offset = property(  # type: ignore[assignment, method-assign]
        lambda self: self.log.log_end_offset
    )


def _forget_commits() -> None:
    """Every other commit of a group is answered but not kept."""
    write = Commits._write
    count = 0

    def forget(self: Commits, group: Any, items: Any, fitting: Any, reply: Any) -> None:
        nonlocal count
        count += 1
        if count % 2:
            write(self, group, items, fitting, reply)
        else:
            reply([codes.NONE] * len(items))

    Commits._write = forget  # type: ignore[method-assign]


def _skip_records() -> None:
    """Every third fetch of a consumer that could return several records misses the first of them."""
    read = Fetch._read_partition
    count = 0

    def skip(self: Fetch, spec: Any, answer: Any, left: int, min_one: bool) -> Any:
        nonlocal count
        several = type(self) is Fetch and spec.fetch_offset + 1 < self._partition(spec).high_watermark
        count += several
        asked = spec.fetch_offset
        spec.fetch_offset += several and count % 3 == 0
        try:
            return read(self, spec, answer, left, min_one)
        finally:
            spec.fetch_offset = asked

    Fetch._read_partition = skip  # type: ignore[method-assign]


def _show_aborted() -> None:
    """Readers of committed records aren't shown which transactions were aborted."""
    LogReader.aborted = lambda self, offset, records, limit, most=None: []  # type: ignore[method-assign, misc, assignment]


def _forget_transactional_offsets() -> None:
    """Every third commit of a transaction drops the group's offsets that belong to it."""
    complete = GroupShard._complete
    count = 0

    def forget(self: GroupShard, producer_id: int, committed: bool) -> None:
        nonlocal count
        count += 1
        complete(self, producer_id, committed and count % 3 != 0)

    GroupShard._complete = forget  # type: ignore[method-assign]


DEFECTS: Mapping[str, Callable[[], None]] = {
    "acknowledge early": _acknowledge_early,
    "forget sequences": _forget_sequences,
    "show uncommitted": _show_uncommitted,
    "forget commits": _forget_commits,
    "skip records": _skip_records,
    "show aborted": _show_aborted,
    "forget transactional offsets": _forget_transactional_offsets,
}
