"""Messages of a topic: found, shown, linked to, and downloaded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import click
from aiohttp import web

from ...commands.timefmt import show_time
from ..decoding import FORMATS, PREVIEW, SHOWN_BYTES, Shown, clean, preview, show
from ..rendering import View, environment, link, segment
from ..schemas import Schemas
from ..search import (
    MOST_HEADERS,
    MOST_HITS,
    STARTS,
    Found,
    Progress,
    Query,
    check,
    local_time,
    newest,
    read_one,
    search,
    zone,
)
from ..sessions import Session
from ..site import number_in, send_event

_LARGEST_OFFSET = 2**63 - 2
_HEADER_BYTES = 4096
_HEADER_NAME = 300
_LINE_END = re.compile(r"\n *")
"""Of JSON or Protobuf's text by a schema, in which nothing else has line ends."""


def query_in(request: web.Request) -> Query:
    """The query of a page's address. Raises click.BadParameter, ConfigurationError."""
    values = request.query
    start = values.get("from", "latest")
    if start not in STARTS:
        raise click.BadParameter(f"from is {start[:40]!r}; it is one of {', '.join(STARTS)}")
    at = 0
    if start == "offset":
        at = number_in(values, "offset", 0, 0, _LARGEST_OFFSET)
    elif start == "time":
        at = local_time(values.get("time", ""))
    partition = number_in(values, "partition", -1, 0, 10**6)
    return Query(
        request.match_info["topic"],
        None if partition < 0 else partition,
        start,
        at,
        values.get("key", ""),
        values.get("contains", ""),
        values.get("regex") == "1",
        values.get("committed") == "1",
        number_in(values, "limit", 50, 1, MOST_HITS),
    )


def format_in(request: web.Request) -> str:
    how = request.query.get("format", "auto")
    how = "schema" if how in ("avro", "protobuf") else how
    if how not in FORMATS:
        raise click.BadParameter(f"format is {how[:40]!r}; it is one of {', '.join(FORMATS)}")
    return how


def _row(found: Found, how: str) -> dict[str, Any]:
    where = f"/topics/{segment(found.topic)}/{found.partition}/{found.offset}"
    return {
        "href": link(where, format=None if how == "auto" else how),
        "partition": found.partition,
        "offset": found.offset,
        "time": show_time(found.timestamp),
        "key": preview(found.key, how),
        "value": preview(found.value, how),
        "size": found.size,
    }


class Messages:
    """The pages that show records, with the schemas that the console knows."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    async def _rows(self, records: Sequence[Found], how: str) -> list[dict[str, Any]]:
        """Messages in a list."""
        # In threads, as all that is decoded: the console goes on meanwhile.
        rows = await asyncio.to_thread(lambda: [_row(each, how) for each in records])
        for row, each in zip(rows, records, strict=True):
            if how not in ("auto", "schema") or each.is_cut:
                continue
            shown = await self._schemas.show(each.topic, each.value, asked=False)
            if shown is not None and shown.form:
                text = _LINE_END.sub(" ", shown.text)
                row["value"] = shown._replace(text=text if len(text) <= PREVIEW else text[:PREVIEW] + "…")
        return rows

    async def messages(self, request: web.Request, session: Session) -> View:
        """The form, and without a filter the records as well; with one, the page asks for ``found``."""
        query, how = query_in(request), format_in(request)
        check(query)
        topic = (await session.admin.describe_topics([query.topic]))[query.topic]
        rows: list[dict[str, Any]] = []
        progress = Progress()
        if not query.filters:
            records, progress = await newest(session, query)
            rows = await self._rows(records, how)
        last = {row["partition"]: row["offset"] for row in rows}
        following = None
        if rows and query.start != "latest" and len(last) == 1:
            (partition,) = last
            following = link(
                f"/topics/{segment(query.topic)}/messages",
                **{"from": "offset"},
                offset=str(max(row["offset"] for row in rows) + 1),
                partition=str(partition),
                format=None if how == "auto" else how,
            )
        return View(
            "messages.html",
            {
                "name": query.topic,
                "partitions": sorted(topic.partitions),
                "asked": query,
                "time_text": request.query.get("time", ""),
                "zone": zone(),
                "how": how,
                "formats": FORMATS,
                "rows": rows,
                "note": progress.note,
                "following": following,
                "stream": link(f"/topics/{segment(query.topic)}/found", **dict(request.query)),
            },
        )

    async def found(self, request: web.Request, session: Session, response: web.StreamResponse) -> None:
        """The hits of a filter as events, as they are found. It ends when the browser goes away."""
        query, how = query_in(request), format_in(request)
        rows = environment().get_template("rows.html")
        async with aclosing(search(session, query)) as results:
            async for hits, progress in results:
                html = rows.render(rows=await self._rows(hits, how)) if hits else ""
                await send_event(response, "hits", {"html": html, "text": _progress(progress)})
                if request.transport is None or request.transport.is_closing():
                    return
        await send_event(response, "done", _ended(progress))

    async def message(self, request: web.Request, session: Session) -> View:
        """One record, with a link that can be shared."""
        how = format_in(request)
        topic, partition, offset = _place(request)
        record = await read_one(session, topic, partition, offset)
        values: dict[str, Any] = {
            "name": topic,
            "partition": partition,
            "offset": offset,
            "record": record,
            "how": how,
            "formats": FORMATS,
        }
        if record is not None:
            headers = await asyncio.to_thread(_headers, record)
            values |= {
                "key": await asyncio.to_thread(show, record.key, "auto"),
                "value": await self._value(topic, record.value, how),
                "headers": headers,
                "more_headers": len(record.headers) - len(headers),
                "value_size": 0 if record.value is None else len(record.value),
            }
        return View("message.html", values, status=200 if record is not None else 404)

    async def _value(self, topic: str, value: bytes | None, how: str) -> Shown:
        """The value of one record, and why it isn't shown by its schema."""
        shown = None
        if how in ("auto", "schema"):
            shown = await self._schemas.show(topic, value, asked=how == "schema")
        if shown is not None and shown.form:
            return shown
        plain = await asyncio.to_thread(show, value, "auto" if how == "schema" else how)
        if shown is None:
            return plain
        return plain._replace(note=". ".join(each for each in (shown.note, plain.note) if each))


def _headers(record: Found) -> list[tuple[str, Shown]]:
    """The first headers, as many as there is room for."""
    shown: list[tuple[str, Shown]] = []
    room = SHOWN_BYTES
    for name, value in record.headers[:MOST_HEADERS]:
        made = show(value, "auto", _HEADER_BYTES)
        shown.append((clean(name[:_HEADER_NAME]), made))
        room -= len(name[:_HEADER_NAME]) + len(made.text)
        if room < 0:
            break
    return shown


def _progress(progress: Progress) -> str:
    return f"{progress.hits:,} found in {progress.scanned:,} records; {progress.left:,} left"


def _ended(progress: Progress) -> str:
    text = f"{progress.hits:,} found in {progress.scanned:,} records"
    if progress.note:
        text += f"; {progress.note}"
    if not progress.left:
        return f"{text}, all searched"
    if not progress.why:
        # Markers of transactions, or a broker that doesn't answer.
        return f"{text}; {progress.left:,} more offsets brought no record"
    return f"{text}: {progress.why}, {progress.left:,} not searched"


async def download(request: web.Request, session: Session) -> web.StreamResponse:
    """A value as a file, which browsers store rather than show."""
    topic, partition, offset = _place(request)
    record = await read_one(session, topic, partition, offset, whole=True)
    if record is None or record.offset != offset or record.value is None:
        raise web.HTTPNotFound
    return web.Response(
        body=record.value,
        content_type="application/octet-stream",
        headers={"Content-Disposition": f'attachment; filename="{segment(topic)}-{partition}-{offset}.bin"'},
    )


def _place(request: web.Request) -> tuple[str, int, int]:
    info = request.match_info
    return (
        info["topic"],
        number_in(info, "partition", 0, 0, 2**31 - 1),
        number_in(info, "offset", 0, 0, _LARGEST_OFFSET),
    )
