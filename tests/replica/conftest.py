"""Shared by the tests of replicas."""

from tests.support.worlds import events_log

__all__ = ["events_log"]
