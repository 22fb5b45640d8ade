"""Landing jobs: the tables that they fill, how far behind these are, and dead letters with their reasons."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from aiohttp import web

from ottla_cli.cluster.doctor.checks import DEAD_LETTERS
from ottla_cli.groups.lag import total_lag
from ottla_client.errors import ClientError
from ottla_client.types import OffsetSpec, TopicMetadata, TopicPartition
from ottla_protocol.lag import unread

from ..cached import Cached
from ..decoding import clean, preview
from ..landing_tables import Found, LandingTable, look
from ..rendering import View, link, segment
from ..search import Found as Record
from ..search import Query, newest
from ..sessions import Session
from ..site import Site, page_of
from ..watch import offsets_known

_SECONDS: Final = 5.0
_MOST_SECONDS: Final = 60.0
_ACTIVE_SECONDS: Final = 60.0
"""A job that has committed within it is at work."""
_MOST_TOPICS: Final = 200
_MOST_PARTITIONS: Final = 2_000
_MOST_READ: Final = 100
"""Partitions of a page whose logs are looked through."""
_LETTERS: Final = 50
_REASON: Final = 500
_HEADER_BYTES: Final = 4 * _REASON
_ALSO: Final = re.compile(r"(^|[-_.])dead($|[-_.])", re.IGNORECASE)


class Landing:
    """The pages of landing jobs. It shares one look at the tables' folders among all who have a page open."""

    def __init__(self, site: Site) -> None:
        self._folders = site.settings.landing
        self._hides = site.settings.logs_in
        self._found: Cached[Found] = Cached(self._look, _SECONDS, _MOST_SECONDS)

    async def close(self) -> None:
        await self._found.close()

    async def _look(self) -> Found:
        return await asyncio.to_thread(look, self._folders)

    async def landing(self, request: web.Request, session: Session) -> View:
        """The tables with their last batches and lags, and the topics of dead letters."""
        state = await session.watch.state.get()
        found = await self._found.get() if self._folders else Found()
        # Where people log in, a table shows only to those who may see its topics: their names are the cluster's secret.
        tables = [
            each
            for each in found.tables
            if not self._hides or all(name in state.topics for name in each.topics)
        ]
        hidden = len(found.tables) - len(tables)
        part = page_of(request.query, tables)
        known = await self._behind(session, part.rows, state.topics)
        lags = await _lags(session, part.rows, known)
        return View(
            "landing.html",
            {
                "part": part,
                "rows": [_row(each, known, lags.get(each.path), time.time()) for each in part.rows],
                "folders": self._folders,
                "remarks": found.remarks,
                "hidden": hidden,
                "letters": await _letters(session, state.topics),
            },
            live=True,
        )

    async def _behind(
        self, session: Session, tables: Sequence[LandingTable], topics: Mapping[str, TopicMetadata]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The starts and ends of these tables' topics, at most so many partitions."""
        wanted = [
            TopicPartition(name, number)
            for name in sorted({name for each in tables for name in each.topics if name in topics})
            for number, partition in topics[name].partitions.items()
            if partition.leader is not None
        ][:_MOST_PARTITIONS]
        if not wanted:
            return {}
        ends = await offsets_known(session.admin, dict.fromkeys(wanted, OffsetSpec.LATEST))
        starts = await offsets_known(session.admin, dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        return {each: (starts[each], end) for each, end in ends.items() if each in starts}

    async def dead_letters(self, request: web.Request, session: Session) -> View:
        """The newest dead letters of a topic: which record, and why."""
        name = request.match_info["topic"]
        query = Query(name, limit=_LETTERS, headers=True)
        records, progress = await newest(session, query)
        rows = await asyncio.to_thread(lambda: [_letter(each) for each in records])
        return View("dead_letters.html", {"name": name, "rows": rows, "note": progress.note})


class _Lag(NamedTuple):
    """How far a table is behind its topics; ``seconds`` is the age of the next record, None where it isn't known."""

    records: int
    seconds: float | None


async def _lags(
    session: Session, tables: Sequence[LandingTable], known: Mapping[TopicPartition, tuple[int, int]]
) -> dict[str, _Lag]:
    """The lag of each table by its path, but for those whose topics are gone.

    Logs are looked through in a bounded number of partitions that have more; in others, offsets count.
    """
    found: dict[str, _Lag] = {}
    asked: dict[str, dict[TopicPartition, int]] = {}
    left = _MOST_READ
    for table in tables:
        topics, landed = set(table.topics), table.state.next if table.state else {}
        behind = {
            each: unread(landed.get(each, start), start, end)
            for each, (start, end) in known.items()
            if each.topic in topics
        }
        if not behind:
            continue
        more = [each for each, records in behind.items() if records]
        found[table.path] = _Lag(sum(behind.values()), None if more else 0.0)
        if more and len(more) <= left:
            left -= len(more)
            asked[table.path] = {each: landed.get(each, known[each][0]) for each in more}

    async def one(path: str, offsets: dict[TopicPartition, int]) -> None:
        try:
            lags = await session.admin.lag_of(offsets)
        except ClientError:
            return  # Offsets count.
        records, seconds = total_lag(lags.values())
        found[path] = _Lag(records or 0, seconds)

    await asyncio.gather(*(one(path, offsets) for path, offsets in asked.items()))
    return found


def _row(
    table: LandingTable,
    known: Mapping[TopicPartition, tuple[int, int]],
    lag: _Lag | None,
    now: float,
) -> dict[str, Any]:
    """A line of a table."""
    state, before = table.state, table.before
    row: dict[str, Any] = dict.fromkeys(("lag", "last", "age", "lost"))
    row |= {"table": table, "state": state, "what": "", "behind": None if lag is None else lag.seconds}
    if state is None:
        return row
    if lag is not None:
        row["lag"] = lag.records
        row["lost"] = state.gaps + sum(
            max(0, known[each][0] - offset) for each, offset in state.next.items() if each in known
        )
    row["age"] = max(0.0, now - table.at)
    if before is not None:
        row["last"] = {
            "rows": (state.records - state.dead) - (before.records - before.dead),
            "dead": state.dead - before.dead,
        }
    if table.takes_dead_letters_of:
        row["what"] = "takes dead letters"
    elif row["age"] < _ACTIVE_SECONDS:
        row["what"] = "landing"
    elif row["lag"] is None:
        row["what"] = "its topics are gone"
    else:
        row["what"] = "idle, behind" if row["lag"] else "idle, up to date"
    return row


async def _letters(session: Session, topics: Mapping[str, TopicMetadata]) -> list[dict[str, Any]]:
    """Topics of dead letters, by their names: how many records they have, and how many come."""
    names = [name for name in sorted(topics) if DEAD_LETTERS.search(name) or _ALSO.search(name)][
        :_MOST_TOPICS
    ]
    led = {
        name: [number for number, each in topics[name].partitions.items() if each.leader is not None]
        for name in names
    }
    wanted = [TopicPartition(name, number) for name in names for number in led[name]]
    if not wanted or len(wanted) > _MOST_PARTITIONS:
        return [{"name": name, "records": None, "rate": None} for name in names]
    rates = await session.watch.rates_of({name: its for name, its in led.items() if its})
    starts = await offsets_known(session.admin, dict.fromkeys(wanted, OffsetSpec.EARLIEST))
    rows = []
    for name in names:
        ends = rates[name].looks[-1][1] if name in rates else {}
        begins = {number: starts.get(TopicPartition(name, number)) for number in ends}
        rows.append(
            {
                "name": name,
                "records": sum(end - (begins[number] or 0) for number, end in ends.items()),
                "rate": rates[name].rate() if name in rates else None,
            }
        )
    return rows


def _letter(record: Record) -> dict[str, Any]:
    """A dead letter. Its headers may be anything: other programs have topics of such names as well."""
    named = {name: (value or b"")[:_HEADER_BYTES].decode(errors="replace") for name, value in record.headers}
    topic = named.get("ottla.topic", "")
    place = [named.get(f"ottla.{name}", "") for name in ("partition", "offset")]
    is_ours = bool(topic) and all(each.isascii() and each.isdecimal() and len(each) < 19 for each in place)
    return {
        "href": link(f"/topics/{segment(record.topic)}/{record.partition}/{record.offset}"),
        "time": record.timestamp,
        "where": f"{record.partition}/{record.offset}",
        "of": clean(f"{topic[:250]}-{place[0]}, offset {int(place[1]):,}") if is_ours else "",
        "of_href": f"/topics/{segment(topic)}/{place[0]}/{place[1]}" if is_ours else "",
        "error": clean(_error(named)[:_REASON]),
        "value": preview(record.value),
    }


def _error(named: Mapping[str, str]) -> str:
    """The reason, by Ottla's header, or by those that Kafka Connect and Spring write."""
    for name in ("ottla.error", "__connect.errors.exception.message", "kafka_dlt-exception-message"):
        if name in named:
            return named[name]
    return ""
