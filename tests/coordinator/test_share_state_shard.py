"""The states of share partitions that a coordinator reads from its log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.state_shard import PartitionState, StateShard, snapshot, tombstone


def test_states_that_are_read_take_little_memory() -> None:
    """States of groups stay when the members are gone. The keys of a group share its id, those of a topic too."""
    shard = StateShard(cast(Any, None))
    keys = [
        ShareKey(group, bytes([topic]) * 16, index)
        for group in ("group-one", "group-two")
        for topic in range(2)
        for index in range(3)
    ]
    rows = [snapshot(key, PartitionState(1, 100, 0), 0) for key in keys]
    rows.append(tombstone(keys[0]))
    for offset, (key, value) in enumerate(rows):
        shard.replay(cast(Any, SimpleNamespace(key=key, value=value, offset=offset)), cast(Any, None))
    assert list(shard.states) == keys[1:]
    assert len({id(key.group_id) for key in shard.states}) == 2
    assert len({id(key.topic_id) for key in shard.states}) == 2
