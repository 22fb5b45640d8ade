"""The broker's event log: structlog behind a proxy.

It writes one line per event, with key-value pairs: text on a terminal, JSON otherwise.

Importing structlog takes a third of the broker's start. So while the broker starts, :func:`hold` keeps events in
memory, until :func:`release` or the first warning writes them with their original times.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable, MutableMapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from ottla_protocol.printable import printable

LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}

_MOST_HELD: Final = 1000
_LONGEST_TEXT: Final = 1000
"""Characters of a field that are written."""
_LONGEST_UNPRINTABLE: Final = 250
"""The same of a text with control characters, which take several bytes each."""
_LINES_PER_SECOND: Final = 100

_Event = tuple[str, float, str, dict[str, object]]


class _Settings:
    """The destination of events: one per process, like standard error."""

    def __init__(self) -> None:
        self.level = LEVELS["info"]
        self.stream: TextIO | None = None
        self.json: bool | None = None
        self.logger: Any = None
        # How many events of each level there have been, written or not.
        self.counts = dict.fromkeys(LEVELS, 0)
        # Events lost since the last successful write.
        self.lost = 0
        # Events that wait for release(); None writes them at once.
        self.held: list[_Event] | None = None


_settings = _Settings()


def configure(level: str = "info", stream: TextIO | None = None, json: bool | None = None) -> None:
    """Set the level, stream and format of all further events.

    ``level`` is ``debug``, ``info``, ``warning`` or ``error``. ``stream`` defaults to standard error. ``json``
    defaults to whether the stream is not a terminal.
    """
    _settings.level, _settings.stream, _settings.json = LEVELS[level], stream, json
    _settings.logger = None


def hold() -> None:
    """Keep events in memory until :func:`release` or a warning."""
    _settings.held = []


def load() -> None:
    """Import structlog and build the logger, on any thread.

    Without rich, which structlog imports where it is installed: that takes 6 MB and 50 ms, and nothing uses it.
    """
    hidden = sys.modules.setdefault("rich", None) is None  # type: ignore[arg-type]
    try:
        import structlog
    finally:
        if hidden:
            sys.modules.pop("rich", None)  # another thread may have taken it away
    stream: TextIO | None = _settings.stream if _settings.stream is not None else sys.stderr
    if stream is None:
        # Standard error is closed.
        _settings.level = sys.maxsize
        return
    as_json = not stream.isatty() if _settings.json is None else _settings.json
    # Without local variables, which may hold clients' records.
    tracebacks = structlog.processors.ExceptionRenderer(
        structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    )
    render: list[Any] = (
        [tracebacks, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [
            _printable,
            structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=_plain_traceback),
        ]
    )
    _settings.logger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[_in_order, *render],
        wrapper_class=structlog.make_filtering_bound_logger(_settings.level),
    )


def _in_order(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Put time, level and event first, and cut long texts: a client's names may have 32 KiB."""
    for name, value in event.items():
        if isinstance(value, str) and len(value) > _LONGEST_UNPRINTABLE:
            most = _LONGEST_TEXT if value.isprintable() else _LONGEST_UNPRINTABLE
            if len(value) > most:
                event[name] = f"{value[:most]}… ({len(value)} characters)"
    return {"timestamp": event["timestamp"], "level": event["level"], "event": event["event"], **event}


def _printable(_logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Show control characters, which a client's name may have, as escapes: a terminal would obey them."""
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = printable(value)
    return event


def _plain_traceback(stream: TextIO, error: Any) -> None:
    """The same of an error's text."""
    from structlog.dev import plain_traceback

    text = io.StringIO()
    plain_traceback(text, error)
    stream.write("\n".join(map(printable, text.getvalue().split("\n"))))


def release() -> None:
    """Write the events held, and from now on each event at once."""
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
        # The disk behind standard error is full, its reader has gone, or importing structlog ran out of descriptors.
        # That must not fail the caller; the next successful write reports the loss.
        _settings.lost += 1
        return
    if _settings.lost:
        lost, _settings.lost = _settings.lost, 0
        _write("warning", seconds, "events could not be written", {"count": lost})


def counts() -> dict[str, int]:
    """Return the number of events of each level that this process has had."""
    return dict(_settings.counts)


def _log(level: str, event: str, about: dict[str, object]) -> None:
    number = LEVELS[level]
    _settings.counts[level] += 1
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
    """A module's logger: ``_log.info("segment rolled", topic=topic, partition=3)``."""

    __slots__ = ()

    def debug(self, event: str, **about: object) -> None:
        """Log at level debug, which is off by default."""
        _log("debug", event, about)

    def info(self, event: str, **about: object) -> None:
        _log("info", event, about)

    def warning(self, event: str, **about: object) -> None:
        _log("warning", event, about)

    def error(self, event: str, **about: object) -> None:
        """Log an error; ``exc_info=error`` adds an exception's traceback."""
        _log("error", event, about)

    def exception(self, event: str, **about: object) -> None:
        """Log an error with the traceback of the exception being handled."""
        _log("error", event, {"exc_info": True, **about})


class LimitedLogger:
    """Logs what any client can cause as often as it likes: so many lines a second. Owned by the loop thread.

    The next line says how many were suppressed.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._second = 0.0
        self._lines = 0
        self._suppressed = 0

    def info(self, event: str, **about: object) -> None:
        self._limited("info", event, about)

    def warning(self, event: str, **about: object) -> None:
        self._limited("warning", event, about)

    def _limited(self, level: str, event: str, about: dict[str, object]) -> None:
        now = self._monotonic()
        if now - self._second >= 1.0:
            self._second, self._lines = now, 0
        if self._lines >= _LINES_PER_SECOND:
            self._suppressed += 1
            _settings.counts[level] += 1
            return
        self._lines += 1
        if self._suppressed:
            about["suppressed"], self._suppressed = self._suppressed, 0
        _log(level, event, about)


def get_logger() -> EventLogger:
    """Return a logger for a module."""
    return EventLogger()
