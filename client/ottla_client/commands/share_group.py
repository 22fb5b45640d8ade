"""What ``ottla groups describe`` shows of a share group: its members, and where it is in each partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..types import TopicPartition
from .admin_common import count_of, plural, without_repeats
from .console import Console
from .tables import Column

if TYPE_CHECKING:
    from ..admin import GroupDescription, ShareGroupOffset


def show_offsets(
    console: Console,
    group: GroupDescription,
    document: dict[str, Any],
    offsets: Mapping[TopicPartition, ShareGroupOffset],
) -> None:
    """Print the group. ``document``: the group as JSON."""
    lags = [offset.lag for offset in offsets.values() if offset.lag is not None]
    total = sum(lags) if lags else None
    rows = [
        (partition.topic, partition.partition, offset.start, offset.lag)
        for partition, offset in sorted(offsets.items())
    ]
    number = count_of(console)
    columns = [
        Column("Topic"),
        Column("Partition"),
        Column("Start", "start_offset", right=True, show=number),
        Column("Lag", "lag_records", right=True, show=number),
    ]
    if console.as_json:
        names = [column.name for column in columns]
        partitions = [dict(zip(names, row, strict=True)) for row in rows]
        console.emit({**document, "lag_records": total, "partitions": partitions})
        return
    console.details(
        {
            "Group": group.group_id,
            "State": group.state,
            "Type": group.type,
            "Protocol": group.protocol or None,
            "Coordinator": group.coordinator,
            "Members": len(group.members),
            "Lag": None if total is None else plural(total, "record"),
        }
    )
    if rows:
        console.print()
        console.table(columns, without_repeats(console, rows))
