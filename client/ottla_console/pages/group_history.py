"""A group's lag over up to a week, as the brokers have kept it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import click
from aiohttp import web

from ottla_cli.groups.lag import Look
from ottla_cli.groups.lag_history import buckets, read_by
from ottla_cli.shared.timefmt import now_ms
from ottla_client.simple_consumer import SimpleConsumer

from ..rendering import View
from ..sessions import Session
from ..settings import WebSettings
from ..site import number_in
from ..watch import Trace

MOST_HOURS: Final = 168
_SPANS: Final = (("6 hours", 6), ("a day", 24), ("a week", MOST_HOURS))
_HOUR_MS: Final = 3_600_000
_AT_ONCE: Final = 2


class GroupHistory:
    """The page of a group's history. A week of many groups takes seconds to read: few pages do so at a time."""

    def __init__(self, settings: WebSettings) -> None:
        self._timeout = settings.timeout
        self._free = asyncio.Semaphore(_AT_ONCE)

    async def history(self, request: web.Request, session: Session) -> View:
        """The lag in records as a drawing, and a row for each part of the time."""
        name = request.query.get("id")
        if name is None:
            raise click.BadParameter("which group? Its name is missing behind /group/history?id=")
        hours = number_in(request.query, "hours", 24, 1, MOST_HOURS)
        since_ms = now_ms() - hours * _HOUR_MS
        options: dict[str, Any] = {**session.client, "client_id": "ottla-console"}
        async with (
            self._free,
            SimpleConsumer(**options, default_api_timeout_ms=max(1, round(self._timeout * 1000))) as consumer,
        ):
            samples = await read_by(consumer, name, since_ms)
        trace = Trace(
            [Look(each.time_ms / 1000, each.records, None) for each in samples if each.records is not None]
        )
        rows = list(buckets(samples, since_ms, hours * _HOUR_MS))[::-1]
        return View(
            "group_history.html",
            {
                "name": name,
                "hours": hours,
                "spans": _SPANS,
                "samples": samples,
                "rows": rows,
                "trace": trace,
            },
        )
