"""``ottla log hand-over``: what Kafka finds afterwards. That it starts on it is in tests/interop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.log_tools.kafka_folders import KafkaFolders, unpacked

from ottla_broker.background import Background
from ottla_broker.log.files import Files
from ottla_broker.log_cli import log
from ottla_broker.store.api import Create, NoNodeError
from ottla_broker.store.embedded import EmbeddedStore
from ottla_broker.store.keys import ClusterIdNode, TopicNode
from ottla_broker.tools import zookeeper_nodes
from ottla_broker.tools.data_folders import DataFolderError
from ottla_broker.tools.known_topics import from_nodes, read_journal
from ottla_broker.tools.metadata_log import MetadataImage, read_metadata_log


@pytest.fixture
def folders(tmp_path: Path) -> KafkaFolders:
    """Folders that Ottla has taken over from Kafka."""
    found = unpacked("kraft-stopped", tmp_path)
    assert run("adopt", found, "--execute").exit_code == 0
    return found


def run(command: str, folders: KafkaFolders, *options: str) -> Result:
    return CliRunner().invoke(log, [command, "--data-dir", folders.dirs, *options])


def image_of(folder: str, tmp_path: Path) -> MetadataImage:
    """What a metadata log says that begins with the folder's ``bootstrap.checkpoint``."""
    made = tmp_path / "metadata"
    made.mkdir()
    (made / f"{0:020d}-{0:010d}.checkpoint").write_bytes(Path(folder, "bootstrap.checkpoint").read_bytes())
    return read_metadata_log(Files(8, read_only=True), str(made))


@pytest.mark.parametrize("command", ["adopt", "hand-over"])
def test_zookeeper_without_its_package(
    folders: KafkaFolders, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ottla_broker.tools.zookeeper_nodes", "ottla_broker.store.zookeeper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "kazoo", None)
    done = run(command, folders, "--zookeeper", "127.0.0.1:1")
    assert (done.exit_code, done.stderr) == (
        1,
        "Error: --zookeeper needs the package kazoo: pip install 'ottla[broker]'\n",
    )


def test_for_kraft(folders: KafkaFolders, tmp_path: Path) -> None:
    before = read_metadata_log(Files(8, read_only=True), f"{folders.paths[0]}/__cluster_metadata-0")
    shown = run("hand-over", folders, "--kraft")
    assert shown.exit_code == 0, shown.output
    assert shown.stderr == "nothing was changed; add --execute to carry it out\n"
    assert Path(folders.paths[0], "__cluster_metadata-0").exists()

    done = run("hand-over", folders, "--kraft", "--execute")
    assert done.exit_code == 0, done.output
    image = image_of(folders.paths[1], tmp_path)
    assert {topic.name: set(topic.partitions) for topic in image.topics.values()} == {
        topic.name: set(topic.partitions) for topic in before.topics.values()
    }
    assert image.topics.keys() == before.topics.keys()
    assert image.configs == before.configs
    assert image.next_producer_id == before.next_producer_id
    assert image.features == {"metadata.version": 21}
    for topic_id, topic in image.topics.items():
        for index, partition in topic.partitions.items():
            known = before.topics[topic_id].partitions[index]
            assert (partition.replicas, partition.isr, partition.leader) == ([1], [1], -1)
            assert partition.leader_epoch == known.leader_epoch
    # Kafka would go on with an old metadata log, so it is out of the way, under a name that Kafka passes over.
    (aside,) = Path(folders.paths[0]).glob("__cluster_metadata-0.*-stray")
    assert f"is now {aside}" in done.stderr
    assert not Path(folders.paths[0], "__cluster_metadata-0").exists()
    # The store is still right, as Kafka hasn't run.
    assert "nothing to do" in run("adopt", folders).stderr


def test_meta_properties(folders: KafkaFolders) -> None:
    for folder in folders.paths:
        path = Path(folder, "meta.properties")
        path.write_text(f"version=0\nbroker.id=1\ncluster.id={folders.expected['cluster']}\n")
    assert run("hand-over", folders, "--kraft", "--execute").exit_code == 0
    texts = [Path(folder, "meta.properties").read_text().splitlines() for folder in folders.paths]
    for text in texts:
        assert {"version=1", "node.id=1", f"cluster.id={folders.expected['cluster']}"} < set(text)
    ids = {line for text in texts for line in text if line.startswith("directory.id=")}
    assert len(ids) == 2


def test_topic_ids_are_added(folders: KafkaFolders) -> None:
    path = next(
        Path(each, "cut-0", "partition.metadata") for each in folders.paths if Path(each, "cut-0").exists()
    )
    before = path.read_bytes()
    path.unlink()
    assert run("hand-over", folders, "--kraft", "--execute").exit_code == 0
    assert path.read_bytes() == before


def test_what_is_refused(folders: KafkaFolders) -> None:
    for options in ([], ["--kraft", "--zookeeper", "localhost:1"], ["--kraft", "--dry-run", "--execute"]):
        assert run("hand-over", folders, *options).exit_code == 2
    half = KafkaFolders(folders.paths[1:], folders.expected)
    done = run("hand-over", half, "--kraft")
    assert done.exit_code == 1
    assert "no ottla-store.journal there" in done.stderr
    lock = Files(8).lock(f"{folders.paths[0]}/.lock")
    try:
        done = run("hand-over", folders, "--kraft")
    finally:
        lock.close()
    assert "is in use" in done.stderr
    done = run("hand-over", folders, "--zookeeper", "not an address:x")
    assert done.exit_code == 1
    assert "ZooKeeper at not an address:x" in done.stderr


class FakeZooKeeper(EmbeddedStore):
    """Stands for ZooKeeper, whose store has this method more."""

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        found: list[tuple[bytes, int] | None] = []
        for path in paths:
            try:
                found.append(await self.get(path))
            except NoNodeError:
                found.append(None)
        return found


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of the store that stands for ZooKeeper."""
    folder = tmp_path / "fake"
    folder.mkdir()

    async def open_fake(address: str) -> FakeZooKeeper:
        assert address == "localhost:2181"
        store = FakeZooKeeper.open(folder, Background(1))
        assert isinstance(store, FakeZooKeeper)
        return store

    monkeypatch.setattr(zookeeper_nodes, "_open", open_fake)
    return folder


def test_for_zookeeper_and_back(folders: KafkaFolders, fake: Path) -> None:
    options = ["--zookeeper", "localhost:2181"]
    assert run("hand-over", folders, *options).exit_code == 0
    nodes = read_journal(f"{fake}/ottla-store.journal")
    assert not any(path.startswith("/brokers") for path in nodes)

    assert run("hand-over", folders, *options, "--execute").exit_code == 0
    nodes = read_journal(f"{fake}/ottla-store.journal")
    assert not any(path.startswith("/ottla") for path in nodes)
    own = read_journal(f"{folders.paths[0]}/ottla-store.journal")
    assert {path for path in own if not path.startswith("/ottla")} == set(nodes)
    for folder in folders.paths:
        assert "version=0\n" in Path(folder, "meta.properties").read_text()

    # Read back, it is the same.
    read = asyncio.run(zookeeper_nodes.read_nodes("localhost:2181", 1))
    assert from_nodes(read, 1, "").topics == from_nodes(own, 1, "").topics
    done = run("adopt", folders, *options)
    assert done.exit_code == 0, done.output
    assert "Source        ZooKeeper" in done.stdout
    assert "nothing to do" in done.stderr


def test_a_write_that_was_cut_short_is_done_again(folders: KafkaFolders, fake: Path) -> None:
    async def begin() -> None:
        background = Background(1)
        store = EmbeddedStore.open(fake, background)
        await store.transaction([Create("/config"), Create("/config/topics"), Create("/config/topics/cut")])
        await store.close()
        background.close()

    asyncio.run(begin())
    done = run("hand-over", folders, "--zookeeper", "localhost:2181", "--execute")
    assert done.exit_code == 0, done.output


def test_a_zookeeper_that_is_not_empty(folders: KafkaFolders, fake: Path) -> None:
    async def create(*operations: Create) -> None:
        background = Background(1)
        store = EmbeddedStore.open(fake, background)
        await store.transaction(operations)
        await store.close()
        background.close()

    asyncio.run(create(Create("/cluster"), Create("/cluster/id", ClusterIdNode.encode("another"))))
    done = run("hand-over", folders, "--zookeeper", "localhost:2181", "--execute")
    assert done.exit_code == 1
    assert "belongs to cluster another" in done.stderr
    done = run("adopt", folders, "--zookeeper", "localhost:2181")
    assert done.exit_code == 1
    assert "check the address and its path" in done.stderr

    asyncio.run(create(Create("/brokers"), Create("/brokers/topics"), Create(TopicNode.path("t"), b"?")))
    done = run("hand-over", folders, "--zookeeper", "localhost:2181", "--execute")
    assert "has topics already" in done.stderr
    done = run("adopt", folders, "--zookeeper", "localhost:2181")
    assert done.exit_code == 1
    assert "/brokers/topics/t" in done.stderr
    with pytest.raises(DataFolderError):
        asyncio.run(zookeeper_nodes.read_nodes("localhost:2181", 1))
