"""Positions in a log as users type them for ``ottla consume``, and their offsets."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ottla_client.types import TopicPartition

from ..shared.timefmt import now_ms, parse_duration, parse_time

if TYPE_CHECKING:
    from ottla_client.consumer import Consumer

BEGINNING, END, OFFSET, TIME, LAST = "beginning", "end", "offset", "time", "last"
_WORDS = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}
# Milliseconds since 1970 have had 13 digits since 2001; no log has that many records.
_MILLISECONDS = re.compile(r"\d{13,}")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """``kind`` is one of the constants above; ``value`` an offset, milliseconds, or a number of records."""

    kind: str
    value: int = 0


class LogPositionType(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """``beginning``, ``end``, an offset, ``-N`` for the last N records, a time, or a duration ago (``-15m``)."""

    name = "position"

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
    position: LogPosition, partitions: Collection[TopicPartition], consumer: Consumer
) -> dict[TopicPartition, int]:
    """The offset of a position in each partition, within the bounds of its log.

    A time is the first record from then on, or the end if there is none.
    """
    wanted = list(partitions)
    if position.kind == BEGINNING:
        return await consumer.beginning_offsets(wanted)
    end = await consumer.end_offsets(wanted)
    if position.kind == END:
        return end
    if position.kind == TIME:
        found = await consumer.offsets_for_times(dict.fromkeys(wanted, position.value))
        return {each: end[each] if (at := found.get(each)) is None else at.offset for each in wanted}
    if position.kind == LAST:
        from ottla_client.consumer.consumer import last_offsets

        return await last_offsets(consumer, wanted, position.value)
    first = await consumer.beginning_offsets(wanted)
    return {each: min(max(position.value, first[each]), end[each]) for each in wanted}
