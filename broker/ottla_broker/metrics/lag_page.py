"""``/lag``: the last sample of each group, or the history of one, as JSON.

``/lag`` has the groups that this broker samples, those that are furthest behind first. ``/lag?group=G&hours=24`` has
the samples of one group, whichever broker took them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.tasks import unhurried
from ottla_protocol.aio.http_server import Page, json_page
from ottla_protocol.errors import KafkaError
from ottla_protocol.group_lag import sample_of

if TYPE_CHECKING:
    from ottla_broker.metrics.sources import Sources

_MOST_GROUPS: Final = 1_000
_MOST_HOURS: Final = 24.0 * 7
_DEFAULT_HOURS: Final = "24"


async def lag_page(sources: Sources, query: Mapping[str, str]) -> Page:
    """The page; a JSON document with ``error`` if there is nothing to show."""
    if not sources.config.ottla_lag_history_enable:
        return _error(404, "ottla.lag.history.enable is false")
    history = sources.lag_history()
    if history is None:
        return _error(503, "no sample has been taken yet")
    now_ms = sources.clock.now_ms()
    group_id = query.get("group")
    if group_id is None:
        states = sorted(history.latest.values(), key=lambda state: (-state.records, state.group_id))
        left_out = history.left_out + max(0, len(states) - _MOST_GROUPS)
        documents = (
            {"group": state.group_id, **sample_of(history.sampled_ms, state).document()}
            for state in states[:_MOST_GROUPS]
        )
        return await _page({"left_out": left_out}, "groups", documents)
    try:
        hours = float(query.get("hours", _DEFAULT_HOURS))
    except ValueError:
        hours = 0.0
    if not 0 < hours <= _MOST_HOURS:
        return _error(400, f"hours is a number up to {_MOST_HOURS:.0f}")
    try:
        samples = await history.history(group_id, now_ms - round(hours * 3_600_000))
    except KafkaError as error:
        return _error(503, str(error))
    if not samples:
        return _error(404, "there are no samples of this group in that time")
    return await _page({"group": group_id}, "samples", (each.document() for each in samples))


async def _page(document: Mapping[str, Any], name: str, items: Iterable[Mapping[str, Any]]) -> Page:
    """A JSON document whose list ``name`` may be long: it is made in turns of the event loop."""
    start = f'{json.dumps(document)[:-1]}, "{name}": ['
    lines = [f"\n  {json.dumps(item)}" async for item in unhurried(items)]
    return Page(200, "application/json", [start.encode(), ",".join(lines).encode(), b"\n]}\n"])


def _error(status: int, text: str) -> Page:
    return json_page(status, {"error": text})
