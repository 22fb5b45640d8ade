"""Messages of a topic: found, shown, linked to, and downloaded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from ottla_cli.shared.timefmt import show_time

from ..decoding import FORMATS, PREVIEW, SHOWN_BYTES, Shown, clean, preview, show
from ..message_form import LARGEST_OFFSET, form_in, format_named
from ..rendering import View, environment, link, segment
from ..schemas import Schemas
from ..search import MOST_HEADERS, Found, Progress, newest, read_one, search, zone
from ..sessions import Session
from ..site import number_in, send_event

_HEADER_BYTES = 4096
_SAY_SECONDS = 0.1
_ROWS_SECONDS = 0.5
"""Between two reports of a search, and between two with its hits."""
_HEADER_NAME = 300
_LINE_END = re.compile(r"\n *")
"""Of JSON or Protobuf's text by a schema, in which nothing else has line ends."""


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
        name = request.match_info["topic"]
        topic = (await session.admin.describe_topics([name]))[name]
        form = form_in(name, request.query, sorted(topic.partitions))
        query, how = form.query, form.how
        rows: list[dict[str, Any]] = []
        progress = Progress()
        if not query.filters and not form.wrong:
            records, progress = await newest(session, query)
            rows = await self._rows(records, how)
        following = None
        if rows and not query.is_backwards and len({row["partition"] for row in rows}) == 1:
            following = link(
                f"/topics/{segment(name)}/messages",
                **{"from": "offset"},
                offset=str(max(row["offset"] for row in rows) + 1),
                partition=str(rows[0]["partition"]),
                format=None if how == "auto" else how,
                committed="1" if query.committed else None,
                limit=form.values["limit"],
            )
        return View(
            "messages.html",
            {
                "name": name,
                "partitions": sorted(topic.partitions),
                "asked": query,
                "form": form,
                "zone": zone(),
                "formats": FORMATS,
                "rows": rows,
                "note": progress.note,
                "following": following,
                "stream": link(f"/topics/{segment(name)}/found", **dict(request.query)),
            },
            status=400 if form.wrong else 200,
        )

    async def found(self, request: web.Request, session: Session, response: web.StreamResponse) -> None:
        """The hits of a filter as events, as they are found. It ends when the browser goes away."""
        form = form_in(request.match_info["topic"], request.query)
        form.check()
        rows = environment().get_template("rows.html")
        loop = asyncio.get_running_loop()
        sent: Sequence[Found] = ()
        said = changed = 0.0
        async with aclosing(search(session, form.query)) as results:
            async for hits, progress in results:
                if request.transport is None or request.transport.is_closing():
                    return
                if loop.time() - said < _SAY_SECONDS:
                    continue
                event = {"text": _progress(progress)}
                if hits != sent and loop.time() - changed > _ROWS_SECONDS:
                    event["html"] = rows.render(rows=await self._rows(hits, form.how))
                    sent, changed = hits, loop.time()
                await send_event(response, "hits", event)
                said = loop.time()
        if hits != sent:
            html = rows.render(rows=await self._rows(hits, form.how))
            await send_event(response, "hits", {"html": html, "text": _progress(progress)})
        await send_event(response, "done", progress.ended(form.query))

    async def message(self, request: web.Request, session: Session) -> View:
        """One record, with a link that can be shared."""
        how = format_named(request.query.get("format", ""))
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
        number_in(info, "offset", 0, 0, LARGEST_OFFSET),
    )
