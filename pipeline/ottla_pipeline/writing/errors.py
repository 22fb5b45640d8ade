"""Errors of writing, one line each. OptionError and ``ottla_client``'s errors come in addition."""

from __future__ import annotations

from ottla_pipeline.source.errors import SourceError


class WriteError(SourceError):
    """Rows can't be written: the DataFrame's columns don't fit, or a broker refused records for good."""


class RecordTooLarge(WriteError):
    """A record is larger than the producer or its topic allows, and ``onTooLarge`` is ``fail``."""
