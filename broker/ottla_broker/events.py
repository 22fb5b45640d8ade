"""The broker's log of events: structlog behind a proxy that imports it with the first event.

One line an event, with what it is about as key-value pairs: readable at a terminal, a JSON object a line otherwise.
Importing structlog costs tens of milliseconds, which a broker that has nothing to say while it starts does not pay;
the server calls :func:`warm_up` in a quiet moment afterwards.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


@dataclass
class _Settings:
    """Where events go. One per process, as a process has one standard error."""

    level: int = 20
    stream: TextIO | None = None
    json: bool | None = None
    logger: Any = None


_settings = _Settings()


def configure(level: str = "info", stream: TextIO | None = None, json: bool | None = None) -> None:
    """Choose what is written, from now on.

    ``level`` is one of ``debug``, ``info``, ``warning``, ``error``; ``stream`` is standard error unless given;
    ``json`` is chosen by whether the stream is a terminal unless given.
    """
    _settings.level, _settings.stream, _settings.json = LEVELS[level], stream, json
    _settings.logger = None


def warm_up() -> Any:
    """Import structlog and build the logger that all events go through."""
    import structlog

    stream = _settings.stream if _settings.stream is not None else sys.stderr
    as_json = not stream.isatty() if _settings.json is None else _settings.json
    render: list[Any] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(default=str)]
        if as_json
        else [structlog.dev.ConsoleRenderer(colors=stream.isatty())]
    )
    _settings.logger = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_settings.level),
    )
    return _settings.logger


class EventLogger:
    """What the modules log with: ``log.info("segment rolled", topic=topic, partition=3)``."""

    __slots__ = ()

    def debug(self, event: str, **about: object) -> None:
        """For who asked for it; the check comes first, so that silence is cheap."""
        if _settings.level <= 10:
            (_settings.logger or warm_up()).debug(event, **about)

    def info(self, event: str, **about: object) -> None:
        if _settings.level <= 20:
            (_settings.logger or warm_up()).info(event, **about)

    def warning(self, event: str, **about: object) -> None:
        if _settings.level <= 30:
            (_settings.logger or warm_up()).warning(event, **about)

    def error(self, event: str, **about: object) -> None:
        (_settings.logger or warm_up()).error(event, **about)

    def exception(self, event: str, **about: object) -> None:
        """An error with the traceback of the exception being handled."""
        (_settings.logger or warm_up()).error(event, exc_info=True, **about)


def get_logger() -> EventLogger:
    """A logger for a module; costs nothing until it is used."""
    return EventLogger()
