"""Writing tasks on a real broker, without Spark: rows are written, and not written again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from tests.support.processes import BrokerProcess

from ottla_client.admin import NewTopic
from ottla_client.errors import BrokerError
from ottla_client.producer.partitioner import partition_for_key
from ottla_client.sync import Admin, Consumer
from ottla_client.types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.writing.errors import RecordTooLarge, WriteError
from ottla_pipeline.writing.identity import Identity
from ottla_pipeline.writing.marks import DONE, Mark, Marks
from ottla_pipeline.writing.options import resolve
from ottla_pipeline.writing.rows import Layout
from ottla_pipeline.writing.task import TaskWriter, WriteTally

_names = count()


@pytest.fixture
def topic() -> str:
    return f"sink-{next(_names)}"


@pytest.fixture
def make(broker: BrokerProcess) -> Callable[..., str]:
    def make(name: str, partitions: int = 2, **configs: str) -> str:
        with Admin(broker.bootstrap) as admin:
            admin.create_topics(
                [
                    NewTopic(
                        name,
                        partitions=partitions,
                        configs={k.replace("_", "."): v for k, v in configs.items()},
                    )
                ]
            )
        return name

    return make


Record = ConsumerRecord[bytes, bytes]


def records(broker: BrokerProcess, topic: str) -> list[Record]:
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[Record] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(200)
    return found


def values(broker: BrokerProcess, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in records(broker, topic))


def layout(*names: str, topic: str | None = None) -> Layout:
    place = {name: at for at, name in enumerate(names)}
    return Layout(
        place["value"],
        place.get("key"),
        place.get("headers"),
        place.get("partition"),
        place.get("topic"),
        topic,
    )


class Sink:
    """A streaming query's sink: batches of rows by task."""

    def __init__(self, broker: BrokerProcess, topic: str | None, **options: str) -> None:
        self.servers = broker.bootstrap
        self.topic = topic
        given = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.linger.ms": "0"}
        self.options = resolve(
            {**given, **{name.replace("__", "."): value for name, value in options.items()}}
        )
        self.query = str(uuid4())
        self.run = "run-1"

    def identity(self, batch: int, task: int, attempt: int = 0) -> Identity:
        return Identity(self.query, batch, task, self.run, attempt)

    def write(
        self, batch: int, task: int, rows: Iterator[pa.RecordBatch] | pa.RecordBatch, attempt: int = 0
    ) -> WriteTally:
        single = isinstance(rows, pa.RecordBatch)
        names = rows.schema.names if single else ["value"]
        writer = TaskWriter(
            self.options, layout(*names, topic=self.topic), self.identity(batch, task, attempt)
        )
        return writer.write([rows] if single else rows)

    def commit(self, batch: int, *topics: str) -> None:
        with Marks(self.servers, {}, self.identity(batch, 0).group, 30) as marks:
            marks.done(topics or (str(self.topic),), batch, self.run)

    def marks(self) -> dict[TopicPartition, Mark]:
        with Marks(self.servers, {}, self.identity(0, 0).group, 30) as marks:
            return marks.read()


def batch(*values: str | bytes | None, **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values), **columns})


def breaking(*batches: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows whose source fails behind them."""
    yield from batches
    raise RuntimeError("the source broke")


def written_then_killed(sink: Sink, number: int, task: int, *values: str, attempt: int = 0) -> None:
    """Like a task that was killed after these rows arrived, before it reported them."""
    sink.write(number, task, batch(*values), attempt)


def test_keys_go_where_the_java_client_sends_them(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic, partitions=5)
    keys = [f"key-{number}" for number in range(500)]
    tally = Sink(broker, topic).write(0, 0, batch(*keys, key=pa.array(keys)))
    assert tally.written == {topic: 500}
    found = records(broker, topic)
    assert len(found) == 500
    for record in found:
        assert record.key is not None
        assert record.partition == partition_for_key(record.key, 5)


def test_headers_partitions_and_topics_are_as_the_rows_say(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic, partitions=3)
    other = make(f"{topic}-other")
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    sink = Sink(broker, None)
    sink.write(
        7,
        2,
        batch(
            "a",
            None,
            "c",
            topic=pa.array([topic, topic, other]),
            partition=pa.array([2, 1, None], pa.int32()),
            headers=pa.array([[{"key": "h", "value": b"1"}], None, []], pairs),
        ),
    )
    one, two = sorted(records(broker, topic), key=lambda record: record.partition)
    (three,) = records(broker, other)
    name = f"{sink.query}/7/2"
    assert (one.partition, one.value, one.headers) == (1, None, (("ottla.write", f"{name}/p".encode()),))
    assert (two.partition, two.value) == (2, b"a")
    assert two.headers == (("h", b"1"), ("ottla.write", f"{name}/p".encode()))
    assert (three.value, three.headers) == (b"c", (("ottla.write", name.encode()),))


def test_never_skipping_leaves_records_as_the_rows_are(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic, skipReplayed="never")
    sink.write(0, 0, batch("a"))
    sink.write(0, 0, batch("a"))
    assert [record.headers for record in records(broker, topic)] == [(), ()]
    assert sink.marks() == {}


def test_a_batch_that_is_run_again_writes_what_is_missing(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic)
    sink.write(0, 0, batch("first"))
    sink.commit(0)
    written_then_killed(sink, 1, 0, "a", "b", "b")
    sink.run = "run-2"
    tally = sink.write(1, 0, batch("b", "b", "c", "b", "a"))  # in another order
    assert tally.already == {topic: 3}
    assert tally.written == {topic: 2}
    assert not tally.unmatched
    assert values(broker, topic) == {b"first": 1, b"a": 1, b"b": 3, b"c": 1}


def test_the_first_batch_of_all_is_recognised_too(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    Sink(broker, topic).write(0, 0, batch("a"))  # somebody else's
    sink = Sink(broker, topic)
    written_then_killed(sink, 0, 0, "a", "b")
    sink.run = "run-2"
    assert sink.write(0, 0, batch("a", "b", "c")).already == {topic: 2}
    assert values(broker, topic) == {b"a": 2, b"b": 1, b"c": 1}


def test_a_task_that_is_tried_again_goes_on(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic)
    sink.write(3, 0, batch("x"))
    sink.commit(3)
    sink.write(4, 1, batch("other"))
    with pytest.raises(RuntimeError, match="the source broke"):
        sink.write(4, 0, breaking(batch("a"), batch("b")))
    sink.write(4, 0, batch("a", "b", "c"), attempt=1)
    assert values(broker, topic) == {b"x": 1, b"other": 1, b"a": 1, b"b": 1, b"c": 1}


def test_equal_rows_of_other_tasks_are_theirs(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic)
    written_then_killed(sink, 0, 0, "same", "same")
    sink.run = "run-2"
    assert not sink.write(0, 1, batch("same")).already
    assert sink.write(0, 0, batch("same", "same", "same")).already == {topic: 2}
    assert values(broker, topic) == {b"same": 4}


def test_rows_that_moved_to_another_task_are_found_when_the_whole_batch_is_looked_at(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic, skipReplayed="batch")
    written_then_killed(sink, 0, 0, "a", "b")
    sink.run = "run-2"
    assert sink.write(0, 0, batch("a")).already == {topic: 1}
    assert sink.write(0, 1, batch("b", "c")).already == {topic: 1}
    assert values(broker, topic) == {b"a": 1, b"b": 1, b"c": 1}


def test_rows_that_are_no_longer_there_are_told(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic)
    written_then_killed(sink, 0, 0, "a", "random-1")
    sink.run = "run-2"
    tally = sink.write(0, 0, batch("a", "random-2"))
    assert tally.unmatched == {topic: 1}


def test_a_batch_that_was_done_is_not_written_at_all(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic)
    sink.write(0, 0, batch("a"))
    sink.commit(0)
    sink.run = "run-2"
    tally = sink.write(0, 0, batch("a", "b"))
    assert tally.already == {topic: 2}
    assert values(broker, topic) == {b"a": 1}


def test_within_a_run_nothing_is_looked_for(
    broker: BrokerProcess, topic: str, make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make(topic)
    sink = Sink(broker, topic)

    def looked(*_: object) -> object:
        raise AssertionError("it looked")

    monkeypatch.setattr("ottla_pipeline.writing.lookback.find", looked)
    for number in range(3):
        for task in range(2):
            sink.write(number, task, batch(f"{number}"))
        sink.commit(number)
    sink.run = "run-2"
    with pytest.raises(AssertionError, match="it looked"):
        sink.write(3, 0, batch("3"))


def test_a_topic_that_comes_in_a_later_batch_has_a_mark_of_its_own(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    later = make(f"{topic}-later", partitions=1)
    sink = Sink(broker, None)
    rows = [batch("a", topic=pa.array([topic])), batch("b", "c", topic=pa.array([topic, later]))]
    sink.write(0, 0, rows[0])
    sink.commit(0, topic)
    sink.write(1, 0, rows[1])
    assert sink.marks()[TopicPartition(later, 0)] == Mark(0, "begun", 1, "run-1")
    sink.run = "run-2"
    assert sink.write(1, 0, rows[1]).already == {topic: 1, later: 1}
    assert values(broker, topic) == {b"a": 1, b"b": 1}
    assert values(broker, later) == {b"c": 1}


def test_forgotten_marks_leave_the_tail_to_look_at(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic, partitions=1)
    sink = Sink(broker, topic, lookBackRecords="3")
    sink.write(5, 0, batch("a", "b", "c", "d"))
    with Marks(broker.bootstrap, {}, sink.identity(0, 0).group, 30) as marks:
        marks.forget()
    sink.run = "run-2"
    # "a" lies before the tail, so it comes twice: as the documentation says.
    assert sink.write(5, 0, batch("a", "b", "c", "d")).already == {topic: 3}
    assert values(broker, topic) == {b"a": 2, b"b": 1, b"c": 1, b"d": 1}
    # What was looked through is noted, and not taken for the beginning of a batch of this run.
    assert sink.write(5, 1, batch("e")).written == {topic: 1}


def test_a_topic_made_again_and_partitions_added_do_no_harm(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic, partitions=1)
    sink = Sink(broker, topic)
    sink.write(0, 0, batch(*map(str, range(50))))
    sink.commit(0)
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic])
    make(topic, partitions=2)
    written_then_killed(sink, 1, 0, "a", "b")
    sink.run = "run-2"
    assert sink.write(1, 0, batch("a", "b", "c")).already == {topic: 2}
    assert values(broker, topic) == {b"a": 1, b"b": 1, b"c": 1}


def test_what_somebody_else_commits_for_the_group_is_no_mark() -> None:
    assert Mark.of(OffsetAndMetadata(5, "hello")) is None
    assert Mark.of(OffsetAndMetadata(5, "done x run")) is None
    mark = Mark(5, DONE, 3, "run")
    assert Mark.of(mark.committed) == mark


def test_records_too_large_for_the_producer_are_refused_in_one_line(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic)
    sink = Sink(broker, topic, kafka__max__request__size="2000")
    with pytest.raises(RecordTooLarge) as error:
        sink.write(0, 0, batch("small", "x" * 3000))
    assert f"a record for topic {topic} is about 30" in str(error.value)
    assert "more than kafka.max.request.size (2000)" in str(error.value)
    assert "set onTooLarge to skip or deadletter" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("by", ["producer", "topic"])
def test_records_too_large_may_be_left_out(
    broker: BrokerProcess, topic: str, make: Callable[..., str], by: str
) -> None:
    make(topic, **({"max_message_bytes": "2000"} if by == "topic" else {}))
    limit = {"kafka__max__request__size": "2000"} if by == "producer" else {}
    sink = Sink(broker, topic, onTooLarge="skip", **limit)
    tally = sink.write(0, 0, batch("a", "x" * 3000, "b", "y" * 3000))
    assert tally.too_large == {topic: 2}
    assert tally.written == {topic: 2}
    assert values(broker, topic) == {b"a": 1, b"b": 1}


@pytest.mark.parametrize("by", ["producer", "topic"])
def test_dead_letters_have_it_all_and_are_not_doubled_either(
    broker: BrokerProcess, topic: str, make: Callable[..., str], by: str
) -> None:
    make(topic, **({"max_message_bytes": "2000"} if by == "topic" else {}))
    dead = make(f"{topic}-dead")
    limit = {"kafka__max__request__size": "2000"} if by == "producer" else {}
    sink = Sink(broker, topic, onTooLarge="deadletter", deadLetterTopic=dead, **limit)
    large = bytes(range(256)) * 12
    rows = batch(b"a", large, key=pa.array([b"k", b"K"]))
    assert sink.write(0, 0, rows).too_large == {topic: 1}
    found = sorted(records(broker, dead), key=lambda record: dict(record.headers)["ottla.dead.part"] or b"")
    assert b"".join(record.value or b"" for record in found) == large
    assert len(found) == (4 if by == "producer" else 1)
    headers = dict(found[0].headers)
    assert {record.key for record in found} == {b"K"}
    assert headers["ottla.dead.topic"] == topic.encode()
    assert b"max." in (headers["ottla.dead.error"] or b"")
    sink.run = "run-2"
    assert sink.write(0, 0, rows).already == {topic: 1, dead: len(found)}
    assert len(records(broker, dead)) == len(found)
    assert values(broker, topic) == {b"a": 1}


def test_dead_letters_that_are_too_large_end_the_task(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic, max_message_bytes="2000")
    dead = make(f"{topic}-dead", max_message_bytes="2000")
    sink = Sink(broker, topic, onTooLarge="deadletter", deadLetterTopic=dead)
    with pytest.raises(RecordTooLarge, match="a part of a dead letter is too large"):
        sink.write(0, 0, batch("x" * 3000))


def test_what_a_broker_refuses_is_one_line(
    broker: BrokerProcess, topic: str, make: Callable[..., str]
) -> None:
    make(topic, cleanup_policy="compact")
    with pytest.raises(WriteError, match="INVALID_RECORD") as error:
        Sink(broker, topic).write(0, 0, batch("no key"))
    assert "\n" not in str(error.value)
    with pytest.raises(BrokerError, match="no partition 9"):
        Sink(broker, topic).write(0, 0, batch("a", partition=pa.array([9], pa.int32())))


def test_brokers_that_are_not_there_are_one_line() -> None:
    options = resolve(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "kafka.max.block.ms": "300",
            "kafka.request.timeout.ms": "300",
        }
    )
    writer = TaskWriter(options, layout("value", topic="t"), Identity("q", 0, 0, "r"))
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1") as error:
        writer.write([batch("a")])
    assert not isinstance(error.value, SourceError)  # the client's own
    assert "\n" not in str(error.value)


def test_a_task_without_rows_asks_nobody() -> None:
    options = resolve({"kafka.bootstrap.servers": "127.0.0.1:1"})
    writer = TaskWriter(options, layout("value", topic="t"), Identity("q", 0, 0, "r"))
    empty = pa.RecordBatch.from_pydict({"value": pa.array([], pa.string())})
    assert writer.write([empty]).topics == set()
