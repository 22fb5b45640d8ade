"""Requests that aren't HTTP: one line in the log for each, without a traceback."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp.http_exceptions import HttpProcessingError

_LONGEST: Final = 200


class _OneLine(logging.Filter):
    """aiohttp logs a stranger's bad request like a defect of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            remote = record.args[0] if isinstance(record.args, tuple) and record.args else "a client"
            what = " ".join(error.message.split())[:_LONGEST]
            record.msg = f"a request from {remote} can't be read: {what.rstrip(':') or 'it is not HTTP'}"
            record.args = ()
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


LOGGER: Final = logging.getLogger("ottla.console")
"""For the server."""
LOGGER.addFilter(_OneLine())
