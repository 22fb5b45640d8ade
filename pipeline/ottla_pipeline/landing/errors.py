"""Errors of landing jobs: one line each, with what is wrong, where, and what to do."""

from __future__ import annotations


class LandingError(Exception):
    """A landing job can't go on, or can't start."""


class BadSetting(LandingError):
    """A setting has an invalid value."""


class SchemaRefused(LandingError):
    """A schema can't be read, or doesn't fit the table's."""


class Collision(LandingError):
    """Another job lands in the same table."""


class Undecided(Collision):
    """The same, and the table may have this job's files: they must stay. Compaction deletes them if it hasn't."""


class TableChanged(LandingError):
    """Another program has changed the table's columns or partitioning since the files of a commit were written."""


class DataGone(LandingError):
    """Records between the table's end and the log's start are gone."""


class NotLanded(LandingError):
    """A task could not land its range, for example because a record can't be parsed."""
