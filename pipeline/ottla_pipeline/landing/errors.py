"""What can go wrong with a landing job: each error is one line that says what, where, and what to do."""

from __future__ import annotations


class LandingError(Exception):
    """A landing job can't go on, or can't start."""


class BadSetting(LandingError):
    """A setting has a value that nothing can be done with."""


class SchemaRefused(LandingError):
    """A schema can't be read, or the table has another that it can't be joined with."""


class Collision(LandingError):
    """Somebody else lands the same offsets in the same table."""


class DataGone(LandingError):
    """Records between where the table ends and where the log begins can't be landed any more."""


class NotLanded(LandingError):
    """A task could not land its range: a record that can't be parsed or read, say."""
