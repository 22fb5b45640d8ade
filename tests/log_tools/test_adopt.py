"""``ottla log adopt``: folders that Apache Kafka 3.9.1 left are taken over, and served as if nothing had happened."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.log_tools.kafka_folders import PAYMENTS, SETTINGS, KafkaFolders, RawProducer, describe, unpacked
from tests.support.processes import BrokerProcess

from ottla_broker.log.files import Files
from ottla_broker.log_cli import log
from ottla_broker.store import journal
from ottla_broker.store.keys import ConfigNode, ProducerIdBlockNode, TopicNode, decode_uuid
from ottla_broker.tools.known_topics import read_journal
from ottla_protocol.errors import ErrorCode

KINDS = ("kraft-stopped", "kraft-killed", "zookeeper-stopped", "zookeeper-killed")
TOPICS = ["__consumer_offsets", "__transaction_state", "cut", "deleted", "orders", "payments", "state"]
OwnBroker = Callable[..., BrokerProcess]

pytestmark = pytest.mark.ottla_only


@pytest.fixture
def kraft(tmp_path: Path) -> KafkaFolders:
    return unpacked("kraft-stopped", tmp_path)


@pytest.fixture
def zookeeper(tmp_path: Path) -> KafkaFolders:
    return unpacked("zookeeper-stopped", tmp_path)


def adopt(folders: KafkaFolders, *options: str) -> Result:
    return CliRunner().invoke(log, ["adopt", "--data-dir", folders.dirs, *options])


def plan_of(folders: KafkaFolders, *options: str) -> dict[str, Any]:
    done = adopt(folders, "--json", *options)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def topic_of(plan: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in plan["topics"] if each["topic"] == name)
    return found


def store_of(folders: KafkaFolders) -> dict[str, bytes]:
    return read_journal(f"{folders.paths[0]}/ottla-store.journal")


def digest(folders: KafkaFolders) -> dict[str, str]:
    """What every file holds, but the locks."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in folders.paths
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_everything_is_served_afterwards(own_broker: OwnBroker, tmp_path: Path, kind: str) -> None:
    folders = unpacked(kind, tmp_path)
    done = adopt(folders, "--execute")
    assert done.exit_code == 0, done.output
    assert done.stderr.endswith(f"start the broker with: ottla broker --data-dir {folders.dirs}\n")

    settings = {**SETTINGS, "log.dirs": folders.dirs}
    del settings["broker.id"]  # meta.properties has it
    broker = own_broker(folder=tmp_path / "data", settings=settings)
    expected = folders.expected
    producer = expected["producer"]
    raw = RawProducer(
        broker.port, producer["id"], producer["epoch"], producer["sequence"], producer["last offset"]
    )
    if kind.startswith("zookeeper"):
        # Settings were in ZooKeeper.
        expected["broker configs"] = {}
        for name, topic in expected["topics"].items():
            keeps_all = {"retention.bytes": "-1", "retention.ms": "-1"}
            topic["configs"] = {"cleanup.policy": "compact"} if name == "state" else keeps_all
    assert describe(broker.bootstrap, raw) == expected

    # The producer goes on where it was: a batch sent again isn't stored again, a gap is refused.
    assert raw.produce(raw.sequence - 1) == (ErrorCode.NONE, raw.last_offset)
    assert raw.produce(raw.sequence + 1)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert raw.produce() == (ErrorCode.NONE, producer["last offset"] + 1)
    # No other producer gets an id that Kafka gave out.
    other = RawProducer(broker.port)
    other.begin()
    assert other.producer_id >= (1000 if kind.startswith("kraft") else 1_000_000)
    broker.stop()
    assert CliRunner().invoke(log, ["verify", *folders.paths]).exit_code == 0
    again = adopt(folders)
    assert again.exit_code == 0
    assert "nothing to do" in again.stderr


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan(tmp_path: Path, kind: str) -> None:
    folders = unpacked(kind, tmp_path)
    before = digest(folders)
    plan = plan_of(folders)
    assert digest(folders) == before
    assert [topic["topic"] for topic in plan["topics"]] == TOPICS
    assert (plan["cluster"], plan["broker"]) == (folders.expected["cluster"], 1)
    assert plan["changes"]
    assert not plan["done"]
    for key in ("problems", "missing", "strays"):
        assert plan[key] == []
    orders = topic_of(plan, "orders")
    assert (
        orders["topic_id"].replace("-", "+").replace("_", "/") == folders.expected["topics"]["orders"]["id"]
    )
    assert sorted(orders["partitions"]) == ["0", "1", "2"]
    if kind.startswith("kraft"):
        assert plan["not_taken_over"] == ["the passwords of ann: set them again with kafka-configs"]
        assert orders["configs"] == {"retention.ms": "-1"}
        assert plan["broker_configs"] == {"1": {"message.max.bytes": "500000"}}
    else:
        assert topic_of(plan, "state")["configs"] == {"cleanup.policy": "compact"}
        assert topic_of(plan, PAYMENTS)["configs"] == {"retention.ms": "-1", "retention.bytes": "-1"}
    not_clean = "the last stop was not clean: the broker will recover the logs when it starts"
    assert (not_clean in plan["notes"]) == kind.endswith("killed")


def test_the_dry_run_as_a_user_sees_it(kraft: KafkaFolders) -> None:
    for path in kraft.paths:
        Path(path, ".lock").unlink(missing_ok=True)
    done = adopt(kraft, "--dry-run")
    assert done.exit_code == 0
    assert not any(Path(path, ".lock").exists() for path in kraft.paths)
    assert done.stderr == "nothing was changed; add --execute to carry it out\n"
    for line in (
        f"Cluster       {kraft.expected['cluster']}, broker 1",
        "Source        Kafka's metadata log",
        "Topics        7, 11 partitions",
        "Broker 1      message.max.bytes=500000",
        "cut                           1  1.5 KiB  segment.bytes=1000",
        "  __cluster_metadata-0 stays as it is, and Ottla doesn't use it",
    ):
        assert line in done.stdout.splitlines()
    assert adopt(kraft, "--dry-run", "--execute").exit_code == 2


def test_log_dirs_come_from_the_configuration_of_kafka(kraft: KafkaFolders, tmp_path: Path) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(f"process.roles=broker,controller\nlog.dirs={kraft.dirs}\n")
    done = CliRunner().invoke(log, ["adopt", str(properties)])
    assert done.exit_code == 0
    assert f"Folders       {', '.join(kraft.paths)}" in done.stdout
    properties.write_text("node.id=1\n")
    done = CliRunner().invoke(log, ["adopt", str(properties)])
    assert done.exit_code == 2
    assert "--data-dir" in done.stderr


def test_the_metadata_log_may_lie_elsewhere(kraft: KafkaFolders, tmp_path: Path) -> None:
    elsewhere = tmp_path / "metadata"
    elsewhere.mkdir()
    shutil.move(f"{kraft.paths[0]}/__cluster_metadata-0", elsewhere)
    assert plan_of(kraft)["source"] == "the folders alone"
    plan = plan_of(kraft, "--metadata-dir", str(elsewhere))
    assert plan["source"] == "Kafka's metadata log"
    done = adopt(kraft, "--metadata-dir", str(tmp_path))
    assert done.exit_code == 1
    assert "has no folder __cluster_metadata-0" in done.stderr


def test_a_folder_in_use_is_refused(kraft: KafkaFolders) -> None:
    # Locks exclude other descriptors, also those of this process.
    lock = Files(8).lock(f"{kraft.paths[1]}/.lock")
    try:
        done = adopt(kraft)
    finally:
        lock.close()
    assert done.exit_code == 1
    assert f"{kraft.paths[1]} is in use" in done.stderr
    assert adopt(kraft).exit_code == 0


def test_a_missing_folder_of_log_dirs_is_noticed(kraft: KafkaFolders) -> None:
    half = KafkaFolders(kraft.paths[:1], kraft.expected)
    plan = plan_of(half)
    assert "orders: partition 1 is not in these folders; they would be created empty" in plan["missing"]
    done = adopt(half, "--execute")
    assert done.exit_code == 1
    assert "--allow-missing goes on without them" in done.stderr
    assert not Path(half.paths[0], "ottla-store.journal").exists()
    assert adopt(half, "--execute", "--allow-missing").exit_code == 0
    assert b'"1":[1]' in store_of(half)[TopicNode.path("orders")]


def test_a_partition_of_another_topic_id_is_a_stray(kraft: KafkaFolders) -> None:
    path = next(Path(each) / "orders-1" for each in kraft.paths if (Path(each) / "orders-1").exists())
    (path / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg")
    plan = plan_of(kraft)
    assert plan["strays"] == [str(path)]
    assert topic_of(plan, "orders")["missing"] == [1]


def test_damage_is_named(kraft: KafkaFolders, tmp_path: Path) -> None:
    path = Path(kraft.paths[0]) / "orders-0" / "partition.metadata"
    path.write_text("version: 0\ntopic_id: x")
    plan = plan_of(kraft)
    assert plan["problems"] == [
        f"{path} does not hold a topic id in version 0; ottla log repair can restore it"
    ]
    done = adopt(kraft, "--execute", "--allow-missing")
    assert done.exit_code == 1
    assert "can't be taken over as they are" in done.stderr


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no meta.properties there"),
        ("version=2\ncluster.id=x\nnode.id=1\n", "must have version 0 or 1"),
        ("version=1\ncluster.id=x\nnode.id=one\n", "must have version 0 or 1"),
        ("version=1\nnode.id=1\n", "must have version 0 or 1"),
    ],
)
def test_folders_that_are_no_brokers(zookeeper: KafkaFolders, text: str | None, why: str) -> None:
    path = Path(zookeeper.paths[0]) / "meta.properties"
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    done = adopt(zookeeper)
    assert done.exit_code == 1
    assert why in done.stderr


def test_folders_of_different_brokers(kraft: KafkaFolders) -> None:
    path = Path(kraft.paths[1]) / "meta.properties"
    path.write_text(path.read_text().replace("node.id=1", "node.id=2"))
    done = adopt(kraft)
    assert done.exit_code == 1
    assert "different brokers (broker id)" in done.stderr


def test_a_partition_in_two_folders(kraft: KafkaFolders) -> None:
    source = next(Path(each) / "cut-0" for each in kraft.paths if (Path(each) / "cut-0").exists())
    other = next(each for each in kraft.paths if each != str(source.parent))
    shutil.copytree(source, f"{other}/cut-0")
    done = adopt(kraft)
    assert done.exit_code == 1
    assert "are the same partition" in done.stderr


def test_a_damaged_metadata_log(kraft: KafkaFolders) -> None:
    path = Path(kraft.paths[0]) / "__cluster_metadata-0" / f"{0:020d}.log"
    data = path.read_bytes()
    path.write_bytes(data[:-5])
    plan = plan_of(kraft)
    assert "the end of the metadata log" in plan["not_taken_over"][-1]
    path.rename(path.with_name(f"{9:020d}.log"))
    done = adopt(kraft)
    assert done.exit_code == 1
    assert "to take over topics without their settings" in done.stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(log, ["adopt", "--data-dir", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "is not a folder" in done.stderr


def test_a_folder_is_not_a_configuration(tmp_path: Path) -> None:
    done = CliRunner().invoke(log, ["adopt", str(tmp_path)])
    assert done.exit_code == 2
    assert f"{tmp_path} is a folder; name it with --data-dir {tmp_path}" in " ".join(done.stderr.split())


def put(folders: KafkaFolders, changes: dict[str, bytes | None]) -> None:
    """Change the store as a broker would, behind the last frame."""
    path = Path(folders.paths[0]) / "ottla-store.journal"
    loaded = journal.load(path)
    payload = journal.encode_changes([journal.Change(node, data) for node, data in changes.items()])
    with path.open("ab") as file:
        file.write(journal.encode_frame(loaded.number + 1, payload))


def test_the_store_is_newer_than_the_metadata_log_it_was_made_from(kraft: KafkaFolders) -> None:
    adopt(kraft, "--execute")
    put(kraft, {ConfigNode.path("topics", "cut"): ConfigNode.encode({"segment.bytes": "2000"})})
    done = adopt(kraft, "--execute")
    assert "nothing to do" in done.stderr
    assert "as Kafka has not run since it was made" in done.stdout
    assert ConfigNode.decode("", store_of(kraft)["/config/topics/cut"]) == {"segment.bytes": "2000"}


def test_kafka_has_run_since(kraft: KafkaFolders, tmp_path: Path) -> None:
    """Its metadata counts; epochs and producer ids don't go back; the old store is kept."""
    adopt(kraft, "--execute")
    state = "/brokers/topics/orders/partitions/0/state"
    before = json.loads(store_of(kraft)[state])
    put(
        kraft,
        {
            ConfigNode.path("topics", "cut"): ConfigNode.encode({"segment.bytes": "2000"}),
            state: json.dumps({**before, "leader_epoch": 41}).encode(),
            TopicNode.path("gone"): TopicNode.encode(bytes(range(16)), {}),
            "/ottla/adopted": b"another end",
            "/latest_producer_id_block": b'{"version":1,"broker":1,"block_start":"7000","block_end":"7999"}',
        },
    )
    done = adopt(kraft, "--execute")
    old = f"{kraft.paths[0]}/ottla-store.journal.1"
    assert f"the old one kept as {old}" in done.stderr
    assert TopicNode.path("gone") in read_journal(old)
    nodes = store_of(kraft)
    assert TopicNode.path("gone") not in nodes
    assert nodes["/ottla/last_leader_epochs/gone"] == b"0"
    assert ConfigNode.decode("", nodes["/config/topics/cut"]) == {"segment.bytes": "1000"}
    assert json.loads(nodes[state])["leader_epoch"] == 41
    block = ProducerIdBlockNode.decode(nodes["/latest_producer_id_block"])
    assert block is not None
    assert block.last == 7999


def test_settings_of_a_zookeeper_folder_come_from_an_earlier_store(zookeeper: KafkaFolders) -> None:
    adopt(zookeeper, "--execute")
    nodes = store_of(zookeeper)
    orders = TopicNode.decode("orders", nodes[TopicNode.path("orders")])[0]
    put(
        zookeeper,
        {
            ConfigNode.path("topics", "orders"): ConfigNode.encode({"retention.ms": "5"}),
            # A topic that was deleted, and one that was created again.
            TopicNode.path("gone"): TopicNode.encode(bytes(range(16)), {}),
            TopicNode.path("cut"): TopicNode.encode(bytes(range(16)), {}),
            ConfigNode.path("topics", "cut"): ConfigNode.encode({"retention.ms": "6"}),
        },
    )
    plan = plan_of(zookeeper)
    assert topic_of(plan, "orders")["configs"] == {"retention.ms": "5"}
    assert decode_uuid(topic_of(plan, "orders")["topic_id"]) == orders
    assert topic_of(plan, "cut")["configs"] == {"retention.ms": "-1", "retention.bytes": "-1"}
    assert [topic["topic"] for topic in plan["topics"]] == TOPICS


def test_a_damaged_store_is_refused(kraft: KafkaFolders) -> None:
    adopt(kraft, "--execute")
    path = Path(kraft.paths[0]) / "ottla-store.journal"
    path.write_bytes(b"something else")
    done = adopt(kraft)
    assert done.exit_code == 1
    assert "or move the file away" in done.stderr


def test_a_store_of_another_cluster_is_refused(kraft: KafkaFolders) -> None:
    adopt(kraft, "--execute")
    for folder in kraft.paths:
        path = Path(folder) / "meta.properties"
        path.write_text(path.read_text().replace(kraft.expected["cluster"], "4iskD9u3S02WZbim3fM7hA"))
    done = adopt(kraft)
    assert done.exit_code == 1
    assert "move the file away if the folder is Kafka's" in done.stderr


def test_two_stores(kraft: KafkaFolders) -> None:
    adopt(kraft, "--execute")
    shutil.copy(f"{kraft.paths[0]}/ottla-store.journal", kraft.paths[1])
    done = adopt(kraft)
    assert done.exit_code == 1
    assert "only one store may exist" in done.stderr
