"""The first page: what is wrong, the worst first; then the cluster in figures, and its brokers."""

from __future__ import annotations

import asyncio
from collections import Counter

from aiohttp import web

from ottla_cli.cluster.state import KINDS

from ..rendering import View
from ..sessions import Session

_MOST_FINDINGS = 100


async def overview(request: web.Request, session: Session) -> View:
    """Brokers and partitions as they are; settings and groups as they were checked last."""
    watch = session.watch
    found, unchecked, complete = await watch.findings()
    state = await watch.state.get()
    by_severity = Counter(each.severity for each in found)
    return View(
        "overview.html",
        {
            "state": state,
            "findings": found[:_MOST_FINDINGS],
            "more": max(0, len(found) - _MOST_FINDINGS),
            "by_severity": by_severity,
            "unchecked": unchecked,
            "complete": complete,
            "share": watch.checks.share,
            "age": asyncio.get_running_loop().time() - watch.state.at,
            "kinds": {kind: state.count(kind) for kind in KINDS},
            "records_moving": len(state.moving or ()),
        },
        live=True,
    )


async def brokers(request: web.Request, session: Session) -> View:
    return View("brokers.html", {"state": await session.watch.state.get()}, live=True)


async def broker(request: web.Request, session: Session) -> View:
    """One broker: its data folders and its settings."""
    from ottla_client.admin import ConfigResource

    number = int(request.match_info["broker"])
    state = await session.watch.state.get()
    row = next((each for each in state.brokers if each["broker"] == number), None)
    if row is None:
        raise web.HTTPNotFound
    settings = []
    if row["address"] is not None:
        resource = ConfigResource.broker(number)
        found = (await session.admin.describe_configs([resource]))[resource]
        settings = sorted(found.values(), key=lambda entry: (entry.is_default, entry.name))
    return View("broker.html", {"row": row, "folders": state.folders.get(number, ()), "settings": settings})
