"""Attacks on a secured broker of a cluster, each by a stranger and by a user of few rights.

A stranger's connection is closed without an answer. Mallory may use one topic, one group and one transactional id: what
isn't hers is refused, the rest takes limited time and memory. Neither changes anything. Attacks on an open broker are
in tests/badinput; what strangers send before a login is in ``test_strangers``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harness.ports import free_port
from tests.badinput.hostile import attacks
from tests.badinput.hostile_check import LONGEST_HOLD, MiB
from tests.badinput.requests import (
    crowded_batch,
    fetch_request,
    now_ms,
    produce_answer,
    produce_request,
    records,
)
from tests.badinput.test_groups import join_request
from tests.support import acl_matrix
from tests.support.acl_matrix import binding, forbidden
from tests.support.acl_rows import G, T, X
from tests.support.cluster import QUICK
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, frame, plain_login, request_bytes
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.handlers.index import INDEX
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.describe_acls import DescribeAclsRequest
from ottla_protocol.messages.describe_cluster import DescribeClusterRequest
from ottla_protocol.messages.end_txn import EndTxnRequest
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from ottla_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_fetch import OffsetFetchRequest
from ottla_protocol.messages.update_metadata import (
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla_protocol.records.batch import write_crc
from ottla_protocol.registry import request_class, response_class

pytestmark = pytest.mark.ottla_only

C = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
RIGHTS = (
    *(f"{operation} Topic:hers" for operation in ("Read", "Write")),
    *(f"{operation} Group:hers" for operation in ("Read", "Delete")),
    "Write TransactionalId:hers",
)
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required user_mallory=secret;"
_ZERO = ErrorCode.NONE


class Attack(NamedTuple):
    """A request, without its size, and the error codes of its answer to Mallory.

    ``None``: it is answered within limits, or its connection is closed.
    """

    name: str
    request: Callable[[], bytes]
    codes: set[ErrorCode] | None


def _of(message: Any, version: int, client_id: str = "mallory") -> Callable[[], bytes]:
    return lambda: request_bytes(message, version, client_id=client_id)[4:]


def _many(key: ApiKey, version: int, count: int, *path: str, **given: Any) -> Callable[[], bytes]:
    """The request with very many elements in one of its arrays; without ``path``, the last one."""
    found = list(attacks(key, version, **given))
    chosen = next((each for each in found if each.path == path), found[-1])
    return lambda: chosen.request(count)


def _commands() -> Iterator[Attack]:
    """C1: a client that calls itself the controller, or a broker."""
    own = {"controller_id": 1, "controller_epoch": 1000, "broker_id": 1, "broker_epoch": -1}
    for key, served in INDEX.items():
        api = ApiKey(key)
        if served.in_clusters and any(attacks(api, served.max_version)):
            yield Attack(api.name, _many(api, served.max_version, 3, **own), {C})
    yield Attack("CONTROLLED_SHUTDOWN", _of(ControlledShutdownRequest(broker_id=1), 3), {C})
    yield Attack(
        "ALLOCATE_PRODUCER_IDS",
        _of(request_class(ApiKey.ALLOCATE_PRODUCER_IDS, 0)(broker_id=1), 0),
        {C},
    )
    yield Attack("fetch as a replica", _of(fetch_request("hers", 0, replica_id=1), 12), {T})
    yield Attack(
        "share coordinator", _of(FindCoordinatorRequest(coordinator_keys=["g:t:0"], key_type=2), 6), {C}
    )
    yield Attack("WRITE_TXN_MARKERS", _many(ApiKey.WRITE_TXN_MARKERS, 1, 3), {C})
    yield Attack("verify a transaction", _many(ApiKey.ADD_PARTITIONS_TO_TXN, 5, 3), {C})


def _traversals() -> Iterator[Attack]:
    """C2: names that are paths, and indexes of billions."""
    for name in ("../../x", "/tmp/x", "a b\n", "x" * 300):
        state = LeaderAndIsrPartitionState(leader=1, isr=[1], replicas=[1], is_new=True)
        topic = LeaderAndIsrTopicState(topic_name=name, topic_id=b"x" * 16, partition_states=[state])
        order = LeaderAndIsrRequest(controller_id=1, controller_epoch=1000, topic_states=[topic])
        yield Attack(f"LeaderAndIsr of {name[:9]!r}", _of(order, 7), {C})
        made = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        yield Attack(f"CreateTopics of {name[:9]!r}", _of(CreateTopicsRequest(topics=[made]), 7), {T})
        yield Attack(f"Produce to {name[:9]!r}", _of(produce_request(name, bytes(records(b"v"))), 9), {T})
    for index in (2_000_000, 2**31 - 1, -1):
        place = UpdateMetadataPartitionState(partition_index=index, leader=1, isr=[1], replicas=[1])
        known = UpdateMetadataTopicState(topic_name="hers", topic_id=b"x" * 16, partition_states=[place])
        news = UpdateMetadataRequest(controller_id=1, controller_epoch=1000, topic_states=[known])
        yield Attack(f"UpdateMetadata of {index}", _of(news, 8), {C})


def _changed(at: int, form: str, *values: int) -> bytes:
    """A batch with another number in its header."""
    batch = records(b"v")
    struct.pack_into(form, batch, at, *values)
    write_crc(batch, 0, len(batch))
    return bytes(batch)


def _batches() -> Iterator[Attack]:
    """C3, H1: batches that are bombs, or lie."""
    bomb = crowded_batch(300_000, now_ms())
    yield Attack("a bomb", _of(produce_request("hers", bomb), 9), {_ZERO})
    asked = ListOffsetsPartition(partition_index=0, timestamp=-3)
    topic = ListOffsetsTopic(name="hers", partitions=[asked])
    yield Attack("looking into a bomb", _of(ListOffsetsRequest(replica_id=-1, topics=[topic]), 8), {_ZERO})
    yield Attack("a bomb for another topic", _of(produce_request("others", bomb), 9), {T})
    lies = _changed(23, ">i", 2**31 - 2), _changed(57, ">i", 2**31 - 1), _changed(23, ">i", -5)
    for number, batch in enumerate(lies):
        code = (
            {ErrorCode.INVALID_RECORD}
            if number < 2
            else {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}
        )
        yield Attack(f"a lying batch {number}", _of(produce_request("hers", batch), 9), code)
    yield Attack(
        "committed offsets by a name",
        _of(produce_request("__consumer_offsets", bytes(records(b"v"))), 9, "__admin_client"),
        {T},
    )


def _elements() -> Iterator[Attack]:
    """H2, M4: very many elements."""
    k = ApiKey
    yield Attack("metadata of many names", _many(k.METADATA, 12, 30_000, "topics"), {T})
    yield Attack(
        "automatic creation",
        _of(
            MetadataRequest(
                topics=[MetadataRequestTopic(name=f"auto-{number}") for number in range(1000)],
                allow_auto_topic_creation=True,
            ),
            12,
        ),
        {T},
    )
    yield Attack("produce to many topics", _many(k.PRODUCE, 9, 7_000, "topic_data"), None)
    member = {"group_id": "hers", "session_timeout_ms": 6_000, "protocol_type": "consumer"}
    yield Attack("protocols of a member", _many(k.JOIN_GROUP, 9, 900, "protocols", **member), None)
    yield Attack("offsets of one group, often", _many(k.OFFSET_FETCH, 9, 10_000, "groups"), {G})
    yield Attack("one broker, often", _many(k.DESCRIBE_CONFIGS, 4, 5_000, "resources"), None)
    yield Attack("records to delete", _many(k.DELETE_RECORDS, 2, 20_000, "topics", "partitions"), {T})
    yield Attack("groups to describe", _many(k.DESCRIBE_GROUPS, 5, 20_000, "groups"), {G})
    yield Attack("rules to add", _many(k.CREATE_ACLS, 3, 4_500), {C})
    yield Attack(
        "a header of tags",
        lambda: struct.pack(">hhih", 3, 12, 7, -1) + b"\xff\xff\x3f" + bytes(3_000_000),
        None,
    )
    yield Attack("a long client id", _of(join_request("hers"), 3, "c" * 32_767), None)
    yield Attack("control characters", _of(join_request("hers"), 3, "\x1b[31m\x1b]0;x\x07\n{}"), None)


def _others() -> Iterator[Attack]:
    """What belongs to others."""
    every = DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1,
        resource_name_filter=None, principal_filter=None, host_filter=None,
    )  # fmt: skip
    yield Attack("reading the rules", _of(every, 3), {C})
    yield Attack("ending another's transaction", _of(EndTxnRequest(transactional_id="others"), 3), {X})
    yield Attack("joining another's group", _of(join_request("others"), 5), {G})
    yield Attack("reading another's topic", _of(fetch_request("others", 0), 12), {T})
    yield Attack("reading committed offsets", _of(fetch_request("__consumer_offsets", 0), 12), {T})


ATTACKS = [*_commands(), *_traversals(), *_batches(), *_elements(), *_others()]


class Secured:
    """The only broker of a cluster: Mallory's listener needs a login, the brokers' own is on this machine."""

    def __init__(self, folder: Path, zookeeper: str) -> None:
        self.outer = free_port()
        self.folder = folder
        self.process = WatchedBroker(
            folder / "data",
            {
                **QUICK,
                "zookeeper.connect": f"{zookeeper}/attackers",
                "broker.id": 1,
                "listener.security.protocol.map": "INNER:PLAINTEXT,OUTER:SASL_PLAINTEXT",
                "inter.broker.listener.name": "INNER",
                "sasl.enabled.mechanisms": "PLAIN",
                "listener.name.outer.plain.sasl.jaas.config": _LOGIN,
                "connection.failed.authentication.delay.ms": 0,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:ANONYMOUS",
                "max.connections": 60,
                "offsets.topic.replication.factor": 1,
            },
        )
        self.process.settings["listeners"] = (
            f"INNER://{self.process.bootstrap},OUTER://127.0.0.1:{self.outer}"
        )

    def mallory(self) -> Wire:
        return plain_login(self.outer, "mallory", "secret")

    def topics(self) -> set[str]:
        with Wire(self.process.port) as wire:
            answer = wire.call(MetadataRequest(topics=None, allow_auto_topic_creation=False), 9)
        return {topic.name for topic in answer.topics if not topic.is_internal}

    def others_are_served(self) -> None:
        with Wire(self.process.port) as wire:
            assert wire.call(DescribeClusterRequest(), 0).controller_id == 1
            answer = produce_answer(wire, "others", bytes(records(b"v")))
            assert answer.error_code == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("attackers"), zookeeper.address)
    with made.process as process:
        with Wire(process.port) as wire:
            wait_for(lambda: wire.call(DescribeClusterRequest(), 0).controller_id == 1, "a controller")
            for topic in ("hers", "others"):
                create_topic(process, topic)
            acl_matrix.create(wire, [binding(right, "User:mallory", "*") for right in RIGHTS])
            find = FindCoordinatorRequest(key="hers", key_type=0)
            wait_for(lambda: wire.call(find, 3).error_code == 0, "a coordinator")
            group = OffsetFetchRequest(group_id="hers", topics=[])
            wait_for(lambda: wire.call(group, 7).error_code == 0, "the group's coordinator to have loaded")
        # The first of each kind imports what it needs.
        made.mallory().close()
        with Wire(made.outer) as stranger:
            assert _answer(stranger, request_bytes(group, 7)[4:]) is None
        yield made
        made.others_are_served()
        assert made.topics() == {"hers", "others"}
        assert {path.name for path in made.folder.iterdir()} == {"data", "data.log", "watched"}
        assert "\x1b" not in process.log()
        assert process.complaints() == []


def _codes(answer: Any) -> set[ErrorCode]:
    found = {ErrorCode(code) for code in acl_matrix._codes(answer)}
    return forbidden(answer) or (found - {_ZERO}) or found


def _answer(wire: Wire, request: bytes) -> set[ErrorCode] | None:
    """The error codes of the answer, without 0 if there are others; None if the connection is closed."""
    try:
        wire.send(frame(request))
        data = wire.receive()
    except ConnectionError:
        return None
    key, version = struct.unpack_from(">hh", request)
    _, position = parse_response_header(data, key, version)
    return _codes(response_class(key).decode(data, version, position))


@pytest.mark.parametrize("login", [False, True], ids=["stranger", "mallory"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack(broker: Secured, attack: Attack, login: bool) -> None:
    process, request = broker.process, attack.request()
    with broker.mallory() if login else Wire(broker.outer) as wire:
        before = process.memory("VmRSS")
        process.watch()
        codes = _answer(wire, request)
        with Wire(process.port) as other:
            other.call(DescribeClusterRequest(), 0)
        held, grown = process.hold(), process.memory("VmHWM") - before
    print(
        f"{attack.name:40} {codes} held {held * 1000:.1f} ms, {grown / MiB:.1f} MiB of {len(request)} bytes"
    )
    assert held < LONGEST_HOLD
    assert grown <= 4 * len(request) + 16 * MiB
    if not login:
        assert codes is None
    elif attack.codes is not None:
        assert codes is not None
        assert codes <= attack.codes


@pytest.mark.parametrize("login", [False, True], ids=["stranger", "mallory"])
def test_announced_sizes_take_no_memory(broker: Secured, login: bool) -> None:
    """H3: four bytes that announce 100 MiB."""
    with ExitStack() as stack:
        wires = [stack.enter_context(broker.mallory() if login else Wire(broker.outer)) for _ in range(20)]
        before = broker.process.memory("VmRSS")
        broker.process.watch()
        for wire in wires:
            wire.send(struct.pack(">i", 100 * MiB))
        broker.others_are_served()
        assert broker.process.hold() < LONGEST_HOLD
        assert broker.process.memory("VmHWM") - before < 16 * MiB
        assert login or all(wire.is_closed() for wire in wires)


@pytest.mark.parametrize("login", [False, True], ids=["stranger", "mallory"])
def test_idle_connections_leave_room_for_brokers(broker: Secured, login: bool) -> None:
    """H4, and the limit of connections: the brokers' own listener is exempt, as in Kafka."""
    with ExitStack() as stack:
        for number in range(100):
            logged_in = login and number < 40
            stack.enter_context(broker.mallory() if logged_in else Wire(broker.outer))
        broker.others_are_served()
