"""The synchronous classes: the same methods, in threads, interrupted, and at the interpreter's end."""

from __future__ import annotations

import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from harness.ports import free_port
from tests.support.waiting import wait_for

import ottla_client
from ottla_client import sync
from ottla_client.admin import NewTopic
from ottla_client.consumer import RebalanceListener
from ottla_client.errors import (
    BootstrapError,
    ClientError,
    ClosedError,
    RecordTooLargeError,
    RequestTimeoutError,
    SerializationError,
    TransactionAbortedError,
    TransactionStateError,
)
from ottla_client.sync.runner import Runner
from ottla_client.sync.send_queue import Delivery, SendQueue
from ottla_client.types import OffsetAndMetadata, TopicPartition


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("ottla-")}


@pytest.fixture(autouse=True)
def _no_thread_left() -> Any:
    yield
    assert not threads()


@pytest.mark.parametrize(
    "name",
    [
        "Producer",
        "Consumer",
        "ShareConsumer",
        "Admin",
        "SimpleConsumer",
        "ZookeeperConsumer",
        "CoordinatedConsumer",
    ],
)
def test_methods_and_signatures_are_those_of_the_async_class(name: str) -> None:
    ours, theirs = getattr(sync, name), getattr(ottla_client, name)
    methods = {
        each for each, what in inspect.getmembers(theirs, inspect.isfunction) if not each.startswith("_")
    }
    assert {each for each in methods if not hasattr(ours, each)} == set()
    for each in methods | {"__init__"}:
        mine, its = (inspect.signature(getattr(cls, each)).parameters for cls in (ours, theirs))
        if (name, each) == ("Admin", "start"):
            continue  # default_api_timeout_ms goes for it
        assert {k: (p.kind, p.default) for k, p in mine.items()} == {
            k: (p.kind, p.default) for k, p in its.items()
        }, each


def test_records_there_and_back(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2, prefix="sync")
    with sync.Producer(broker.bootstrap, linger_ms=1) as producer:
        assert producer.partitions_for(topic) == [0, 1]
        deliveries = [
            producer.send(topic, b"%d" % n, b"k%d" % n, headers=[("n", b"%d" % n)]) for n in range(2000)
        ]
        producer.flush()
        assert all(delivery.done() for delivery in deliveries)
        places = {(d.result().partition, d.result().offset) for d in deliveries}
        assert len(places) == 2000
        metadata = producer.send_and_wait(topic, b"last", partition=1, timestamp_ms=1234)
        assert (metadata.topic, metadata.partition, metadata.timestamp) == (topic, 1, 1234)
        batch = producer.send_batch(topic, [b"x", b"y"], partition=0)
        assert len(batch) == 2
        assert sum(each.count for each in batch.result(60)) == 2
    # Deliveries have their outcome after the close, too.
    assert deliveries[0].result().topic == topic
    with sync.Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        seen = []
        for record in consumer:
            seen.append(record)
            if len(seen) == 2003:
                break
        by_key = {record.key: record for record in seen if record.key}
        assert len(by_key) == 2000
        assert by_key[b"k7"].value == b"7"
        assert by_key[b"k7"].headers == (("n", b"7"),)
        assert consumer.poll(timeout_ms=10) == []
        assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
        assert sum(consumer.end_offsets(consumer.assignment()).values()) == 2003


def test_positions_follow_each_record(
    broker: Any, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    """The background hands out lists; positions and commits follow the records that ``for`` takes."""
    topic, group = new_topic(1, prefix="ahead"), new_name("group")
    place = TopicPartition(topic, 0)
    with sync.Producer(broker.bootstrap) as producer:
        producer.send_batch(topic, [b"%d" % n for n in range(100)]).result(60)
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group,
        "auto_offset_reset": "earliest",
    }
    with sync.Consumer(topic, **options) as consumer:
        records = iter(consumer)
        assert [next(records).offset for _ in range(3)] == [0, 1, 2]
        assert consumer.position(place) == 3
        assert consumer.lag(place) == 97
        consumer.commit()
        committed = consumer.committed(place)[place]
        assert committed is not None
        assert committed.offset == 3
        consumer.pause(place)
        assert consumer.poll(timeout_ms=50) == []
        consumer.resume(place)
        assert consumer.getone().offset == 3
        assert [record.offset for record in consumer.poll(timeout_ms=5000, max_records=2)] == [4, 5]
        consumer.seek(place, 50)
        assert consumer.getone().offset == 50
        many = consumer.getmany(timeout_ms=5000, max_records=4)
        assert [record.offset for record in many[place]] == [51, 52, 53, 54]
        for record in consumer:
            if record.offset == 60:
                break
    # Closing commits the records that the loop took, not the whole list.
    with sync.Consumer(topic, **options) as consumer:
        assert consumer.getone().offset == 61
    # An exception commits nothing of it.
    with contextlib.suppress(ZeroDivisionError), sync.Consumer(topic, **options) as consumer:
        assert consumer.getone().offset == 62
        raise ZeroDivisionError
    with sync.Consumer(topic, **options) as consumer:
        assert consumer.getone().offset == 62


def test_pausing_in_the_middle_of_a_list(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2, prefix="paused")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with sync.Producer(broker.bootstrap) as producer:
        for place in (first, second):
            producer.send_batch(topic, [b"%d" % n for n in range(50)], partition=place.partition).result(60)
    with sync.Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        seen: dict[TopicPartition, list[int]] = {first: [], second: []}
        for record in consumer:
            seen[record.topic_partition].append(record.offset)
            if len(seen[first]) == 10 and first not in consumer.paused():
                consumer.pause(first)
                assert consumer.position(first) == 10
            if len(seen[second]) == 50 and first in consumer.paused():
                assert len(seen[first]) == 10
                consumer.resume(first)
            if len(seen[first]) == len(seen[second]) == 50:
                break
        assert seen == {first: list(range(50)), second: list(range(50))}
        consumer.seek_to_beginning(second)
        assert consumer.getone().offset == 0
        consumer.seek_to_end()
        assert consumer.poll(timeout_ms=20) == []


@pytest.mark.parametrize("hold", ["pause", "getmany"])
def test_no_commit_passes_a_record_that_was_not_handed_out(
    broker: Any, new_topic: Callable[..., str], new_name: Callable[..., str], hold: str
) -> None:
    """Records of one partition are left aside in mid-list while others are read and committed automatically."""
    topic = new_topic(2, prefix="aside")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with sync.Producer(broker.bootstrap) as producer:
        for place in (first, second):
            producer.send_batch(topic, [b"%d" % n for n in range(50)], partition=place.partition).result(60)
    seen = {first: 0, second: 0}
    with sync.Consumer(
        bootstrap_servers=broker.bootstrap,
        group_id=new_name("group"),
        auto_offset_reset="earliest",
        auto_commit_interval_ms=20,
    ) as consumer:
        consumer.assign([first, second])
        consumer.position(first)
        consumer.position(second)
        # Both partitions' records have come, so that one list has records of both.
        wait_for(lambda: consumer.lag(first) == consumer.lag(second) == 50, "the first fetch")
        records = iter(consumer)
        place = next(records).topic_partition
        seen[place] += 1
        other = first if place == second else second
        if hold == "pause":
            consumer.pause(place)
            while seen[other] < 50:
                record = next(records)
                assert record.topic_partition == other
                seen[other] += 1
            assert consumer.poll(timeout_ms=50) == []
        else:
            while seen[other] < 50:
                many = consumer.getmany(other, timeout_ms=5000)
                assert set(many) == {other}
                seen[other] += len(many[other])
            assert consumer.getmany(other, timeout_ms=50) == {}

        def committed(partition: TopicPartition) -> int:
            found = consumer.committed(partition)[partition]
            return 0 if found is None else found.offset

        wait_for(lambda: committed(other) == 50, "the automatic commit")
        assert committed(place) <= 1
        assert consumer.position(place) == 1
        if hold == "pause":
            consumer.resume(place)
        assert [record.offset for record in consumer.poll(timeout_ms=5000)] == list(range(1, 50))


def test_another_thread_ends_the_iterators_of_a_loop(
    broker: Any, new_topic: Callable[..., str], request: pytest.FixtureRequest
) -> None:
    """Every record comes once and in order, though pauses take the rest of the lists back at any moment."""
    request.addfinalizer(partial(sys.setswitchinterval, sys.getswitchinterval()))
    sys.setswitchinterval(1e-6)
    topic = new_topic(2, prefix="ended")
    places = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    with sync.Producer(broker.bootstrap) as producer:
        for place in places:
            producer.send_batch(topic, [b""] * 100_000, partition=place.partition).result(60)
    ended = threading.Event()

    def disturb() -> None:
        while not ended.is_set():
            for place in places:
                consumer.pause(place)
                assert consumer.position(place) is not None
                consumer.resume(place)

    seen = dict.fromkeys(places, 0)
    with sync.Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(places)
        other = threading.Thread(target=disturb)
        other.start()
        try:
            for record in consumer:
                assert record.offset == seen[record.topic_partition]
                seen[record.topic_partition] += 1
                if sum(seen.values()) == 200_000:
                    break
        finally:
            ended.set()
            other.join()
    assert seen == dict.fromkeys(places, 100_000)


def test_arrow(broker: Any, new_topic: Callable[..., str]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    topic = new_topic(1, prefix="arrow")
    with sync.Producer(broker.bootstrap) as producer:
        table = pyarrow.table({"value": [b"%d" % n for n in range(100)]})
        assert len(producer.send_arrow(topic, table)) == 100
    with sync.Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        assert consumer.getone().offset == 0
        table = consumer.poll_arrow(timeout_ms=5000)
        assert table["offset"].to_pylist() == list(range(1, 100))


def test_a_listener_may_use_the_consumer(
    broker: Any, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    topic, group = new_topic(1, prefix="listened"), new_name("group")
    place = TopicPartition(topic, 0)
    with sync.Producer(broker.bootstrap) as producer:
        producer.send_batch(topic, [b"%d" % n for n in range(10)]).result(60)
    calls: list[tuple[str, frozenset[TopicPartition]]] = []

    class Listener(RebalanceListener):
        def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
            calls.append(("assigned", assigned))
            consumer.seek(place, 5)

        def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
            calls.append(("revoked", revoked))
            assert consumer.assignment() == revoked
            consumer.commit({place: 7})  # also at the close
            assert consumer.position(place) == 6

    with sync.Consumer(
        bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
    ) as consumer:
        consumer.subscribe([topic], listener=Listener())
        assert consumer.getone().offset == 5
    assert calls == [("assigned", {place}), ("revoked", {place})]
    with sync.Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as other:
        assert other.committed(place)[place] == OffsetAndMetadata(7)


def test_admin(broker: Any, new_name: Callable[..., str]) -> None:
    name = new_name("admin")
    with sync.Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=3)])
        # Kafka's brokers learn of a topic, and of its end, a moment later.
        wait_for(lambda: name in admin.list_topics(), "the topic")
        assert len(admin.describe_topics([name])[name].partitions) == 3
        admin.delete_topics([name])

        def gone() -> bool:
            try:
                admin.describe_topics([name])
            except ClientError:
                return True
            return False

        # Kafka's brokers learn of it a moment later.
        wait_for(gone, "the deletion to be known")
    with pytest.raises(ClosedError):
        admin.list_topics()


def test_many_threads_send(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, prefix="threads")
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            deliveries = [producer.send(topic, b"%d:%d" % (number, n)) for n in range(2000)]
            assert deliveries[-1].result(60).topic == topic
        except BaseException as error:
            failures.append(error)

    with sync.Producer(broker.bootstrap) as producer:
        workers = [threading.Thread(target=run, args=(number,)) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert not failures
    seen: dict[bytes, list[int]] = {}
    with sync.Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        for count, record in enumerate(consumer, 1):
            number, _, n = record.value.partition(b":")
            seen.setdefault(number, []).append(int(n))
            if count == 8000:
                break
    assert seen == {b"%d" % number: list(range(2000)) for number in range(4)}


def test_back_pressure(broker: Any, new_topic: Callable[..., str]) -> None:
    """More than fits anywhere: the thread waits, nothing is lost."""
    topic = new_topic(1, prefix="pressed")
    with sync.Producer(broker.bootstrap, buffer_memory=1_000_000, batch_size=100_000) as producer:
        deliveries = [producer.send(topic, bytes(10_000)) for _ in range(1000)]
    assert deliveries[-1].result().offset == 999


def test_invalid_records_raise_at_once(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, prefix="wrong")
    with sync.Producer(broker.bootstrap, key_serializer=str.encode, max_request_size=10_000) as producer:
        with pytest.raises(SerializationError):
            producer.send(topic, "text")
        with pytest.raises(SerializationError, match="key_serializer failed"):
            producer.send(topic, b"", key=1)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, bytes(20_000))
        assert producer.send(topic, b"", key="k").result(60).offset == 0
        # A partition that isn't there is found out in the background.
        delivery = producer.send(topic, b"", partition=7)
        producer.close(2)
    assert isinstance(delivery.exception(), ClientError)
    with pytest.raises(ClosedError):
        producer.send(topic, b"")


def test_callbacks_and_waiting(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, prefix="callbacks")
    offsets: list[int] = []
    refused: list[Exception] = []
    with sync.Producer(broker.bootstrap, linger_ms=20) as producer:

        def callback(delivery: sync.Delivery) -> None:
            offsets.append(delivery.result().offset)
            try:
                producer.flush()
            except ClientError as error:
                refused.append(error)

        delivery = producer.send(topic, b"x")
        delivery.add_done_callback(callback)
        with pytest.raises(RequestTimeoutError):
            delivery.result(0.0001)
        delivery.result(60)
        producer.flush()
    delivery.add_done_callback(callback)
    assert offsets == [0, 0]
    assert "background thread" in str(refused[0])


def test_no_broker() -> None:
    started = threads()
    with pytest.raises(BootstrapError, match=r"connection refused; is a broker running there\?"):
        sync.Producer(f"127.0.0.1:{free_port()}", max_block_ms=50).start()
    assert threads() == started
    unstarted = sync.Producer("127.0.0.1:1")
    with pytest.raises(ClosedError, match="not started"):
        unstarted.flush()
    unstarted.close()


def test_the_broker_goes_away_for_good(own_broker: Callable[..., Any]) -> None:
    broker = own_broker()
    producer = sync.Producer(broker.bootstrap)
    producer.start()
    assert producer.send("t", b"x").result(60).offset == 0
    broker.kill()
    delivery = producer.send("t", b"y")
    with pytest.raises(RequestTimeoutError, match="1 records"):
        producer.close(0.2)
    assert isinstance(delivery.exception(), ClosedError)


def test_closing_from_another_thread_ends_the_loop(broker: Any, new_topic: Callable[..., str]) -> None:
    consumer = sync.Consumer(new_topic(1, prefix="quiet"), bootstrap_servers=broker.bootstrap)
    consumer.start()
    closer = threading.Timer(0.1, consumer.close)
    closer.start()
    assert list(consumer) == []
    closer.join()


def test_a_delivery_whose_loop_has_stopped_without_an_outcome() -> None:
    runner = Runner("ottla-stopped")
    queue = SendQueue(ottla_client.Producer(), 1.0)
    queue.open(runner)
    deliveries = [Delivery(queue), Delivery(queue)]
    threading.Timer(0.05, runner.stop, (60,)).start()
    for delivery in deliveries:  # the first one is waited for while the loop stops
        with pytest.raises(ClosedError):
            delivery.result()


def test_an_interrupted_wait_loses_no_record(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, prefix="interrupted")
    with (
        sync.Producer(broker.bootstrap) as producer,
        sync.Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        main = threading.main_thread().ident
        assert main is not None
        for number in range(5):
            interrupter = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
            interrupter.start()
            with pytest.raises(KeyboardInterrupt):
                for _ in consumer:
                    pass
            interrupter.join()
            producer.send_and_wait(topic, b"%d" % number)
            assert consumer.getone().offset == number


def _python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )


def test_open_clients_are_closed_at_the_end(broker: Any, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, prefix="exit")
    code = (
        "import sys; from ottla_client.sync import Admin, Consumer, Producer\n"
        "servers, topic = sys.argv[1:]\n"
        "producer = Producer(servers, linger_ms=1000); producer.start()\n"
        "consumer = Consumer(topic, bootstrap_servers=servers); consumer.start(); consumer.poll(10)\n"
        "admin = Admin(servers); admin.start()\n"
        "for n in range(1000): producer.send(topic, b'%d' % n)\n"
        "print('end')"
    )
    process = _python(code, broker.bootstrap, topic)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out, errors) == (0, "end\n", "")
    with sync.Consumer(topic, bootstrap_servers=broker.bootstrap) as consumer:
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1000}


_FORKED = """
import os, signal, sys, warnings
from ottla_client.errors import ClosedError
from ottla_client.sync import Producer

def end(producer):
    producer.send_and_wait(topic, b"from the parent")
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), producer.send_and_wait(topic, b"").offset)
        return
    signal.alarm(30)
    for call in (lambda: producer.partitions_for(topic), lambda: producer.send_and_wait(topic, b"from the child")):
        try:
            call()
        except ClosedError as error:
            print(error, flush=True)
    sys.exit(7)

warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 has one for each fork beside threads
servers, topic, how = sys.argv[1:]
producer = Producer(servers)
if how == "block":
    with producer:
        end(producer)
else:
    producer.start()
    end(producer)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("how", ["block", "left open"])
def test_a_forked_process_leaves_the_clients_to_its_parent(
    broker: Any, new_topic: Callable[..., str], how: str
) -> None:
    """It waited for ever, at its end as well, for a thread that only the parent has."""
    process = _python(_FORKED, broker.bootstrap, new_topic(1, prefix="fork"), how)
    out, errors = process.communicate(timeout=60)
    refused = (
        "the client belongs to the process that this one was forked from; make a client in each process\n"
    )
    assert (process.returncode, out, errors) == (0, refused * 2 + "7 1\n", "")


def test_ctrl_c_ends_a_program(broker: Any, new_topic: Callable[..., str]) -> None:
    code = (
        "import sys; from ottla_client.sync import Consumer\n"
        "with Consumer(sys.argv[2], bootstrap_servers=sys.argv[1]) as consumer:\n"
        " print('there', flush=True)\n"
        " for record in consumer: pass\n"
    )
    process = _python(code, broker.bootstrap, new_topic(1, prefix="ctrlc"))
    assert process.stdout is not None
    assert process.stdout.readline() == "there\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.strip().endswith("KeyboardInterrupt")


def test_a_client_that_is_not_closed_warns(broker: Any, new_topic: Callable[..., str]) -> None:
    producer = sync.Producer(broker.bootstrap)
    producer.start()
    with pytest.warns(ResourceWarning, match="was not closed"):
        del producer
    wait_for(lambda: not threads(), "the end of its thread")


@pytest.mark.usefixtures("transactions")
def test_transactions(broker: Any, new_topic: Callable[..., str], new_name: Callable[..., str]) -> None:
    source, target, group = new_topic(), new_topic(), new_name("group")
    with sync.Producer(broker.bootstrap) as filling:
        filling.send_batch(source, [b"%d" % number for number in range(10)])
    with (
        sync.Producer(broker.bootstrap, transactional_id=new_name("txn")) as producer,
        sync.Consumer(
            source,
            bootstrap_servers=broker.bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
    ):
        with pytest.raises(TransactionStateError, match=r'use "with producer\.transaction'):
            producer.send(target, b"outside")
        with pytest.raises(TransactionStateError, match=r'use "with producer\.transaction'):
            producer.transaction().commit()
        records = []
        while len(records) < 10:
            records += consumer.poll()

        def work(fail: bool) -> None:
            with producer.transaction() as transaction:
                for record in records:
                    producer.send(target, record.value)
                producer.send_batch(target, [b"10", b"11"])
                transaction.send_offsets(consumer)
                if fail:
                    raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            work(fail=True)
        work(fail=False)
        partition = TopicPartition(source, 0)
        consumer.seek_to_committed()
        assert consumer.position(partition) == 10
        producer.begin_transaction()
        producer.send(target, b"no").result()
        producer.abort_transaction()
        producer.begin_transaction()
        producer.send_offsets_to_transaction({partition: 3}, consumer.group_metadata())
        producer.commit_transaction()
        consumer.seek_to_committed()
        assert consumer.position(partition) == 3
    with sync.Consumer(
        target,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as reader:
        values: list[bytes] = []
        while len(values) < 12:
            values += [record.value for record in reader.poll()]
    assert values == [b"%d" % number for number in range(12)]


@pytest.mark.usefixtures("transactions")
def test_a_record_that_could_not_be_buffered_fails_the_transaction(
    broker: Any, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    topic = new_topic()
    with sync.Producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        producer.begin_transaction()
        producer.send(topic, b"there")
        producer.send(topic, b"not there", partition=7)
        with pytest.raises(TransactionAbortedError, match="has no partition 7"):
            producer.commit_transaction()
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"next")


@pytest.mark.usefixtures("transactions")
def test_one_of_many_threads_begins_a_transaction(broker: Any, new_name: Callable[..., str]) -> None:
    with sync.Producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        for _ in range(20):
            refused: list[TransactionStateError] = []

            def begin(refused: list[TransactionStateError] = refused) -> None:
                try:
                    producer.begin_transaction()
                except TransactionStateError as error:
                    refused.append(error)

            beginning = [threading.Thread(target=begin) for _ in range(4)]
            for thread in beginning:
                thread.start()
            for thread in beginning:
                thread.join()
            assert len(refused) == 3
            producer.abort_transaction()
        producer.begin_transaction()
        producer.commit_transaction()
    with pytest.raises(ClosedError):
        producer.begin_transaction()


@pytest.mark.usefixtures("transactions")
def test_a_transaction_begins_before_its_records_that_a_running_list_takes_along(
    broker: Any, new_topic: Callable[..., str], new_name: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other threads' records keep the loop busy, so that it sends these before the call that begins."""
    with sync.Producer(broker.bootstrap, transactional_id=new_name("txn")) as producer:
        topic = new_topic()
        with producer.transaction():
            producer.send(topic, b"u")
        late: list[Callable[[], object]] = []
        monkeypatch.setattr(producer, "_post", late.append)
        producer.begin_transaction()
        assert producer.send(topic, b"v").result(60).offset > 0
        assert producer._runner is not None
        producer._runner.post(late.pop())
        producer.commit_transaction()
