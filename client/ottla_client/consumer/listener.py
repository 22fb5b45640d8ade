"""What an application may want to know of its group's rebalances."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

from ..types import TopicPartition


class RebalanceListener:
    """Told when partitions come and go; override what you need, with plain or with async functions.

    Calls come from the consumer's own task, while the application is inside a poll or has nothing at work. The
    consumer may be used in them: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``. An
    exception is raised by the next poll. Source: Java's ``ConsumerRebalanceListener``.
    """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are given up; they are still this consumer's until the call is done."""

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are new; called after each rebalance, for none as well. Nothing of them is read before it is done."""

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These have gone to others already, so nothing can be committed; calls ``on_partitions_revoked``."""
        return self.on_partitions_revoked(lost)


async def call_listener(
    function: Callable[[frozenset[TopicPartition]], Awaitable[None] | None],
    partitions: frozenset[TopicPartition],
) -> None:
    """Call a listener's function, and wait for it where it is async."""
    result = function(partitions)
    if isawaitable(result):
        await result
