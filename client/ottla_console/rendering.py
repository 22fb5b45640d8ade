"""Templates, and how values look on a page."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from ottla_cli.groups.lag import History
from ottla_cli.shared.admin import plural, show_seconds
from ottla_cli.shared.progress import amount_of_bytes
from ottla_cli.shared.timefmt import show_time
from ottla_protocol.printable import quoted

from .watch import Trace

PAGE_ROWS: Final = 50
EXTRA_PAGES: Final = (
    ("/transactions", "Transactions", "x"),
    ("/moves", "Reassignments", "r"),
    ("/access", "Access", "a"),
    ("/quotas", "Quotas", "u"),
    ("/landing", "Landing", "l"),
)
"""Pages behind the first four: path, name and key."""
_SPARK_POINTS: Final = 120
_NONE: Final = "\N{EN DASH}"
_WIDTH: Final = 120
_HEIGHT: Final = 24


@dataclass(slots=True)
class View:
    """A page: a template with values.

    The block ``live`` of a page that is ``live`` is rendered again and again for browsers that stay on it.
    """

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    live: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows on a page of a longer list."""

    rows: Sequence[Any]
    page: int
    pages: int
    total: int


def count(number: int | None) -> str:
    return _NONE if number is None else f"{number:,}"


def seconds(value: float | None) -> str:
    return _NONE if value is None else show_seconds(value)


def rate(value: float | None) -> str:
    """``12.5/s``; a dash after a single look."""
    if value is None:
        return _NONE
    return f"{value:,.1f}/s" if value < 100 else f"{value:,.0f}/s"


def trend(value: float | None) -> str:
    return _NONE if value is None else f"{value:+,.1f}/s"


def size(value: int | None) -> str:
    return _NONE if value is None else amount_of_bytes(value)


def spark(history: History | Trace | None) -> Markup:
    """The lag over time as a small drawing, with its meaning as text."""
    if history is None or len(history.looks) < 2:
        return Markup('<span class="dim">collecting…</span>')
    looks = list(history.looks)
    step = -(-len(looks) // _SPARK_POINTS)
    looks = looks[::-1][::step][::-1]
    first, last = looks[0].at, looks[-1].at
    most = max(look.records for look in looks) or 1
    span = max(last - first, 0.001)
    points = " ".join(
        f"{(look.at - first) / span * _WIDTH:.1f},{_HEIGHT - 2 - look.records / most * (_HEIGHT - 4):.1f}"
        for look in looks
    )
    text = (
        f"lag over {show_seconds(span)}: from {looks[0].records:,} to {looks[-1].records:,}, at most {most:,}"
    )
    return Markup(
        '<svg class="spark" role="img" aria-label="{}" viewBox="0 0 {} {}" width="{}" height="{}">'
        '<polyline points="{}"/></svg>'
    ).format(text, _WIDTH, _HEIGHT, _WIDTH, _HEIGHT, points)


def link(path: str, **parameters: Any) -> str:
    """A path with parameters; those that are None or empty are left out, but for ``id``: a group may have no name."""
    given = {
        name: each
        for name, each in parameters.items()
        if each not in (None, False) and (each != "" or name == "id")
    }
    return f"{path}?{urlencode(given)}" if given else path


def segment(name: str) -> str:
    return quote(name, safe="")


class Assets:
    """The style sheet and the script, with a name for their content so that browsers may keep them."""

    def __init__(self) -> None:
        folder = resources.files("ottla_console") / "static"
        self.files = {
            each.name: each.read_bytes() for each in folder.iterdir() if each.name.startswith("console.")
        }
        self.versions = {name: hashlib.sha256(data).hexdigest()[:12] for name, data in self.files.items()}

    def url(self, name: str) -> str:
        return f"/static/{name}?v={self.versions[name]}"


@cache
def assets() -> Assets:
    return Assets()


def shown(name: str) -> str:
    """A name, in quotes if one can't see where it begins or ends."""
    return quoted(name) if name else "(empty name)"


@cache
def environment() -> jinja2.Environment:
    env = jinja2.Environment(
        loader=jinja2.PackageLoader("ottla_console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters.update(
        count=count,
        seconds=seconds,
        rate=rate,
        trend=trend,
        size=size,
        time=show_time,
        segment=segment,
        name=shown,
        plural=plural,
    )
    env.globals.update(link=link, spark=spark, asset=assets().url, extra_pages=EXTRA_PAGES)
    # A block that is rendered alone has no imports of its template.
    env.globals["m"] = env.get_template("macros.html").module
    return env


def render(view: View, shared: Mapping[str, Any]) -> str:
    """The whole page."""
    return environment().get_template(view.template).render({**shared, **view.values, "live": view.live})


def render_live(view: View, shared: Mapping[str, Any]) -> str:
    """Only what changes: the block ``live``."""
    template = environment().get_template(view.template)
    context = template.new_context({**shared, **view.values, "live": view.live})
    return "".join(template.blocks["live"](context))
