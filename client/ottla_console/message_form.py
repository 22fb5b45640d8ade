"""The form of a topic's messages: the query that a page's address asks for, and what is wrong in which field."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

import click

from ottla_client.errors import ConfigurationError
from ottla_client.suggestions import did_you_mean

from .decoding import FORMATS
from .search import MOST_HITS, STARTS, Query, local_time, wrong_in
from .site import flag_in, number_in

if TYPE_CHECKING:
    from multidict import MultiMapping

T = TypeVar("T")

FIELDS: Final = (
    "partition",
    "from",
    "offset",
    "time",
    "key",
    "contains",
    "regex",
    "committed",
    "format",
    "limit",
)
LARGEST_OFFSET: Final = 2**63 - 2
_DEFAULT_LIMIT: Final = 50


@dataclass(frozen=True, slots=True)
class MessageForm:
    """``values`` are the fields as they were given; ``wrong`` has lines by field, "" for those that are none."""

    values: Mapping[str, str]
    query: Query
    how: str
    wrong: Mapping[str, str]

    def check(self) -> None:
        """Raises click.BadParameter for what is wrong."""
        for name, why in self.wrong.items():
            raise click.BadParameter(f"{name}: {why}" if name else why)


def form_in(topic: str, given: MultiMapping[str], partitions: Sequence[int] | None = None) -> MessageForm:
    """The form of an address; ``partitions`` are the topic's, if they are known.

    An offset or a time that is filled in says where to begin, whatever ``from`` says.
    """
    wrong: dict[str, str] = {}
    values = {
        name: given.get(name, "").strip() if name in ("offset", "time") else given.get(name, "")
        for name in FIELDS
    }
    for name in given:
        if name not in FIELDS:
            wrong[""] = f"the page has no parameter {name[:40]!r}{did_you_mean(name, FIELDS)}"
        elif len(set(given.getall(name))) > 1:
            wrong[name] = "it is given twice, with different values"

    def read(name: str, parse: Callable[[str], T], otherwise: T) -> T:
        if name not in wrong:
            try:
                return parse(values[name])
            except (click.BadParameter, ConfigurationError) as error:
                wrong[name] = (
                    error.format_message() if isinstance(error, click.ClickException) else str(error)
                )
        return otherwise

    start = read("from", _start, "latest")
    if values["offset"] and values["time"]:
        wrong["time"] = "give an offset or a time, not both"
    for name in ("offset", "time"):
        if values[name]:
            start = name
        elif start == name:
            wrong.setdefault(name, f"begin at which {name}?")
    at = 0
    if values["offset"]:
        at = read("offset", lambda _: number_in(values, "offset", 0, 0, LARGEST_OFFSET), 0)
    elif values["time"]:
        at = read("time", local_time, 0)
    number = read("partition", lambda _: number_in(values, "partition", -1, 0, 2**31 - 1), -1)
    if partitions is not None and number >= 0 and number not in partitions:
        wrong["partition"] = f"the topic has {len(partitions):,}, no {number}"
    query = Query(
        topic,
        None if number < 0 else number,
        start,
        at,
        values["key"],
        values["contains"],
        read("regex", lambda _: flag_in(values, "regex"), False),
        read("committed", lambda _: flag_in(values, "committed"), False),
        read("limit", lambda _: number_in(values, "limit", _DEFAULT_LIMIT, 1, MOST_HITS), _DEFAULT_LIMIT),
    )
    how = read("format", format_named, "auto")
    return MessageForm(values, query, how, {**wrong_in(query), **wrong})


def format_named(name: str) -> str:
    """How values are to be shown. Raises click.BadParameter."""
    name = "schema" if name in ("avro", "protobuf") else name or "auto"
    if name not in FORMATS:
        raise click.BadParameter(f"{name[:40]!r} is not one of {', '.join(FORMATS)}")
    return name


def _start(text: str) -> str:
    if text and text not in STARTS:
        raise click.BadParameter(f"{text[:40]!r} is not one of {', '.join(STARTS)}")
    return text or "latest"
