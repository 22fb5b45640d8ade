"""Where ``ottla consume`` begins and ends: places in a log as people type them, and the offsets that they are."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ..types import TopicPartition
from .timefmt import now_ms, parse_duration, parse_time

if TYPE_CHECKING:
    from ..consumer import Consumer

BEGINNING, END, OFFSET, TIME, LAST = "beginning", "end", "offset", "time", "last"
_WORDS = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}
# Milliseconds since 1970 have 13 digits since 2001; no log has had that many records.
_MILLISECONDS = re.compile(r"\d{13,}")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """``kind`` is one of the constants above; ``value`` an offset, milliseconds, or how many before the end."""

    kind: str
    value: int = 0


class LogPositionType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """``beginning``, ``end``, an offset, ``-N`` before the end, a time, or a duration ago (``-15m``)."""

    name = "place"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> LogPosition:
        if isinstance(value, LogPosition):
            return value
        text = str(value).strip()
        if text in _WORDS:
            return LogPosition(_WORDS[text])
        try:
            if text.startswith("@"):
                return LogPosition(TIME, parse_time(text[1:]))
            if text.startswith("-"):
                if text[1:].isdecimal():
                    return LogPosition(LAST, int(text[1:]))
                return LogPosition(TIME, now_ms() - parse_duration(text[1:]))
            if text.isdecimal() and not _MILLISECONDS.fullmatch(text):
                return LogPosition(OFFSET, int(text))
            return LogPosition(TIME, parse_time(text))
        except ValueError as error:
            self.fail(f"{error}; or beginning, end, an offset, -N, -15m", param, ctx)


async def offsets_of(
    place: LogPosition, partitions: Collection[TopicPartition], consumer: Consumer
) -> dict[TopicPartition, int]:
    """The offset that a place is in each partition, inside what its log has now.

    A time is the first record that is as late; where there is none, the end.
    """
    wanted = list(partitions)
    if place.kind == BEGINNING:
        return await consumer.beginning_offsets(wanted)
    end = await consumer.end_offsets(wanted)
    if place.kind == END:
        return end
    if place.kind == TIME:
        found = await consumer.offsets_for_times(dict.fromkeys(wanted, place.value))
        return {each: end[each] if (at := found.get(each)) is None else at.offset for each in wanted}
    first = await consumer.beginning_offsets(wanted)
    if place.kind == LAST:
        return {each: max(first[each], end[each] - place.value) for each in wanted}
    return {each: min(max(place.value, first[each]), end[each]) for each in wanted}
