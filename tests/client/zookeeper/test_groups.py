"""What tools read of groups in ZooKeeper."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from ottla_client import TopicPartition
from ottla_client.errors import BadNodeError
from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper, read_groups
from ottla_client.zookeeper_consumer.paths import consumer_of
from ottla_client.zookeeper_consumer.registry import Registry

ONE = "old_host-1700000000000-abcdef"
NODES: dict[str, bytes] = {
    f"/consumers/old/ids/{ONE}": json.dumps(
        {"version": 1, "subscription": {"t": 1}, "pattern": "static", "timestamp": "1"}
    ).encode(),
    "/consumers/old/ids/two": json.dumps(
        {"version": 1, "subscription": {"t.*": 1}, "pattern": "white_list", "timestamp": "1"}
    ).encode(),
    "/consumers/old/owners/t/0": f"{ONE}-0".encode(),
    "/consumers/old/owners/u/3": b"gone-0",
    "/consumers/old/offsets/t/0": b"17",
    "/consumers/empty/offsets/t/1": b"2",
    "/consumers/other/what": b"",
}


class Nodes:
    """In place of ZooKeeper."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self._nodes = nodes

    async def read(self, path: str) -> bytes | None:
        return self._nodes.get(path)

    async def children(self, path: str) -> list[str]:
        start = f"{path}/"
        found = (each.removeprefix(start) for each in self._nodes if each.startswith(start))
        return sorted({each.partition("/")[0] for each in found})


def registry(changes: dict[str, bytes] | None = None) -> Registry:
    return cast(Any, Nodes({**NODES, **(changes or {})}))


async def test_groups_with_members_owners_and_offsets() -> None:
    found = await read_groups(registry())
    t0, u3 = TopicPartition("t", 0), TopicPartition("u", 3)
    assert found == {
        "old": GroupInZooKeeper(
            (ONE, "two"), {t0: f"{ONE}-0", u3: "gone-0"}, {t0: 17}, frozenset({"t", "u"})
        ),
        "empty": GroupInZooKeeper((), {}, {TopicPartition("t", 1): 2}, frozenset()),
    }
    assert [found[name].state for name in ("old", "empty")] == ["Stable", "Empty"]
    assert found["old"].of(ONE) == {t0}
    assert consumer_of(f"{ONE}-0") == ONE
    assert list(await read_groups(registry(), "empty".__eq__)) == ["empty"]


@pytest.mark.parametrize(
    ("path", "data"), [("/consumers/old/offsets/t/0", b"x"), ("/consumers/old/ids/two", b"[")]
)
async def test_nodes_that_cannot_be_read(path: str, data: bytes) -> None:
    with pytest.raises(BadNodeError, match=path):
        await read_groups(registry({path: data}))
