"""Callbacks for a group's rebalances."""

from __future__ import annotations

from collections.abc import Awaitable

from ..types import TopicPartition


class RebalanceListener:
    """Called when partitions are assigned and revoked. Override what you need, with plain or async functions.

    The consumer's own task calls them while the application is inside a poll or processes no records. They may use the
    consumer: commit in ``on_partitions_revoked``, seek in ``on_partitions_assigned``. The next poll raises their
    exceptions. Source: Java's ``ConsumerRebalanceListener``.
    """

    def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """The consumer gives these up when the call returns."""

    def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are new. Called after each rebalance, also without any; they are read when the call returns."""

    def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Other members may have these already, so commits fail. Calls ``on_partitions_revoked`` by default."""
        return self.on_partitions_revoked(lost)
