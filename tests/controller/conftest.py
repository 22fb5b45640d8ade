"""Fixtures of the controller's tests."""

from tests.support.worlds import events_log, open_world, world

__all__ = ["events_log", "open_world", "world"]
