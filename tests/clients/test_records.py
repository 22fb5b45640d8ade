"""Records that one client produces reach each of the three clients complete and in order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests.clients.kits import CODECS, KITS, Kit, Sent
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.records.formats import iter_headers

Topic = Callable[..., str]


def test_every_codec_read_by_every_client(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(len(CODECS))
    sent = {}
    for partition, codec in enumerate(CODECS):
        sent[partition] = [
            Sent(
                b"key %d" % i,
                b"value %d " % i + b"x" * 200,
                (("codec", codec.encode()), ("i", b"%d" % i)),
                partition=partition,
            )
            for i in range(50)
        ]
        offsets = kit.produce(broker, topic, sent[partition], codec=codec)
        assert offsets == list(range(50))
    assert [stored_codec(broker, topic, partition) for partition in range(len(CODECS))] == list(
        range(len(CODECS))
    )
    for reader in KITS:
        got = reader.consume(broker, topic, 50 * len(CODECS), partitions=range(len(CODECS)))
        for partition in range(len(CODECS)):
            mine = [g for g in got if g.partition == partition]
            assert [g.offset for g in mine] == list(range(50)), (reader, CODECS[partition])
            assert [(g.key, g.value, g.headers) for g in mine] == [
                (s.key, s.value, s.headers) for s in sent[partition]
            ]


def stored_codec(broker: BrokerProcess, topic: str, partition: int) -> int:
    """The codec of the first batch in the log, according to a fetch."""
    asked = FetchTopic(
        topic=topic, partitions=[FetchPartition(partition=partition, partition_max_bytes=1 << 20)]
    )
    with Wire(broker.port) as wire:
        answer = wire.call(FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=[asked]), 12)
    records = answer.responses[0].partitions[0].records
    return next(header for _, header in iter_headers(records)).codec


def test_null_and_empty_keys_values_and_headers(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    sent = [
        Sent(None, b"no key"),
        Sent(b"no value", None),
        Sent(b"", None),
        Sent(b"", b""),
        Sent(b"k", b"v", (("same", b"1"), ("same", b"2"), ("", b""), ("ünicode", b"\x00\xff"))),
    ]
    if kit.name == "confluent":  # the others refuse to send these
        sent += [Sent(None, None), Sent(b"k", b"v", (("null", None),))]
    kit.produce(broker, topic, sent)
    for reader in KITS:
        got = reader.consume(broker, topic, len(sent))
        assert [(g.key, g.value, g.headers) for g in got] == [(s.key, s.value, s.headers) for s in sent], (
            reader
        )


def test_create_time_is_kept(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    now = int(time.time() * 1000)
    times = [now - 86_400_000, now, now - 3_600_000, 1]
    kit.produce(broker, topic, [Sent(b"k", b"v", timestamp=t) for t in times])
    for reader in KITS:
        got = reader.consume(broker, topic, len(times))
        assert [(g.timestamp_type, g.timestamp) for g in got] == [(0, t) for t in times], reader


def test_log_append_time_is_the_brokers(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    kit.produce(broker, topic, [Sent(b"k", b"v", timestamp=1000 + i) for i in range(3)], codec="gzip")
    after = int(time.time() * 1000)
    for reader in KITS:
        got = reader.consume(broker, topic, 3)
        assert {g.timestamp_type for g in got} == {1}, reader
        assert all(before <= g.timestamp <= after for g in got), reader


def test_big_messages(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(max_message_bytes=6_000_000)
    sent = [Sent(b"%d" % i, os.urandom(size)) for i, size in enumerate([5_000_000, 10, 1_500_000, 3_000_000])]
    assert kit.produce(broker, topic, sent, max_bytes=6_000_000) == [0, 1, 2, 3]
    for reader in KITS:
        got = reader.consume(broker, topic, len(sent))
        assert [g.key for g in got] == [s.key for s in sent], reader
        assert all(g.value == s.value for g, s in zip(got, sent, strict=True)), reader


def test_a_message_past_the_topics_limit_is_refused_and_the_next_goes_in(
    kit: Kit, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic(max_message_bytes=10_000)
    with pytest.raises(Exception) as caught:  # noqa: PT011  each client has its own class for it
        kit.produce(broker, topic, [Sent(b"k", os.urandom(20_000))])
    assert "too large" in str(caught.value).lower() or "toolarge" in repr(caught.value).lower().replace(
        "_", ""
    )
    assert kit.produce(broker, topic, [Sent(b"k", b"small")]) == [0]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_acks(kit: Kit, acks: int, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    sent = [Sent(b"%d" % i, b"v") for i in range(100)]
    offsets = kit.produce(broker, topic, sent, acks=acks)
    assert offsets == (list(range(100)) if acks else [-1] * 100)
    assert [g.key for g in kit.consume(broker, topic, 100)] == [s.key for s in sent]


def test_idempotent_producers(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(2)
    for start in range(0, 600, 300):
        sent = [Sent(b"%d" % i, b"v" * 100, partition=i % 2) for i in range(start, start + 300)]
        kit.produce(broker, topic, sent, idempotent=True, codec="lz4")
    got = kit.consume(broker, topic, 600, partitions=(0, 1))
    for partition in (0, 1):
        keys = [int(g.key or b"") for g in got if g.partition == partition]
        assert keys == list(range(partition, 600, 2))


def test_many_records_in_many_batches(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(segment_bytes=200_000)
    count = 5000
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v" * 200) for i in range(count)], max_bytes=50_000)
    got = kit.consume(broker, topic, count)
    assert [int(g.key or b"") for g in got] == list(range(count))
    assert [g.offset for g in got] == list(range(count))


def test_a_fetch_from_inside_a_batch(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v") for i in range(100)], codec="zstd")
    for reader in KITS:
        got: list[Any] = reader.consume(broker, topic, 27, offset=73)
        assert [g.offset for g in got] == list(range(73, 100)), reader
