"""Limits what members of groups state: their metadata, subscriptions, regular expressions and names.

The offsets that open transactions have written for a group count as well, since each transaction has its own. Each
group counts what its members have stated, and all groups that a coordinator has together have a running sum, so that a
request pays for its own size only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla_broker.coordinator.refusals import Refusals

SMALL: Final = 16 * 1024
"""Bytes of a member that have room of their own: real consumers state less than a kilobyte."""
MEMBER: Final = 1024
"""What a member takes besides what it states, in bytes."""
_TOPIC: Final = 64
"""What a topic of a subscription takes besides its name, in bytes."""
_KEY: Final = "max.group.metadata.bytes"


@dataclass(eq=False, slots=True)
class MetadataLimit:
    """The limit of what all groups state together (``max.group.metadata.bytes``). Owned by the loop thread.

    Small members have as much again for themselves, so that large ones can't take the room from them. One group may
    take half of each.

    Attributes:
        most: the limit in bytes.
        used: what the members of all groups have stated.
    """

    most: int
    _refusals: Refusals
    used: int = field(default=0, init=False)

    def check(self, in_group: int, before: int, after: int, of: str = "member") -> None:
        """Check that a member of a group, which has stated ``in_group`` bytes, may grow from ``before`` to ``after``.

        ``of``: what is refused otherwise, for the log.

        Raises KafkaError: GROUP_MAX_SIZE_REACHED; that is logged.
        """
        if after <= before:
            return
        most = self.most if after > SMALL else 2 * self.most
        growth = after - before
        if self.used + growth > most:
            self._refuse(f"{of} refused: groups have as much metadata as {_KEY} allows", "All groups")
        elif in_group + growth > most // 2:
            self._refuse(f"{of} refused: its group has half of the metadata that {_KEY} allows", "The group")

    def is_full(self) -> bool:
        """Whether there is room for nothing further; that is logged."""
        if self.used < 2 * self.most:
            return False
        self._refusals.log(f"group refused: groups have as much metadata as {_KEY} allows", self.most)
        return True

    def _refuse(self, what: str, who: str) -> None:
        self._refusals.log(what, self.most)
        raise KafkaError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"{who} would have more metadata of members than {_KEY}, {self.most}, allows.",
        )


class StatedBytes:
    """The size of one group's name and members, and of the offsets of open transactions, in bytes.

    Part of a limit's sum between count_in and count_out.
    """

    __slots__ = ("_limit", "_staged", "bytes")

    def __init__(self, name: str) -> None:
        self.bytes = len(name)
        self._staged = 0
        self._limit: MetadataLimit | None = None

    def add(self, change: int) -> None:
        self.bytes += change
        if self._limit is not None:
            self._limit.used += change

    def count_staged(self, size: int) -> None:
        """The offsets of open transactions take ``size`` bytes now."""
        self.add(size - self._staged)
        self._staged = size

    def count_in(self, limit: MetadataLimit) -> None:
        self.count_out()
        self._limit = limit
        limit.used += self.bytes

    def count_out(self) -> None:
        limit, self._limit = self._limit, None
        if limit is not None:
            limit.used -= self.bytes


def names_bytes(*names: str | None) -> int:
    """Return the size of names, in bytes; missing ones have none."""
    return sum(map(len, filter(None, names)))


def topics_bytes(topics: Sequence[str]) -> int:
    """Return the size of a subscription by topics, in bytes."""
    return sum(map(len, topics)) + _TOPIC * len(topics)
