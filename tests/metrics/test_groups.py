"""Groups of both protocols, by state."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.metrics import Scraped

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.state import StateCollector
from ottla_broker.metrics.windows import Windows


def test_groups_of_both_protocols() -> None:
    shard: Any = None
    made = [Group("classic", shard, 0), ConsumerGroup("modern", shard), ConsumerGroup("dead", shard)]
    made[2].is_dead = True  # type: ignore[union-attr]
    sources: Any = SimpleNamespace(
        groups=SimpleNamespace(groups=made, loading=False, shares=None),
        push=SimpleNamespace(coordinator=SimpleNamespace(consumers=7)),
    )
    out = Exposition(100)
    for _ in StateCollector(sources, Windows()).groups(out):
        pass
    found = Scraped(b"".join(out.chunks()).decode())
    prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
    assert found(prefix) == 3
    for state, count in (
        ("empty", 2),
        ("dead", 1),
        ("stable", 0),
        ("reconciling", 0),
        ("completingrebalance", 0),
    ):
        assert found(prefix + state) == count
    protocols = "kafka_coordinator_group_group_coordinator_metrics_group_count"
    assert [found(protocols, protocol=each) for each in ("classic", "consumer", "share")] == [1, 2, 0]
    assert found("ottla_coordinated_consumers") == 7
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert [found(purgatory, delayedOperation=each) for each in ("Rebalance", "Heartbeat")] == [0, 0]
