"""Topics created and deleted while clients use them, and compacted topics."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import confluent_kafka as ck
import confluent_kafka.admin as ca
import pytest
from tests.clients.kits import KITS, Kit, Sent
from tests.clients.members import MEMBERS, shared_out
from tests.support.processes import BrokerProcess
from tests.support.topics import TopicExistsError, create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

Topic = Callable[..., str]
Name = Callable[..., str]


def delete(broker: BrokerProcess, topic: str) -> None:
    admin = ca.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics([topic])[topic].result(60)


def test_producing_makes_the_topic(kit: Kit, broker: BrokerProcess, new_name: Name) -> None:
    topic = new_name("auto")
    assert kit.produce(broker, topic, [Sent(b"k", b"v")]) == [0]
    assert kit.consume(broker, topic, 1)[0].value == b"v"


def test_a_consumer_that_may_not_make_topics_makes_none(broker: BrokerProcess, new_name: Name) -> None:
    topic = new_name("absent")
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": new_name("group")})
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        message = None
        while message is None and time.monotonic() < deadline:
            message = consumer.poll(0.2)
        assert message is not None
        assert message.error().code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART
        assert topic not in consumer.list_topics(timeout=60).topics
    finally:
        consumer.close()


def test_a_topic_is_deleted_under_its_readers_and_made_again(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Name
) -> None:
    topic = new_topic(max_message_bytes=50_000)
    kit.produce(broker, topic, [Sent(b"old", b"%d" % i) for i in range(40)])
    with MEMBERS[kit.name](broker.bootstrap, new_name("group"), [topic]) as member:
        shared_out([member], topic, 1)
        wait_for(lambda: len(member.records) == 40, "the records of the old topic")
        delete(broker, topic)
        make_again(broker, topic)
        kit.produce(broker, topic, [Sent(b"new", b"%d" % i) for i in range(60)])
        # A reader that stood past the new end is reset; one that never noticed reads on from where it was.
        # Either way it gets what comes from now on.
        deadline = time.monotonic() + 60
        while not any(got.key == b"later" for _, got in member.records):
            assert time.monotonic() < deadline, "the reader does not get the new topic's records"
            kit.produce(broker, topic, [Sent(b"later", b"v")])
            time.sleep(0.2)
    for reader in KITS:
        got = reader.consume(broker, topic, 61)
        assert [g.key for g in got[:60]] == [b"new"] * 60, "records of the deleted topic came back"


def make_again(broker: BrokerProcess, topic: str) -> None:
    """Create the topic, unless a reader's metadata request has already created it."""
    with suppress(TopicExistsError):
        create_topic(broker, topic)
    with Wire(broker.port) as wire:

        def led() -> bool:
            found = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 4).topics[0]
            return bool(found.error_code == 0 and found.partitions[0].leader_id >= 0)

        wait_for(led, f"{topic} to be there again")


def test_a_topic_deleted_under_a_producer(broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    producer = ck.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "delivery.timeout.ms": 20_000,
            "topic.metadata.refresh.interval.ms": 200,
        }
    )
    outcomes: list[object] = []

    def produce() -> None:
        producer.produce(topic, b"v", partition=0, on_delivery=lambda error, message: outcomes.append(error))

    produce()
    assert producer.flush(60) == 0
    assert outcomes == [None]
    delete(broker, topic)
    make_again(broker, topic)

    def delivered() -> bool:
        try:
            produce()
        except ck.KafkaException:
            return False  # its metadata still say that there is no such topic
        producer.flush(60)
        return outcomes[-1] is None

    wait_for(delivered, "the producer to reach the new topic", every=0.1)
    assert KITS[0].consume(broker, topic, 1)[0].offset == 0


def test_many_creations_of_one_name(kit: Kit, broker: BrokerProcess, new_name: Name) -> None:
    topic = new_name("again")
    for round_ in range(3):
        make_again(broker, topic)
        assert kit.produce(broker, topic, [Sent(b"k", b"%d" % round_)]) == [0]
        assert kit.consume(broker, topic, 1)[0].value == b"%d" % round_
        delete(broker, topic)


def test_compaction_keeps_the_last_value_of_each_key(
    kit: Kit, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic(
        cleanup_policy="compact",
        min_cleanable_dirty_ratio="0.01",
        segment_bytes=20_000,
        segment_ms=500,
        delete_retention_ms=0,
    )
    rounds = 20
    for number in range(rounds):
        kit.produce(
            broker,
            topic,
            [Sent(b"key %d" % i, b"%d " % number + b"x" * 100) for i in range(50)],
            codec="gzip",
        )
    kit.produce(broker, topic, [Sent(b"key 0", None), Sent(b"key 1", None)])
    time.sleep(0.6)
    kit.produce(broker, topic, [Sent(b"end", b"of the active segment")])
    end = rounds * 50 + 3
    last = {b"key %d" % i: b"%d " % (rounds - 1) + b"x" * 100 for i in range(2, 50)}

    def compacted() -> bool:
        got = kit.consume_to(broker, topic, end - 1)
        newest = {g.key: g.value for g in got if g.key != b"end"}
        assert {key: value for key, value in newest.items() if value is not None} == last
        assert all(a.offset < b.offset for a, b in pairwise(got))
        return len(got) <= 51

    wait_for(compacted, "all but the last values to go", timeout=60, every=0.3)
    for reader in KITS:
        got = reader.consume_to(broker, topic, end - 1)
        assert {g.key for g in got if g.value is not None} == {*last, b"end"}


def test_a_keyless_record_is_refused_by_a_compacted_topic(
    kit: Kit, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic(cleanup_policy="compact")
    with pytest.raises(Exception) as caught:  # noqa: PT011  each client has its own class for it
        kit.produce(broker, topic, [Sent(None, b"no key")])
    if kit.name != "aiokafka":  # which does not know the error
        assert "invalid" in (str(caught.value) + repr(caught.value)).lower()
    assert kit.produce(broker, topic, [Sent(b"k", b"v")]) == [0]


def test_retention_by_size_moves_the_start(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(retention_bytes=40_000, segment_bytes=20_000)
    for start in range(0, 200, 20):
        kit.produce(broker, topic, [Sent(b"%d" % i, b"x" * 800) for i in range(start, start + 20)])
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:

        def start_offset() -> int:
            low: int = consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), timeout=60)[0]
            return low

        seen: list[int] = []

        def settled() -> bool:
            seen.append(start_offset())
            return seen[-1] > 100 and len(seen) > 2 and len(set(seen[-3:])) == 1

        wait_for(settled, "old segments to go", every=0.5)
        low = seen[-1]
        assert [g.offset for g in kit.consume(broker, topic, 200 - low, offset=low)] == list(range(low, 200))
    finally:
        consumer.close()
