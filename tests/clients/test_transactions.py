"""Transactions of unmodified clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest
from tests.clients.kits import DEADLINE_S
from tests.clients.transactional import (
    PRODUCERS,
    READERS,
    Confluent,
    Fenced,
    TransactionalProducer,
    committed_offset,
    read_confluent,
)
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

NewTopic = Callable[..., str]
NewName = Callable[..., str]
Start = Callable[..., TransactionalProducer]


@pytest.fixture(params=PRODUCERS, ids=lambda cls: str(cls.name))
def start(request: pytest.FixtureRequest, broker: BrokerProcess) -> Iterator[Start]:
    """Starts producers of each client in turn, on the shared broker unless another is named."""
    made: list[TransactionalProducer] = []

    def make(transactional_id: str, on: BrokerProcess = broker, **options: int) -> TransactionalProducer:
        producer: TransactionalProducer = request.param(on.bootstrap, transactional_id, **options)
        made.append(producer)
        return producer

    yield make
    for producer in made:
        producer.close()


def write(producer: TransactionalProducer, topic: str, *values: bytes, partitions: int = 1) -> None:
    for number, value in enumerate(values):
        producer.send(topic, value, number % partitions)


@pytest.mark.parametrize("reader", READERS)
def test_committed_and_aborted(
    reader: str, start: Start, broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    topic = new_topic(2)
    producer = start(new_name("tx"))
    for number in range(4):
        producer.begin()
        write(producer, topic, b"%d a" % number, b"%d b" % number, partitions=2)
        if number % 2:
            producer.flush()
            producer.abort()
        else:
            producer.commit()
    read = READERS[reader]
    assert sorted(read(broker.bootstrap, topic, 2)) == [b"0 a", b"0 b", b"2 a", b"2 b"]
    assert len(read(broker.bootstrap, topic, 2, committed=False)) == 8


def test_an_open_transaction_hides_what_comes_after_it(
    start: Start, broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    topic = new_topic()
    one, other = start(new_name("tx")), start(new_name("tx"))
    one.begin()
    write(one, topic, b"one")
    one.flush()
    other.begin()
    write(other, topic, b"other")
    other.commit()
    assert read_confluent(broker.bootstrap, topic) == []
    assert read_confluent(broker.bootstrap, topic, committed=False) == [b"one", b"other"]
    one.commit()
    wait_for(lambda: read_confluent(broker.bootstrap, topic) == [b"one", b"other"], "the records")


def test_consume_transform_produce(
    start: Start, broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    source, target, group = new_topic(), new_topic(), new_name("group")
    producer = start(new_name("tx"))
    producer.begin()
    write(producer, source, b"1", b"2", b"3")
    producer.commit()
    producer.begin()
    write(producer, target, b"x")
    producer.send_offsets({(source, 0): 1}, group)
    producer.abort()
    assert committed_offset(broker.bootstrap, group, source) < 0
    assert read_confluent(broker.bootstrap, target) == []
    for offset in (1, 2, 3):
        producer.begin()
        write(producer, target, b"y%d" % offset)
        producer.send_offsets({(source, 0): offset}, group)
        producer.commit()
    wait_for(lambda: committed_offset(broker.bootstrap, group, source) == 3, "the offset")
    wait_for(lambda: read_confluent(broker.bootstrap, target) == [b"y1", b"y2", b"y3"], "the records")


def test_a_transaction_without_records(start: Start, new_name: NewName) -> None:
    producer = start(new_name("tx"))
    for _ in range(2):
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()


def test_a_new_instance_fences_the_old_one(
    start: Start, broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    topic, transactional_id = new_topic(), new_name("tx")
    old = start(transactional_id)
    old.begin()
    write(old, topic, b"old")
    old.flush()
    new = start(transactional_id)
    new.begin()
    write(new, topic, b"new")
    new.commit()
    with pytest.raises(Fenced):
        old.commit()
    wait_for(lambda: read_confluent(broker.bootstrap, topic) == [b"new"], "the records")


def test_many_transactions(
    start: Start, broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    topic = new_topic(3)
    producer = start(new_name("tx"))
    for number in range(100):
        producer.begin()
        write(producer, topic, *(b"%d" % number for _ in range(3)), partitions=3)
        if number % 10 == 9:
            producer.abort()
        else:
            producer.commit()
    expected = sorted(b"%d" % number for number in range(100) if number % 10 != 9 for _ in range(3))
    wait_for(lambda: sorted(read_confluent(broker.bootstrap, topic, 3)) == expected, "the records")


def test_a_transaction_whose_time_is_up(
    start: Start, own_broker: Callable[..., BrokerProcess], new_name: NewName
) -> None:
    broker = own_broker(settings={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200})
    create_topic(broker, "t", 1)
    late = start("tx", on=broker, timeout_ms=1000)
    late.begin()
    write(late, "t", b"late")
    late.flush()
    other = start("other", on=broker)
    other.begin()
    write(other, "t", b"other")
    other.commit()
    wait_for(lambda: read_confluent(broker.bootstrap, "t") == [b"other"], "the records")
    with pytest.raises(Exception):  # noqa: B017, PT011 - each client has its own
        late.commit()


def test_a_restart_in_mid_transaction(
    start: Start, own_broker: Callable[..., BrokerProcess], new_name: NewName
) -> None:
    broker = own_broker()
    create_topic(broker, "source", 1)
    create_topic(broker, "t", 1)
    producer = start("tx", on=broker)
    producer.begin()
    write(producer, "t", b"1")
    producer.flush()
    producer.send_offsets({("source", 0): 7}, "g")
    broker.stop()
    broker.start()
    write(producer, "t", b"2")
    producer.commit()
    wait_for(lambda: read_confluent(broker.bootstrap, "t") == [b"1", b"2"], "the records")
    # The topic has no records, but an offset can be committed for it.
    wait_for(lambda: committed_offset(broker.bootstrap, "g", "source") == 7, "the offset")


def test_a_consumer_in_the_group_is_named(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName
) -> None:
    """KIP-447: the offsets of a consumer that has left its group are refused."""
    source, group = new_topic(), new_name("group")
    consumer = ck.Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    wait_for(lambda: consumer.poll(0.2) is None and bool(consumer.assignment()), "an assignment")
    metadata = consumer.consumer_group_metadata()
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": new_name("tx")})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([ck.TopicPartition(source, 0, 5)], metadata, DEADLINE_S)
    producer.commit_transaction(DEADLINE_S)
    wait_for(lambda: committed_offset(broker.bootstrap, group, source) == 5, "the offset")
    consumer.close()
    producer.begin_transaction()
    with pytest.raises(ck.KafkaException) as caught:
        producer.send_offsets_to_transaction([ck.TopicPartition(source, 0, 6)], metadata, DEADLINE_S)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(DEADLINE_S)
    assert committed_offset(broker.bootstrap, group, source) == 5


@pytest.mark.ottla_only
def test_transactions_are_completed_after_a_kill(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker()
    create_topic(broker, "t", 1)
    for number in range(3):
        producer = Confluent(broker.bootstrap, "tx")
        producer.begin()
        producer.send("t", b"%d" % number)
        producer.commit()
        producer.begin()
        producer.send("t", b"lost")
        producer.flush()
        broker.kill()
        broker.start()
        producer.close()
    last = Confluent(broker.bootstrap, "tx")
    wait_for(lambda: read_confluent(broker.bootstrap, "t") == [b"0", b"1", b"2"], "the records")
    last.close()
