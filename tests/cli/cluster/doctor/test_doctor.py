"""`ottla cluster doctor`: each check on made-up clusters, and the command on a real one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from harness.ports import free_port
from tests.badinput.requests import produce, records
from tests.cli.ottla_command import Ottla
from tests.support.metrics import address_of, get, scrape
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_cli.cluster.doctor import broker_pages
from ottla_cli.cluster.doctor.checks import DEAD_LETTERS, findings_of
from ottla_cli.cluster.doctor.command import described
from ottla_cli.cluster.doctor.descriptors import DESCRIPTORS, Descriptors
from ottla_cli.cluster.doctor.gathered import Gathered
from ottla_cli.cluster.doctor.share_deliveries import Deliveries, Dropped, LastDeliveries
from ottla_cli.cluster.state import ClusterState, look
from ottla_cli.groups.places import as_description
from ottla_cli.security.certificates import Validity
from ottla_cli.shared.findings import Finding
from ottla_client import AcknowledgeType
from ottla_client.admin import Admin as AsyncAdmin
from ottla_client.admin import (
    AlterConfig,
    ClusterDescription,
    ConfigResource,
    GroupDescription,
    HangingTransaction,
    LogDir,
    MemberDescription,
    NewTopic,
    PartialError,
    PartitionLag,
    ProducerState,
    ResourceType,
    TransactionDescription,
)
from ottla_client.errors import ConnectError, GroupError
from ottla_client.sync import Admin, Producer, ShareConsumer
from ottla_client.types import Node, OffsetAndMetadata, PartitionMetadata, TopicMetadata, TopicPartition
from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper
from ottla_protocol.errors import ErrorCode
from ottla_protocol.lag import unread

NOW = 1_700_000_000_000
P = TopicPartition("t", 0)
HEALTHY = {"cleanup.policy": "delete", "retention.ms": "604800000", "min.insync.replicas": "2"}


def node(number: int, rack: str | None = None) -> Node:
    return Node(number, f"b{number}", 9092, rack)


def topic(name: str, *partitions: tuple[int | None, tuple[int, ...], tuple[int, ...]]) -> TopicMetadata:
    """A topic whose partitions have these leaders, replicas and in-sync replicas."""
    found = {
        number: PartitionMetadata(number, leader, 0, replicas, isr)
        for number, (leader, replicas, isr) in enumerate(partitions)
    }
    return TopicMetadata(name, None, found)


def world(
    *topics: TopicMetadata,
    nodes: tuple[Node, ...] = (node(1), node(2), node(3)),
    controller: int | None = 1,
    minimums: Mapping[str, int] | None = None,
    folders: Mapping[int, tuple[LogDir, ...]] | None = None,
    **given: Any,
) -> Gathered:
    named = {each.name: each for each in topics or (topic("t", (1, (1, 2, 3), (1, 2, 3))),)}
    state = ClusterState(
        ClusterDescription("id", controller, nodes), named, minimums or {}, folders or {}, None
    )
    configs = dict.fromkeys(named, HEALTHY)
    return Gathered(state, NOW, **{"topic_configs": configs, **given})


def group(
    state: str = "Stable", members: tuple[str, ...] = ("m",), type: str = "classic"
) -> GroupDescription:
    return GroupDescription(
        "g",
        state,
        "consumer",
        "range",
        1,
        tuple(MemberDescription(each, None, each, "h") for each in members),
        type,
    )


def in_zookeeper(
    members: tuple[str, ...] = ("m",), owner: str | None = "m-0", committed: int | None = 5
) -> dict[str, GroupInZooKeeper]:
    owners = {} if owner is None else {P: owner}
    return {
        "g": GroupInZooKeeper(members, owners, {} if committed is None else {P: committed}, frozenset({"t"}))
    }


def lag(
    committed: int, end: int, seconds: float, start: int = 0
) -> dict[str, dict[TopicPartition, PartitionLag]]:
    return {
        "g": {
            P: PartitionLag(OffsetAndMetadata(committed), start, end, unread(committed, start, end), seconds)
        }
    }


def valid(days: int, begins: int = -100) -> Validity:
    """A certificate that is valid so many days from now on, and began so many days before."""
    now = datetime.fromtimestamp(NOW / 1000, UTC)
    return Validity(now + timedelta(days=begins), now + timedelta(days=days))


THREE = (1, 2, 3)
WITH_GROUP = {"groups": {"g": group()}}
HANGING = HangingTransaction(P, ProducerState(7, 0, 1, NOW, 0, 5))

CASES: list[tuple[str, Gathered, list[tuple[str, str]]]] = [
    ("healthy", world(), []),
    ("no controller", world(controller=None), [("critical", "controller")]),
    (
        "a broker is down",
        world(nodes=(node(1), node(2))),
        [("critical", "broker-down")],
    ),
    ("a broker doesn't answer", replace(world(), silent=[2]), [("critical", "broker-silent")]),
    (
        "offline",
        world(topic("t", (None, THREE, THREE))),
        [("critical", "offline")],
    ),
    (
        "below min isr",
        world(topic("t", (1, THREE, (1,))), minimums={"t": 2}),
        [("critical", "below-min-isr")],
    ),
    (
        "a broker's replicas are out of sync because it is down",
        world(
            topic("t", (1, THREE, (1, 2)), (1, THREE, (1, 2))),
            topic("u", (1, THREE, (1, 2))),
            topic("v", (1, THREE, (1,)), (2, (3, 2, 1), (2, 1))),
            nodes=(node(1), node(2)),
        ),
        [("critical", "broker-down"), ("warning", "under-replicated"), ("warning", "under-replicated")],
    ),
    ("under-replicated", world(topic("t", (1, THREE, (1, 2)))), [("warning", "under-replicated")]),
    ("not preferred", world(topic("t", (2, THREE, THREE))), [("warning", "preferred-leaders")]),
    (
        "skew",
        world(topic("t", *[(1, THREE, THREE)] * 12, *[(2, (2, 3, 1), THREE)] * 2)),
        [("warning", "leader-skew")],
    ),
    ("racks", world(nodes=(node(1, "a"), node(2, "b"), node(3))), [("warning", "racks")]),
    (
        "one rack",
        world(nodes=(node(1, "a"), node(2, "a"), node(3, "a"), node(4, "b"))),
        [("warning", "racks")],
    ),
    (
        "a failed folder",
        world(folders={1: (LogDir("/d", {}, error=56),)}),
        [("critical", "log-dir")],
    ),
    (
        "descriptors",
        world(descriptors={1: Descriptors(900, 1000), 2: Descriptors(799, 1000)}),
        [("warning", "descriptors")],
    ),
    ("no descriptors", world(descriptors={1: Descriptors(960, 1000)}), [("critical", "descriptors")]),
    ("full", world(folders={1: (LogDir("/d", {}, 100, 3),)}), [("critical", "disk")]),
    ("nearly full", world(folders={1: (LogDir("/d", {}, 100, 8),)}), [("warning", "disk")]),
    ("room", world(folders={1: (LogDir("/d", {}, 100, 50),)}), []),
    (
        "more min isr than replicas",
        world(topic_configs={"t": {**HEALTHY, "min.insync.replicas": "4"}}),
        [("warning", "min-isr")],
    ),
    (
        "min isr above the only replica",
        world(topic("t", (1, (1,), (1,))), topic_configs={"t": {**HEALTHY, "min.insync.replicas": "2"}}),
        [("warning", "replication"), ("note", "min-isr")],
    ),
    (
        "all of two replicas in sync, three wanted",
        world(topic("t", (1, (1, 2), (1, 2))), minimums={"t": 3}),
        [("warning", "min-isr")],
    ),
    (
        "as many min isr as replicas",
        world(topic_configs={"t": {**HEALTHY, "min.insync.replicas": "3"}}),
        [("warning", "min-isr")],
    ),
    (
        "one replica",
        world(topic("t", (1, (1,), (1,))), topic_configs={"t": {**HEALTHY, "min.insync.replicas": "1"}}),
        [("warning", "replication")],
    ),
    (
        "groups with one replica",
        world(
            topic("__consumer_offsets", (1, (1,), (1,))),
            topic_configs={},
        ),
        [("warning", "internal-replication")],
    ),
    (
        "retention below segments",
        world(topic_configs={"t": {**HEALTHY, "retention.ms": "1000", "segment.ms": "60000"}}),
        [("note", "retention")],
    ),
    (
        "unclean",
        world(topic_configs={"t": {**HEALTHY, "unclean.leader.election.enable": "true"}}),
        [("warning", "unclean-election")],
    ),
    (
        "large messages",
        world(
            topic_configs={"t": {**HEALTHY, "max.message.bytes": "5000000"}},
            broker_configs={"1": {"replica.fetch.max.bytes": "1048576"}},
        ),
        [("note", "message-size")],
    ),
    (
        "the defaults of messages",
        world(
            topic_configs={"t": {**HEALTHY, "max.message.bytes": "1048588"}},
            broker_configs={"1": {"replica.fetch.max.bytes": "1048576"}},
        ),
        [],
    ),
    (
        "brokers differ",
        world(broker_configs={"1": {"num.partitions": "1"}, "2": {"num.partitions": "3"}}),
        [("warning", "broker-configs")],
    ),
    (
        "rebalances",
        world(groups={"g": group("PreparingRebalance")}, later_groups={"g": group("CompletingRebalance")}),
        [("warning", "group-rebalances")],
    ),
    (
        "members replaced",
        world(**WITH_GROUP, later_groups={"g": group(members=("n",))}),
        [("warning", "group-rebalances")],
    ),
    (
        "stuck",
        world(**WITH_GROUP, lags=lag(5, 9, 100), later=lag(5, 12, 105)),
        [("warning", "group-stuck")],
    ),
    ("slow, but moving", world(**WITH_GROUP, lags=lag(5, 9, 100), later=lag(6, 12, 105)), []),
    ("just behind", world(**WITH_GROUP, lags=lag(5, 9, 2), later=lag(5, 12, 7)), []),
    (
        "lost records",
        world(**WITH_GROUP, lags=lag(5, 90, 10, start=20)),
        [("critical", "group-lost-records")],
    ),
    ("near retention", world(**WITH_GROUP, lags=lag(5, 90, 600_000)), [("critical", "group-near-retention")]),
    (
        "no members",
        world(groups={"g": group("Empty", ())}, lags=lag(5, 9, 5)),
        [("note", "group-without-members")],
    ),
    (
        "no members, and more records come",
        world(groups={"g": group("Empty", ())}, lags=lag(5, 9, 5), later=lag(5, 12, 10)),
        [("warning", "group-without-members")],
    ),
    (
        "beyond the end",
        world(groups={"g": group("Empty", ())}, lags=lag(9, 5, 0)),
        [("warning", "group-beyond-end")],
    ),
    (
        "a share group's start doesn't move",
        world(groups={"g": group(type="share")}, lags=lag(5, 9, 100), later=lag(5, 12, 105)),
        [("warning", "share-group-stuck")],
    ),
    (
        "a share group without members",
        world(groups={"g": group("Empty", (), "share")}, lags=lag(5, 9, 5)),
        [("note", "group-without-members")],
    ),
    (
        "the last deliveries",
        world(deliveries={1: Deliveries((LastDeliveries("g", P, 3, 7, 5),), ())}),
        [("warning", "share-group-last-delivery")],
    ),
    (
        "dropped records",
        world(deliveries={1: Deliveries((), (Dropped("g", P, 3, 9, False), Dropped("h", P, 1, 2, True)))}),
        [("warning", "share-group-dropped"), ("note", "share-group-dropped")],
    ),
    ("a group in ZooKeeper", world(in_zookeeper=in_zookeeper(), lags=lag(5, 9, 1)), []),
    (
        "a partition without an owner",
        world(in_zookeeper=in_zookeeper(owner=None)),
        [("warning", "zookeeper-group-unowned")],
    ),
    (
        "a partition that got its owner meanwhile",
        world(in_zookeeper=in_zookeeper(owner=None), later_in_zookeeper=in_zookeeper()),
        [],
    ),
    (
        "an owner that isn't there",
        world(in_zookeeper=in_zookeeper(owner="gone-0"), later_in_zookeeper=in_zookeeper(owner="gone-0")),
        [("warning", "zookeeper-group-owner-gone")],
    ),
    (
        "an owner that comes",
        world(in_zookeeper=in_zookeeper(owner="n-0"), later_in_zookeeper=in_zookeeper(("n",), "n-0")),
        [],
    ),
    (
        "nothing committed in ZooKeeper",
        world(
            in_zookeeper=in_zookeeper(committed=None), lags={"g": {P: PartitionLag(None, 0, 9, None, None)}}
        ),
        [("note", "zookeeper-group-uncommitted")],
    ),
    (
        "committed to Kafka",
        world(in_zookeeper=in_zookeeper(committed=None), **WITH_GROUP, lags=lag(9, 9, 0)),
        [],
    ),
    (
        "beyond the end, in ZooKeeper",
        world(
            groups={"g": as_description("g", in_zookeeper()["g"])},
            in_zookeeper=in_zookeeper(),
            lags=lag(9, 5, 0),
        ),
        [("warning", "group-beyond-end")],
    ),
    (
        "an open transaction, and a group that waits behind it",
        world(
            **WITH_GROUP,
            lags=lag(5, 9, 100),
            later=lag(5, 12, 105),
            open_transactions={
                "ledger": TransactionDescription(
                    "ledger", "Ongoing", 7, 0, 900_000, NOW - 120_000, frozenset({P}), 1
                )
            },
        ),
        [("warning", "open-transaction"), ("warning", "group-stuck")],
    ),
    ("hanging", world(hanging=[HANGING]), [("critical", "hanging-transaction")]),
    ("dead letters", world(dead_letters={"orders.dlq": 3}), [("warning", "dead-letters")]),
    ("old dead letters", world(dead_letters={"orders.dlq": 0}), []),
    ("clock", world(latest={P: NOW + 3_600_000}), [("warning", "clocks")]),
    (
        "certificates",
        world(certificates={"fine": valid(40), "soon": valid(29), "gone": valid(-1), "early": valid(90, 1)}),
        [
            ("critical", "certificate-expired"),
            ("critical", "certificate-not-yet-valid"),
            ("warning", "certificate-expires-soon"),
        ],
    ),
    (
        "in-sync replicas come and go",
        world(later_topics={"t": topic("t", (1, THREE, (1, 2))), "new": topic("new", (1, (1,), (1,)))}),
        [("warning", "isr-churn")],
    ),
]


@pytest.mark.parametrize(("seen", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_checks(seen: Gathered, expected: list[tuple[str, str]]) -> None:
    found = findings_of(seen)
    assert [(each.severity, each.check) for each in found] == expected
    for each in found:
        assert each.what.endswith((".", ")."))
        assert each.action
        assert isinstance(each, Finding)


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("orders-dead-letters", True),
        ("DeadLetter", True),
        ("orders.dlq", True),
        ("orders-dlt", True),
        ("dlq", True),
        ("orders", False),
        ("ballast", False),
        ("handlq", False),
    ],
)
def test_names_of_dead_letter_topics(name: str, is_one: bool) -> None:
    assert (DEAD_LETTERS.search(name) is not None) is is_one


def test_the_command(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    ottla = Ottla(broker.bootstrap)
    strict = new_topic(min_insync_replicas=2)
    letters = new_topic(prefix="t.dlq")
    with Wire(broker.port) as wire:
        assert produce(wire, letters, records(b"a", b"b", b"c"))[0] == 0
    name = new_name("unused")
    result = ottla.run("cluster", "doctor", "--interval", "0", "--group", name, "--json")
    document = json.loads(result.stdout)
    (remark,) = document["unchecked"]
    assert remark.startswith("file descriptors couldn't be checked: ")
    mine = {(each["check"], each["subject"]) for each in document["findings"]}
    assert {("min-isr", strict), ("dead-letters", letters)} <= mine
    text = ottla.run("cluster", "doctor", "--interval", "0", "--group", name)
    assert "min.insync.replicas is above 1 with one replica" in text.stdout
    assert "It got 3 records in the last hour." in text.stdout
    ottla("topics", "delete", strict, letters, "--yes")


class Answers:
    """A server that answers every request with one document."""

    def __init__(self, status: str, document: object) -> None:
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self._answer = b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self._answer)
        await writer.drain()
        writer.close()


PROCESS = {"broker_id": 1, "cluster_id": "id", "open_descriptors": 57, "max_descriptors": 1024}


@pytest.mark.parametrize(
    ("status", "document", "remark"),
    [
        ("200 OK", PROCESS, ""),
        ("200 OK", {**PROCESS, "max_descriptors": None}, ""),
        ("200 OK", {**PROCESS, "broker_id": 2}, "another broker serves http://127.0.0.1:"),
        ("200 OK", {**PROCESS, "cluster_id": "other"}, "another broker serves http://127.0.0.1:"),
        ("200 OK", b"[1]", "is no page of a broker"),
        ("200 OK", {**PROCESS, "open_descriptors": "many"}, "is no page of a broker"),
        ("503 Service Unavailable", b"the broker is starting\n", "/health/process answers 503"),
    ],
)
async def test_a_brokers_descriptors(status: str, document: object, remark: str) -> None:
    async with Answers(status, document) as port:
        asked = await broker_pages.ask(
            DESCRIPTORS, [Node(1, "127.0.0.1", 9092)], {1: f"0.0.0.0:{port}"}, "id"
        )
    expected = Descriptors(57, 1024) if document is PROCESS else None
    assert asked.found.get(1) == expected
    assert asked.without == []
    if remark:
        (said,) = asked.remarks
        assert said.startswith("file descriptors of broker 1 couldn't be checked: ")
        assert remark in said
    else:
        assert asked.remarks == []


async def test_groups_that_cannot_be_described_are_said() -> None:
    class Refusing:
        async def describe_groups(self, names: Collection[str]) -> None:
            errors = {
                "gone": GroupError(ErrorCode.GROUP_ID_NOT_FOUND, "gone"),
                "away": GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "its coordinator is away"),
            }
            raise PartialError("describe groups", {}, errors)

    seen = world()
    assert await described(cast(AsyncAdmin, Refusing()), seen, ["gone", "away"]) == {}
    assert seen.unchecked == ["1 group couldn't be described: its coordinator is away"]


@pytest.mark.parametrize(("alive", "remarks"), [((1,), 0), ((1, 2), 1)])
async def test_a_broker_that_ends_during_the_look_is_a_finding_not_a_remark(
    alive: tuple[int, ...], remarks: int
) -> None:
    class Cluster:
        async def describe_log_dirs(self, brokers: None, timeout: float) -> None:
            raise PartialError("describe log directories", {1: ()}, {2: ConnectError("2 is gone")})

        async def describe_cluster(self) -> ClusterDescription:
            return ClusterDescription("id", 1, tuple(map(node, alive)))

        async def list_topics(self, include_internal: bool) -> dict[str, TopicMetadata]:
            return {}

        async def list_partition_reassignments(self) -> dict[TopicPartition, Any]:
            return {}

    assert len((await look(cast(AsyncAdmin, Cluster()))).remarks) == remarks


async def test_brokers_without_descriptors() -> None:
    nodes = [Node(number, "127.0.0.1", 9092) for number in (1, 2, 3, 4)]
    asked = await broker_pages.ask(DESCRIPTORS, nodes, {1: "", 2: "", 4: "127.0.0.1:9"}, "id")
    assert (asked.found, asked.without, len(asked.remarks)) == ({}, [1, 2], 1)
    assert "isn't set on brokers 1-2" in str(broker_pages.why_not("x", [1, 2], []))
    assert "by JMX alone" in str(broker_pages.why_not("x", [1], [3]))
    assert broker_pages.why_not("x", [], []) is None


def test_drain_is_advised_only_if_enough_brokers_remain() -> None:
    for nodes, possible in (((1, 2), False), ((1, 2, 4), True)):
        found = findings_of(world(nodes=tuple(map(node, nodes))))
        (down,) = (each for each in found if each.check == "broker-down")
        assert ("ottla cluster drain 3" in down.action) is possible, down


@pytest.mark.ottla_only
def test_the_descriptors_of_a_broker(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings={"metrics.listener": f"127.0.0.1:{free_port()}"})
    status, text, _ = get(address_of(broker), "/health/process")
    process = json.loads(text)
    assert (status, process["broker_id"]) == (200, 1001)
    assert 3 < process["open_descriptors"] < process["max_descriptors"]
    assert process["resident_bytes"] > 1_000_000
    document = json.loads(
        Ottla(broker.bootstrap).run("cluster", "doctor", "--interval", "0", "--json").stdout
    )
    assert document["unchecked"] == []
    assert "descriptors" not in {each["check"] for each in document["findings"]}


@pytest.mark.ottla_only
def test_a_share_group_that_drops_a_record(
    own_broker: Callable[..., BrokerProcess], new_name: Callable[..., str]
) -> None:
    broker = own_broker(settings={"metrics.listener": f"127.0.0.1:{free_port()}"})
    name = new_name("share")
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topics([NewTopic("t")])
        producer.send("t", b"poison")
        producer.flush()
        changes = [
            AlterConfig("share.auto.offset.reset", "earliest"),
            AlterConfig("share.delivery.count.limit", 2),
        ]
        admin.alter_configs({ConfigResource(ResourceType.GROUP, name): changes})

    def findings() -> dict[str, dict[str, str]]:
        result = Ottla(broker.bootstrap).run("cluster", "doctor", "--interval", "0", "--json")
        return {each["check"]: each for each in json.loads(result.stdout)["findings"]}

    options = {"group_id": name, "share_acknowledgement_mode": "explicit"}
    with ShareConsumer("t", bootstrap_servers=broker.bootstrap, **options) as consumer:
        for deliveries in (1, 2):
            (record,) = wait_for(lambda: consumer.poll(1), "the record")
            assert record.delivery_count == deliveries
            if deliveries == 2:
                found = findings()["share-group-last-delivery"]
                assert "1 record of t-0, from offset 0 on" in found["what"]
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
            consumer.commit_sync()
    lost = findings()["share-group-dropped"]
    assert lost["subject"] == f"group {name}"
    assert "dropped 1 record in the last hour: the last one is t-0, offset 0" in lost["what"]
    assert "ottla consume t -p 0 --from 0 -n 1 shows it" in lost["action"]
    scraped = scrape(broker)
    assert scraped("ottla_share_group_dropped_records_total", group=name, reason="deliveries") == 1
    acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    assert scraped(acknowledged, group=name, ackType="release") == 2
