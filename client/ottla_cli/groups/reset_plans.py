"""Where a group continues reading: the new offsets of `ottla groups reset-offsets` and of the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ottla_client.types import OffsetAndMetadata, OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from ottla_client.admin import Admin
    from ottla_client.types import TopicMetadata


@dataclass(frozen=True, slots=True)
class Now:
    """The basis for the new offsets."""

    admin: Admin
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


Plan = Callable[[Now], Awaitable[dict[TopicPartition, int]]]
"""The new offset of each partition, before it is brought into the log's bounds."""


def still_there(
    committed: Iterable[TopicPartition], topics: Mapping[str, TopicMetadata]
) -> list[TopicPartition]:
    """The partitions of these that exist."""
    return sorted(p for p in committed if p.topic in topics and p.partition in topics[p.topic].partitions)


async def gather_now(
    admin: Admin,
    committed: Mapping[TopicPartition, OffsetAndMetadata],
    partitions: Collection[TopicPartition],
) -> Now:
    """Look up what plans for these partitions need. Raises ClientError."""
    starts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return Now(
        admin,
        {p: committed[p] for p in partitions if p in committed},
        {p: found.offset for p, found in starts.items()},
        {p: found.offset for p, found in ends.items()},
    )


def within(now: Now, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The offsets, brought into the log's bounds."""
    return {p: min(max(offset, now.starts[p]), now.ends[p]) for p, offset in offsets.items()}


async def lag_after(now: Now, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The records that a group has left in each partition once it is at these offsets. Raises ClientError."""
    lags = await now.admin.lag_of(offsets)
    known = {p: lag.records for p, lag in lags.items() if lag.records is not None}
    return {p: known.get(p, now.ends[p] - offset) for p, offset in offsets.items()}


async def to_earliest(now: Now) -> dict[TopicPartition, int]:
    return dict(now.starts)


async def to_latest(now: Now) -> dict[TopicPartition, int]:
    return dict(now.ends)


async def to_current(now: Now) -> dict[TopicPartition, int]:
    return {p: now.committed[p].offset if p in now.committed else end for p, end in now.ends.items()}


def to_offset(offset: int) -> Plan:
    async def plan(now: Now) -> dict[TopicPartition, int]:
        return dict.fromkeys(now.ends, offset)

    return plan


def shift(by: int) -> Plan:
    async def plan(now: Now) -> dict[TopicPartition, int]:
        for partition in now.ends:
            if partition not in now.committed:
                raise click.ClickException(f"{partition}: no committed offset to shift")
        return {p: committed.offset + by for p, committed in now.committed.items()}

    return plan


def to_time(milliseconds: int) -> Plan:
    async def plan(now: Now) -> dict[TopicPartition, int]:
        found = await now.admin.list_offsets(dict.fromkeys(now.ends, max(0, milliseconds)))
        return {p: now.ends[p] if at.offset < 0 else at.offset for p, at in found.items()}

    return plan


def as_listed(listed: Mapping[TopicPartition, int]) -> Plan:
    async def plan(now: Now) -> dict[TopicPartition, int]:
        return {p: listed[p] for p in now.ends}

    return plan
