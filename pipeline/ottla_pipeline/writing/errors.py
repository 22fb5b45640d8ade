"""What writing raises, beside OptionError and what ``ottla_client`` raises; one line each."""

from __future__ import annotations

from ottla_pipeline.source.errors import SourceError


class WriteError(SourceError):
    """Rows that can't be written: the DataFrame's columns don't fit, or a broker refused records for good."""


class RecordTooLarge(WriteError):
    """A record is larger than the producer or its topic takes, and ``onTooLarge`` is ``fail``."""
