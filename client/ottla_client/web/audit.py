"""The console's audit log: one line of JSON for each login, and for each change that somebody confirmed."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TextIO

from ..errors import ConfigurationError


class AuditLog:
    """Appends lines to a file, or to standard error. A change is written before it is made, and again with its end."""

    def __init__(self, path: str | None) -> None:
        """Raises ConfigurationError if the file can't be written."""
        self._own = path is not None
        try:
            self._file: TextIO = sys.stderr if path is None else open(path, "a", encoding="utf-8")  # noqa: SIM115
        except OSError as error:
            raise ConfigurationError(f"--audit-log {path}: {error.strerror}") from None

    def write(self, event: str, *, user: str, address: str, **fields: object) -> None:
        """Raises OSError: a change that can't be written isn't made."""
        line = {
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "event": event,
            "user": user,
            "address": address,
            **fields,
        }
        self._file.write(json.dumps(line, ensure_ascii=True, default=str) + "\n")
        self._file.flush()

    def close(self) -> None:
        if self._own:
            self._file.close()
