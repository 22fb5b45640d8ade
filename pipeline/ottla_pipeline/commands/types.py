"""Types of options."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import click

from ottla_cli import parse_duration
from ottla_client.lowlevel import did_you_mean

AVAILABLE_NOW = "available-now"
COMPRESSIONS = ("none", "snappy", "gzip", "lz4", "zstd")
_SPARKS = ("availablenow", "available_now", "once")
_SIZE = re.compile(r"(\d+)\s*([kmgtp]?)(?:i?b)?")
_KINDS = ("topic", "partition", "offset", "timestamp", "key")


class Choice(click.Choice):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.2
    """As click's, with the nearest value for a wrong one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            hint = did_you_mean(str(value), [str(choice) for choice in self.choices])
            raise click.BadParameter(f"{error.message.rstrip('.')}{hint}", ctx, param) from None


class Size(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """Bytes: ``134217728``, ``128m``, ``1g``, as in Spark's options."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip().lower())
        if found is None or not int(found[1]):
            self.fail(f"{value!r} is no size; use bytes, or 64k, 128m, 1g", param, ctx)
        return int(found[1]) << 10 * " kmgtp".index(found[2] or " ")


class Duration(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """Seconds: ``30s``, ``15m``, ``1h30m``, ``7d``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value).strip().lower()) / 1000
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Trigger(click.ParamType):  # type: ignore[type-arg,unused-ignore]  # generic since click 8.4
    """``available-now``, or the time between two batches, as seconds."""

    name = "trigger"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | float:
        if isinstance(value, float) or value == AVAILABLE_NOW:
            return value  # type: ignore[no-any-return]
        text = str(value).strip().lower()
        if text in _SPARKS:
            return AVAILABLE_NOW
        try:
            return parse_duration(text) / 1000
        except ValueError:
            hint = did_you_mean(text, [AVAILABLE_NOW]) or f"; use {AVAILABLE_NOW}, or 30s, 5m, 1h"
            self.fail(f"{value!r} is no trigger{hint}", param, ctx)


def columns(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Names of the columns that say where a row comes from, by what they hold: ``offset=_position``."""
    named = {}
    for text in values:
        kind, equals, name = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{text!r} is not KIND=NAME")
        if kind not in _KINDS:
            hint = did_you_mean(kind, _KINDS) or f"; there are {', '.join(_KINDS)}"
            raise click.BadParameter(f"unknown column {kind!r}{hint}")
        named[kind] = name
    return named


def dead_letters(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """``topic:NAME`` or ``table:PLACE``."""
    if value is not None:
        kind, colon, place = value.partition(":")
        if kind not in ("topic", "table") or not colon or not place:
            raise click.BadParameter(f"{value!r} is not topic:NAME or table:PLACE")
    return value


def pairs(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE")
        found[key.strip()] = value.strip()
    return found
