"""Members' nodes and topic filters."""

from __future__ import annotations

import json

import pytest

from ottla_client import Blacklist, Whitelist
from ottla_client.errors import BadNodeError, ConfigurationError
from ottla_client.zookeeper_consumer.paths import read_address, read_offset, read_partitions
from ottla_client.zookeeper_consumer.subscription import Subscription


def test_a_members_node_is_kafkas() -> None:
    node = json.loads(Subscription.to_topics({"orders": 2}).encode(1_353_000_000_000))
    assert node == {
        "version": 1,
        "subscription": {"orders": 2},
        "pattern": "static",
        "timestamp": "1353000000000",  # a text: Kafka 0.8 reads numbers as 32 bits
    }


@pytest.mark.parametrize("topics", [Whitelist("a.*|b"), Blacklist("a.*"), None])
def test_nodes_survive_the_journey(topics: object) -> None:
    made = Subscription.to_topics({"a": 1, "b": 3})
    if topics is not None:
        made = Subscription.by_filter(topics, 2)  # type: ignore[arg-type]
    assert Subscription.decode("/path", made.encode(1)) == made


def test_filters() -> None:
    internal = ["__consumer_offsets", "__share_group_state", "__transaction_state"]
    known = ["orders", "orders.old", *internal, "clicks"]
    white = Subscription.by_filter(Whitelist("'orders, clicks'"), 2)
    assert white.topics(known, exclude_internal=True) == {"orders": 2, "clicks": 2}
    black = Subscription.by_filter(Blacklist("orders.*"), 1)
    assert black.topics(known, exclude_internal=True) == {"clicks": 1}
    assert black.topics(known, exclude_internal=False) == dict.fromkeys([*internal, "clicks"], 1)
    with pytest.raises(ConfigurationError, match="regular expression"):
        Whitelist("a(")


def test_expressions_that_would_take_python_hours() -> None:
    """Of another member, whose node anyone may write. Java's look-ahead, which RE2 lacks, works as well."""
    node = b'{"version":1,"subscription":{"(a+)+b":1},"pattern":"white_list","timestamp":"1"}'
    explosive = Subscription.decode("/consumers/g/ids/c", node)
    known = ["a" * 200, "a" * 200 + "b"]
    assert explosive.topics(known, exclude_internal=True) == {known[1]: 1}
    ahead = Subscription.by_filter(Whitelist("(?!test).*"), 1)
    assert ahead.topics(["test.a", "live"], exclude_internal=True) == {"live": 1}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"subscription":{"a":"x"},"pattern":"static"}',
        b'{"subscription":{"a":0},"pattern":"static"}',
        b'{"subscription":{"a":1000000000},"pattern":"static"}',
        b'{"subscription":{"a":1e999},"pattern":"static"}',
        b'{"subscription":{"a":1}}',
        b'{"subscription":{"a(":1},"pattern":"white_list"}',
        b'{"subscription":["a"],"pattern":"static"}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_bad_members_are_named(data: bytes) -> None:
    with pytest.raises(BadNodeError, match="/consumers/g/ids/c"):
        Subscription.decode("/consumers/g/ids/c", data)


def test_addresses_of_all_versions_of_kafka() -> None:
    of_0_8 = b'{"jmx_port":-1,"timestamp":"1","host":"h","version":1,"port":9092}'
    of_0_9 = b'{"endpoints":["PLAINTEXT://h:9092","SSL://h:9093"],"host":"h","version":2,"port":9092}'
    of_3_9 = (
        b'{"listener_security_protocol_map":{"IN":"PLAINTEXT","OUT":"SSL"},"endpoints":["IN://h:1","OUT://h:2"],'
        b'"host":"h","version":5,"port":1}'
    )
    for node, expected in ((of_0_8, "h:9092"), (of_0_9, "h:9092"), (of_3_9, "h:1")):
        assert read_address("/brokers/ids/1", node, "PLAINTEXT") == expected
    assert read_address("/p", of_3_9, "SSL") == "h:2"
    assert read_address("/p", of_0_8, "SSL") is None
    for bad in (
        b'{"endpoints":[1]}',
        b'{"host":"h"}',
        b'{"host":"h","port":"x"}',
        b'{"host":"h","port":1e999}',
        b"1",
    ):
        with pytest.raises(BadNodeError, match="/p"):
            read_address("/p", bad, "PLAINTEXT")


def test_bad_offsets_and_topics_are_named() -> None:
    assert read_offset("/p", b"12") == 12
    assert read_partitions("/p", b'{"version":1,"partitions":{"10":[1],"2":[1]}}') == [2, 10]
    for bad in (b"twelve", b"9223372036854775808", b"9" * 5000):
        with pytest.raises(BadNodeError, match="/p is not an offset"):
            read_offset("/p", bad)
    for bad in (b"{}", b'{"partitions":{"x":[1]}}', b'{"partitions":3}'):
        with pytest.raises(BadNodeError, match="/p has no partitions"):
            read_partitions("/p", bad)
