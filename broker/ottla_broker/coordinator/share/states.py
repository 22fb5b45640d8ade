"""A record's states within a share group, and what moves it from one to another. Kafka: ``RecordState``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class RecordState(IntEnum):
    """The numbers are those in the records of ``__share_group_state``; ACQUIRED is never written there."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class Acknowledge(IntEnum):
    """A consumer's statement about a record that it has acquired, by the protocol's numbers."""

    GAP = 0
    """There is no such record: it was compacted away, or is a transaction's marker."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The consumer is still at work: its lock starts again (KIP-1222)."""


NEXT: Final[Mapping[RecordState, frozenset[RecordState]]] = {
    # acquired by a member; or aborted, or deleted from the log
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED, RecordState.ARCHIVED}),
    # released, or its lock timed out; accepted; rejected, absent, or delivered too often
    RecordState.ACQUIRED: frozenset({RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

TERMINAL: Final = frozenset(state for state, following in NEXT.items() if not following)
"""The states that end a record's delivery: the start offset moves past them."""

OUTCOME: Final[Mapping[Acknowledge, RecordState | None]] = {
    Acknowledge.GAP: RecordState.ARCHIVED,
    Acknowledge.ACCEPT: RecordState.ACKNOWLEDGED,
    Acknowledge.RELEASE: RecordState.AVAILABLE,
    Acknowledge.REJECT: RecordState.ARCHIVED,
    Acknowledge.RENEW: None,
}
"""What an acknowledgement makes of an acquired record; None: it stays acquired."""
