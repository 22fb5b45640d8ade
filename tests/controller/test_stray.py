"""Folders of topics that aren't in the store are neither deleted nor used."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.world import World

from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.record import encode_batch


def produce(world: World, topic: str) -> None:
    partition = world.replicas.partition(topic, 0)
    assert partition is not None
    partition.append(memoryview(encode_batch([(world.clock.now_ms(), None, b"a record", ())])), 0)


async def with_lost_store(folder: Path) -> None:
    """A data folder with a topic of three records, but without its store."""
    world = await World.open(folder)
    await world.controller.ensure_topic("postcards")
    for _ in range(3):
        produce(world, "postcards")
    await world.close()
    (folder / "ottla-store.journal").unlink()


async def test_a_new_topic_gets_a_new_folder_and_the_old_one_is_kept(tmp_path: Path) -> None:
    await with_lost_store(tmp_path)
    old = (tmp_path / "postcards-0" / "00000000000000000000.log").read_bytes()
    world = await World.open(tmp_path)
    topic = await world.controller.ensure_topic("postcards")
    partition = world.replicas.partition("postcards", 0)
    assert partition is not None
    assert partition.high_watermark == 0
    assert partition.log.topic_id == topic.topic_id
    produce(world, "postcards")
    (kept,) = tmp_path.glob("postcards-0.*-stray")
    assert (kept / "00000000000000000000.log").read_bytes() == old
    await world.close()
    again = await World.open(tmp_path)
    partition = again.replicas.partition("postcards", 0)
    assert partition is not None
    assert partition.high_watermark == 1
    assert kept.exists()
    await again.close()


async def test_a_folder_of_another_topic_id_is_refused(tmp_path: Path) -> None:
    world = await World.open(tmp_path)
    await world.controller.ensure_topic("postcards")
    produce(world, "postcards")
    await world.close()
    metadata = tmp_path / "postcards-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    world = await World.open(tmp_path)
    partition = world.replicas.partition("postcards", 0)
    assert partition is not None
    with pytest.raises(KafkaError) as caught:
        _ = partition.log
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID
    await world.close()
