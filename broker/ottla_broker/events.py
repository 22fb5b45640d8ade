"""The broker's log of events: structlog behind a proxy.

One line an event, with what it is about as key-value pairs: readable at a terminal, a JSON object a line otherwise.

Importing structlog costs a third of the broker's whole start. So while the broker starts (:func:`hold`) events are kept
in memory, and written with the times at which they happened when somebody calls :func:`release`, or as soon as one of
them is a warning.
"""

from __future__ import annotations

import sys
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_MOST_HELD: Final = 1000

_Event = tuple[str, float, str, dict[str, object]]


class _Settings:
    """Where events go. One a process, as a process has one standard error."""

    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.stream: TextIO | None = None
        self.json: bool | None = None
        self.logger: Any = None
        # How many could not be written since one last was.
        self.lost = 0
        # Events that wait for release(), while there is a list to put them in.
        self.held: list[_Event] | None = None


_settings = _Settings()


def configure(level: str = "info", stream: TextIO | None = None, json: bool | None = None) -> None:
    """Choose what is written, from now on.

    ``level`` is one of ``debug``, ``info``, ``warning``, ``error``; ``stream`` is standard error unless given;
    ``json`` is chosen by whether the stream is a terminal unless given.
    """
    _settings.level, _settings.stream, _settings.json = LEVELS[level], stream, json
    _settings.logger = None


def hold() -> None:
    """Keep events in memory until :func:`release`, or until a warning."""
    _settings.held = []


def load() -> None:
    """Import structlog and build the logger; may run on any thread."""
    import structlog

    stream: TextIO | None = _settings.stream if _settings.stream is not None else sys.stderr
    if stream is None:
        # Standard error is closed: there is nowhere to write to.
        _settings.level = sys.maxsize
        return
    as_json = not stream.isatty() if _settings.json is None else _settings.json
    # Without local variables: they may hold records of clients.
    tracebacks = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    render: list[Any] = (
        [tracebacks, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    )
    _settings.logger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[_in_order, *render],
        wrapper_class=structlog.make_filtering_bound_logger(_settings.level),
    )


def _in_order(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Time, level and event come first in a line, what it is about after them."""
    return {"timestamp": event["timestamp"], "level": event["level"], "event": event["event"], **event}


def release() -> None:
    """Write what was held, and from now on every event at once."""
    held, _settings.held = _settings.held, None
    for level, seconds, event, about in held or ():
        _write(level, seconds, event, about)


def _write(level: str, seconds: float, event: str, about: dict[str, object]) -> None:
    when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        if _settings.logger is None:
            load()
        if _settings.logger is None:
            return
        getattr(_settings.logger, level)(event, timestamp=when, level=level, **about)
    except OSError:
        # Standard error goes to a disk that is full, or to a reader that has gone; or the log can't be loaded, as there
        # are no descriptors left. What the event was about must not fail for that; that there was something is said
        # as soon as something can be said again.
        _settings.lost += 1
        return
    if _settings.lost:
        lost, _settings.lost = _settings.lost, 0
        _write("warning", seconds, "events could not be written", {"count": lost})


def _log(level: str, event: str, about: dict[str, object]) -> None:
    number = LEVELS[level]
    if number < _settings.level:
        return
    now = time.time()
    held = _settings.held
    if held is not None:
        if number < LEVELS["warning"] and len(held) < _MOST_HELD:
            held.append((level, now, event, about))
            return
        release()
    _write(level, now, event, about)


class EventLogger:
    """What the modules log with: ``log.info("segment rolled", topic=topic, partition=3)``."""

    __slots__ = ()

    def debug(self, event: str, **about: object) -> None:
        """For who asked for it."""
        _log("debug", event, about)

    def info(self, event: str, **about: object) -> None:
        _log("info", event, about)

    def warning(self, event: str, **about: object) -> None:
        _log("warning", event, about)

    def error(self, event: str, **about: object) -> None:
        """``exc_info=error`` adds the traceback of an exception."""
        _log("error", event, about)

    def exception(self, event: str, **about: object) -> None:
        """An error with the traceback of the exception that is being handled."""
        _log("error", event, {"exc_info": True, **about})


def get_logger() -> EventLogger:
    """A logger for a module; costs nothing until it is used."""
    return EventLogger()
