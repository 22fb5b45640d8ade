"""Requests that aren't HTTP: one line in the log for each, without a traceback."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

_LONGEST: Final = 200


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


class _OneLine(logging.Filter):
    """aiohttp logs a stranger's bad request like a defect of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, RequestPayloadError):
            # A body that isn't compressed as its header says, or ends too early.
            record.msg, record.args = f"a request's body can't be read: {_line(str(error))}", ()
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        elif isinstance(error, HttpProcessingError):
            remote = record.args[0] if isinstance(record.args, tuple) and record.args else "a client"
            what = _line(error.message)
            record.msg = f"a request from {remote} can't be read: {what.rstrip(':') or 'it is not HTTP'}"
            record.args = ()
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


LOGGER: Final = logging.getLogger("ottla.console")
"""For the server."""
LOGGER.addFilter(_OneLine())
