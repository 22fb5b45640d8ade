"""Settings that change in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from tests.coordinator.push_world import MemoryStore
from tests.support.clock import FakeClock

from ottla_broker.cluster.configs import ClusterConfigs
from ottla_broker.store.keys import ConfigChangeNode, ConfigNode


async def test_a_change_that_could_not_be_read_is_read_again() -> None:
    store, clock = MemoryStore(), FakeClock()
    changed: list[tuple[str, str, dict[str, str]]] = []

    async def note(kind: str, name: str, settings: Mapping[str, str]) -> None:
        changed.append((kind, name, dict(settings)))

    await store.create(ConfigChangeNode.PARENT, parents=True)
    path = ConfigNode.path(ConfigNode.TOPICS, "flights")
    await store.create(path, ConfigNode.encode({"retention.ms": "5000"}), parents=True)
    configs = ClusterConfigs(cast("Any", store), note, lambda kind, name, value: None, clock)
    configs.start()
    try:
        await clock.elapse(0)
        notice = ConfigChangeNode.encode(ConfigNode.TOPICS, "flights")
        await store.create(f"{ConfigChangeNode.PREFIX}0000000000", notice)
        store.failing = True
        await clock.elapse(0.5)
        assert changed == []
        store.failing = False
        await clock.elapse(1)
        assert changed == [(ConfigNode.TOPICS, "flights", {"retention.ms": "5000"})]
        assert configs.topic("flights") == {"retention.ms": "5000"}
    finally:
        await configs.close()
