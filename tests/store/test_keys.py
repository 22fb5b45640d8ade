"""The nodes against what Apache Kafka 3.9.1 itself encodes (``kafka.zk.ZkData``)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from ottla_broker.store import keys

TOPIC_ID = bytes.fromhex("0123456789abcdeffedcba9876543210")

KAFKA = {
    "uuid": "ASNFZ4mrze_-3LqYdlQyEA",
    "cluster": '{"version":"1","id":"abcdefghijklmnopqrstuv"}',
    "controller": '{"version":2,"brokerid":7,"timestamp":"1234567890123","kraftControllerEpoch":-1}',
    "epoch": "42",
    "topic": (
        '{"partitions":{"0":[1,2],"1":[1,2]},"topic_id":"ASNFZ4mrze_-3LqYdlQyEA","adding_replicas":'
        '{"0":[2]},"removing_replicas":{},"version":3}'
    ),
    "state": '{"controller_epoch":9,"leader":1,"version":1,"leader_epoch":5,"isr":[1,2]}',
    "config": '{"version":1,"config":{"retention.ms":"1000"}}',
    "producer": '{"version":1,"broker":3,"block_start":"1000","block_end":"1999"}',
    "broker": (
        '{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PL'
        'AINTEXT://h:9092"],"rack":"r1","jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp'
        '":"1795270156218"}'
    ),
}


def same(ours: bytes, name: str) -> None:
    assert json.loads(ours) == json.loads(KAFKA[name])


def test_uuids() -> None:
    assert keys.encode_uuid(TOPIC_ID) == KAFKA["uuid"]
    assert keys.decode_uuid(KAFKA["uuid"]) == TOPIC_ID
    with pytest.raises(ValueError, match="16 bytes"):
        keys.decode_uuid("AAAA")


def test_cluster_id() -> None:
    same(keys.ClusterIdNode.encode("abcdefghijklmnopqrstuv"), "cluster")
    assert keys.ClusterIdNode.decode(KAFKA["cluster"].encode()) == "abcdefghijklmnopqrstuv"


def test_controller() -> None:
    same(keys.ControllerNode.encode(7, 1234567890123), "controller")
    assert keys.ControllerNode.decode(KAFKA["controller"].encode()) == 7
    assert keys.ControllerEpochNode.encode(42).decode() == KAFKA["epoch"]
    assert keys.ControllerEpochNode.decode(b"42") == 42


def test_topic() -> None:
    assignments = {0: keys.Assignment([1, 2], [2]), 1: keys.Assignment([1, 2])}
    same(keys.TopicNode.encode(TOPIC_ID, assignments), "topic")
    topic_id, found = keys.TopicNode.decode("t", KAFKA["topic"].encode())
    assert topic_id == TOPIC_ID
    assert {i: (list(a.replicas), list(a.adding), list(a.removing)) for i, a in found.items()} == {
        0: ([1, 2], [2], []),
        1: ([1, 2], [], []),
    }


def test_topics_of_older_versions() -> None:
    assert keys.TopicNode.decode("t", b'{"version":1,"partitions":{"10":[1],"9":[1]}}') == (
        None,
        {9: keys.Assignment([1]), 10: keys.Assignment([1])},
    )


def test_partition_state() -> None:
    state = keys.PartitionState(1, 5, [1, 2], 9)
    same(keys.TopicPartitionStateNode.encode(state), "state")
    assert keys.TopicPartitionStateNode.decode("/p", KAFKA["state"].encode()) == state


def test_configs() -> None:
    same(keys.ConfigNode.encode({"retention.ms": "1000"}), "config")
    assert keys.ConfigNode.decode("/c", KAFKA["config"].encode()) == {"retention.ms": "1000"}
    assert keys.ConfigNode.decode("/c", b"") == {}


def test_producer_id_block() -> None:
    block = keys.ProducerIdBlock(3, 1000, 1999)
    same(keys.ProducerIdBlockNode.encode(block), "producer")
    assert keys.ProducerIdBlockNode.decode(KAFKA["producer"].encode()) == block
    assert keys.ProducerIdBlockNode.decode(b"") is None


def test_broker() -> None:
    broker = keys.BrokerRegistration("h", 9092, ["PLAINTEXT://h:9092"], {"PLAINTEXT": "PLAINTEXT"}, "r1", 5)
    ours = json.loads(keys.BrokerIdNode.encode(broker))
    theirs = json.loads(KAFKA["broker"])
    assert ours.pop("timestamp") == "5"
    del theirs["timestamp"]
    assert ours == theirs
    assert keys.BrokerIdNode.decode(1, KAFKA["broker"].encode())._replace(timestamp_ms=5) == broker


def test_last_epoch() -> None:
    assert keys.LastEpochNode.decode("t", keys.LastEpochNode.encode(7)) == 7


@pytest.mark.parametrize("decode", [keys.BrokerIdNode.decode, keys.CoordinatorListenerNode.decode])
def test_infinite_numbers_name_the_node(decode: Callable[..., object]) -> None:
    data = b'{"version":4,"timestamp":1e999,"host":"h","port":1e999,"endpoints":["PLAINTEXT://h:1"]}'
    with pytest.raises(keys.BadNodeError):
        decode(1 if decode is keys.BrokerIdNode.decode else "/p", data)


def test_an_offset_has_64_bits() -> None:
    assert keys.ConsumerOffsetNode.decode("/p", b"9223372036854775807") == 2**63 - 1
    for bad in (b"9223372036854775808", b"-9223372036854775809", b"9" * 5000, b""):
        with pytest.raises(keys.BadNodeError, match="/p"):
            keys.ConsumerOffsetNode.decode("/p", bad)


def test_a_name_is_a_number_of_32_bits() -> None:
    names = ["0", "12", "2147483647", "2147483648", "9" * 5000, "-1", "a", "", "\u0663", "\u00b2"]
    assert [keys.decimal(name) for name in names] == [0, 12, 2**31 - 1, *[None] * 7]


@pytest.mark.parametrize(
    "replicas", ["5", "null", "[1.5]", "[{}]", '["1"]', "[true]", "[2147483648]", "[-2147483649]"]
)
@pytest.mark.parametrize("kind", ["partitions", "adding_replicas", "removing_replicas"])
def test_replicas_that_no_request_can_carry(kind: str, replicas: str) -> None:
    lists = {"partitions": '{"0":[1]}', kind: f'{{"0":{replicas}}}'}
    data = "{" + ",".join(f'"{name}":{value}' for name, value in lists.items()) + "}"
    with pytest.raises(keys.BadNodeError, match="assignment"):
        keys.TopicNode.decode("t", data.encode())


def test_a_partition_has_a_replica() -> None:
    with pytest.raises(keys.BadNodeError, match="assignment"):
        keys.TopicNode.decode("t", b'{"partitions":{"0":[]}}')


@pytest.mark.parametrize("partition", ["99999999999", "2147483648", "-1", "x"])
def test_partitions_that_no_request_can_carry(partition: str) -> None:
    with pytest.raises(keys.BadNodeError, match="assignment"):
        keys.TopicNode.decode("t", f'{{"partitions":{{"{partition}":[1]}}}}'.encode())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leader", "2147483648"),
        ("leader", '"1"'),
        ("isr", "[1,null]"),
        ("isr", "1"),
        ("leader_epoch", "1.0"),
        ("leader_epoch", "2147483647"),
    ],
)
def test_a_state_that_no_request_can_carry(name: str, value: str) -> None:
    given = {"leader": "1", "leader_epoch": "1", "isr": "[1]", "controller_epoch": "1", name: value}
    data = "{" + ",".join(f'"{each}":{text}' for each, text in given.items()) + "}"
    with pytest.raises(keys.BadNodeError, match="state"):
        keys.TopicPartitionStateNode.decode("/p", data.encode())


@pytest.mark.parametrize(
    "more",
    [
        '"endpoints":[7]',
        '"endpoints":[],"rack":7',
        f'"endpoints":["{"x" * 40_000}"]',
        '"endpoints":[],"listener_security_protocol_map":{"A":[]}',
    ],
)
def test_a_registration_that_no_request_can_carry(more: str) -> None:
    data = '{"version":5,"timestamp":"1","host":"h","port":1,' + more + "}"
    with pytest.raises(keys.BadNodeError, match="registration"):
        keys.BrokerIdNode.decode(1, data.encode())


@pytest.mark.parametrize(
    "decode",
    [
        keys.ClusterIdNode.decode,
        keys.ControllerNode.decode,
        keys.ControllerEpochNode.decode,
        keys.ProducerIdBlockNode.decode,
        lambda data: keys.BrokerIdNode.decode(1, data),
        lambda data: keys.TopicNode.decode("t", data),
        lambda data: keys.TopicPartitionStateNode.decode("/p", data),
        lambda data: keys.ConfigNode.decode("/c", data),
        lambda data: keys.LastEpochNode.decode("t", data),
    ],
)
@pytest.mark.parametrize(
    "data",
    [b"{", b"[]", b'{"config":1,"partitions":{"a":[]},"timestamp":[]}', b"\xff", b'{"a":' + b"[" * 100_000],
)
def test_nonsense_names_the_node(decode: object, data: bytes) -> None:
    assert callable(decode)
    with pytest.raises(keys.BadNodeError, match=r"^/"):
        decode(data)
