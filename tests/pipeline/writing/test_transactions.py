"""Batches written in one transaction, by the classes that Spark calls; a task's context is made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType
from tests.pipeline.writing.written import records
from tests.support.processes import BrokerProcess
from tests.support.transactions import wait_until_settled

from ottla_client.errors import ProducerFencedError, RequestTimeoutError, TransactionAbortedError
from ottla_client.sync import Admin, Producer
from ottla_client.types import TopicPartition
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.writing import BatchWriter, RecordTooLarge, StreamWriter, WriteError, Written

SCHEMA = StructType([StructField("value", StringType())])
RUNS = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(4)]


class Query:
    """A streaming query on one topic: its batches in transactions or not, in one run after the other."""

    def __init__(self, broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.topic = topic
        self.run = RUNS[0]
        self.schema = SCHEMA
        self._monkeypatch = monkeypatch

    def options(self, **more: str) -> dict[str, str]:
        given = {
            "kafka.bootstrap.servers": self.broker.bootstrap,
            "kafka.linger.ms": "0",
            "topic": self.topic,
        }
        return {**given, "transactional": "true", **{k.replace("__", "."): v for k, v in more.items()}}

    def become_task(self, number: int, batch: int, speculation: str = "true") -> None:
        properties = {
            "sql.streaming.queryId": self.topic,
            "streaming.sql.batchId": str(batch),
            "spark.jobGroup.id": self.run,
            "spark.speculation": speculation,
        }
        context = SimpleNamespace(
            partitionId=lambda: number, attemptNumber=lambda: number, getLocalProperty=properties.get
        )
        self._monkeypatch.setattr("ottla_pipeline.writing.writers.TaskContext.get", lambda: context)

    def tasks(self, batch: int, *tasks: list[str], **more: str) -> tuple[StreamWriter, list[Written]]:
        writer = StreamWriter(self.options(**more), self.schema, False)
        reports = []
        for number, values in enumerate(tasks):
            self.become_task(number, batch, more.get("transactional", "true"))
            reports.append(writer.write(rows(values)))
        return writer, reports

    def write(self, batch: int, *tasks: list[str], **more: str) -> None:
        writer, reports = self.tasks(batch, *tasks, **more)
        writer.commit([*reports, None], batch)
        wait_until_settled(self.broker.bootstrap, self.topic)

    def marks(self) -> dict[int, str]:
        with Admin(self.broker.bootstrap) as admin:
            found = admin.list_group_offsets(f"ottla-sink-{self.topic}", require_stable=True)
        return {each.partition: mark.metadata for each, mark in found.items()}


@pytest.fixture
def query(broker: BrokerProcess, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> Query:
    return Query(broker, new_topic(2), monkeypatch)


def rows(values: list[str]) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})


def read(query: Query, isolation: str = "read_committed") -> str:
    """The values, sorted, in one word."""
    found = records(query.broker, query.topic, isolation)
    return "".join(sorted((record.value or b"").decode() for record in found))


def test_a_batch_comes_as_a_whole_with_its_mark(query: Query) -> None:
    writer, reports = query.tasks(0, ["a", "b"], [], ["c"])
    assert read(query, "read_uncommitted") == ""
    assert query.marks() == {}
    writer.commit([*reports, None], 0)
    wait_until_settled(query.broker.bootstrap, query.topic)
    assert read(query) == "abc"
    assert query.marks() == dict.fromkeys((0, 1), f"done 0 {RUNS[0]}")
    assert {record.headers for record in records(query.broker, query.topic, "read_committed")} == {()}
    query.write(1, ["d"])
    query.write(2, [])
    assert read(query) == "abcd"
    assert query.marks() == dict.fromkeys((0, 1), f"done 1 {RUNS[0]}")


def test_a_driver_that_is_killed_in_the_transaction(query: Query, is_kafka: bool) -> None:
    """What it left open is aborted by the batch's next try, and it can't commit that any more."""
    query.write(0, ["a"])
    group = f"ottla-sink-{query.topic}"
    with Producer(query.broker.bootstrap, transactional_id=group) as killed:
        killed.begin_transaction()
        killed.send(query.topic, b"b", partition=0).result(60)
        killed.send(query.topic, b"c", partition=1).result(60)
        killed.send_offsets_to_transaction({TopicPartition(query.topic, 0): 2}, group)
        assert (read(query, "read_uncommitted"), read(query)) == ("abc", "a")
        query.run = RUNS[1]
        query.write(1, ["c"], ["b"])
        assert (read(query, "read_uncommitted"), read(query)) == ("abbcc", "abc")
        # Version 2 learns at its commit that it was fenced, and of whom at its abort; Kafka 3.9 has only version 1.
        with pytest.raises(ProducerFencedError if is_kafka else TransactionAbortedError):
            killed.commit_transaction()
        with pytest.raises(ProducerFencedError):
            killed.abort_transaction()
    assert read(query) == "abc"
    assert query.marks() == dict.fromkeys((0, 1), f"done 1 {RUNS[1]}")


def test_a_driver_that_is_killed_after_the_commit(query: Query) -> None:
    """Its rows are not looked at: they may be others, and in other tasks."""
    query.write(0, ["a"])
    query.write(1, ["b"], ["c"])
    query.run = RUNS[1]
    query.write(1, ["c", "x"])
    query.write(0, ["a"])
    assert read(query, "read_uncommitted") == "abc"
    query.write(2, ["d"])
    assert read(query) == "abcd"


def test_a_commit_without_an_answer(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch fails, although its transaction was committed; the next try finds that out."""
    commit = Producer.commit_transaction

    def lost(self: Producer, timeout: float | None = None) -> None:
        commit(self, timeout)
        raise RequestTimeoutError("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(Producer, "commit_transaction", lost)
        with pytest.raises(SourceError, match="no answer"):
            query.write(0, ["a"])
    query.run = RUNS[1]
    query.write(0, ["a"])
    assert read(query, "read_uncommitted") == "a"


def test_from_a_sink_without_transactions_and_back(query: Query) -> None:
    """A batch that one mode began is finished by the other, with the same checkpoint."""
    query.write(0, ["a"], transactional="false")
    query.tasks(1, ["b", "c"], transactional="false")  # killed before its second task and its mark
    query.run = RUNS[1]
    query.write(1, ["c", "b"], ["b", "d"])
    assert read(query) == "abbcd"
    query.write(2, ["e"])
    query.run = RUNS[2]
    query.write(2, ["e"], transactional="false")
    query.tasks(3, ["f"], transactional="false")
    query.run = RUNS[3]
    query.write(3, ["f", "g"])
    assert read(query, "read_uncommitted") == "abbcdefg"


def test_a_batch_that_fails_leaves_nothing(query: Query, new_topic: Callable[..., str]) -> None:
    query.topic = new_topic(1, cleanup_policy="compact")
    writer, reports = query.tasks(0, ["a"], ["b"])
    with pytest.raises(WriteError, match="INVALID_RECORD") as error:
        writer.commit([*reports], 0)
    writer.abort([*reports], 0)
    assert "\n" not in str(error.value)
    assert read(query) == ""
    query.schema = StructType([*SCHEMA.fields, StructField("partition", IntegerType())])
    wrong = pa.RecordBatch.from_pydict({"value": ["a"], "partition": pa.array([9], pa.int32())})
    writer = StreamWriter(query.options(), query.schema, False)
    with pytest.raises(SourceError, match="no partition 9"):
        writer.commit([writer.write(iter([wrong]))], 0)
    assert query.marks() == {}


@pytest.mark.parametrize("by", ["producer", "topic"])
def test_dead_letters_are_part_of_the_transaction(
    query: Query, new_topic: Callable[..., str], by: str
) -> None:
    query.topic = new_topic(1, **({"max_message_bytes": "2000"} if by == "topic" else {}))
    dead = new_topic(1)
    more = {"kafka__max__request__size": "2000"} if by == "producer" else {}
    large = ["x" * 3000, "y" * 3000]
    with pytest.raises(RecordTooLarge):
        query.write(0, ["a", *large], **more)
    more |= {"onTooLarge": "deadletter", "deadLetterTopic": dead}
    for run in RUNS[1:3]:
        query.run = run
        query.write(0, ["a", *large], ["b", large[0]], **more)
    assert read(query) == "ab"
    wait_until_settled(query.broker.bootstrap, dead)
    found = records(query.broker, dead, "read_committed")
    assert sum(len(record.value or b"") for record in found) == 9000
    assert dict(found[0].headers)["ottla.dead.topic"] == query.topic.encode()


def test_batch_writes(query: Query) -> None:
    """By themselves, with a name, and inside foreachBatch."""

    def write(*values: str, finish: bool = True, **more: str) -> None:
        writer = BatchWriter(query.options(**more), SCHEMA, False)
        reports = [writer.write(rows([each])) for each in values]
        if finish:
            writer.commit([*reports])
            wait_until_settled(query.broker.bootstrap, query.topic)
        else:
            writer.abort([*reports, None])

    query.become_task(0, 5)
    named = {"txnAppId": f"nightly-{query.topic}", "txnVersion": "7"}
    write("a", "b", finish=False, **named)
    write("a", "b", **named)
    write("b", "a", **named)
    write("a", **{**named, "txnVersion": "6"})
    write("c")
    with pytest.raises(WriteError, match="by two writes inside foreachBatch"):
        write("c")
    write("d", "e", skipReplayed="never", kafka__transactional__id=f"own-{query.topic}")
    assert read(query, "read_uncommitted") == "abcde"


def test_a_timeout_that_the_broker_refuses(query: Query) -> None:
    with pytest.raises(
        SourceError, match="transaction_timeout_ms is 2000000000, which is more than the broker's"
    ):
        query.write(0, ["a"], kafka__transaction__timeout__ms="2000000000")
