"""What the tests of replicas share."""

from tests.support.worlds import events_log

__all__ = ["events_log"]
