"""The classes that Spark calls, with a task's context made up."""

from __future__ import annotations

import logging
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType
from tests.support.processes import BrokerProcess

from ottla_client.admin import NewTopic, OffsetSpec
from ottla_client.sync import Admin
from ottla_client.types import TopicPartition
from ottla_pipeline.source.errors import OptionError, SourceError
from ottla_pipeline.writing import BatchWriter, StreamWriter, WriteError, Written
from ottla_pipeline.writing.identity import Identity
from ottla_pipeline.writing.task import WriteTally

SCHEMA = StructType([StructField("value", StringType())])
_names = count()
RUN = "00000000-0000-0000-0000-000000000001"
LATER_RUN = "00000000-0000-0000-0000-000000000002"

Task = Callable[..., None]


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"writers-{next(_names)}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    return name


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Be in a task from now on, with these local properties; a batch of a stream is one with a number."""

    def become(number: int = 0, attempt: int = 0, batch: int | None = None, **properties: str) -> None:
        stream = {
            "sql.streaming.queryId": "query",
            "streaming.sql.batchId": str(batch),
            "spark.jobGroup.id": RUN,
        }
        reported = {
            **(stream if batch is not None else {}),
            **{name.replace("__", "."): value for name, value in properties.items()},
        }
        context = SimpleNamespace(
            partitionId=lambda: number, attemptNumber=lambda: attempt, getLocalProperty=reported.get
        )
        monkeypatch.setattr("ottla_pipeline.writing.writers.TaskContext.get", lambda: context)

    become()
    return become


def options(broker: BrokerProcess, topic: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, "kafka.linger.ms": "0", "topic": topic, **more}


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})


def groups(broker: BrokerProcess) -> set[str]:
    with Admin(broker.bootstrap) as admin:
        return set(admin.list_groups())


def size(broker: BrokerProcess, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    with Admin(broker.bootstrap) as admin:
        return admin.list_offsets({partition: OffsetSpec.LATEST})[partition].offset


def test_a_task_of_a_batch_goes_on_where_its_earlier_try_broke(
    broker: BrokerProcess, topic: str, task: Task
) -> None:
    made = BatchWriter(options(broker, topic), SCHEMA, False)
    writer = pickle.loads(pickle.dumps(made))
    before = groups(broker)

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows("a", "b")
        raise OSError("the executor lost its disk")

    with pytest.raises(OSError, match="lost its disk"):
        writer.write(broken())
    # What was on its way may have arrived or not.
    some = size(broker, topic)
    task(attempt=1)
    reported = writer.write(rows("a", "b", "c"))
    assert reported.tally.already == Counter({topic: some})
    assert size(broker, topic) == 3
    assert len(groups(broker) - before) == 1
    made.commit([reported, None])
    assert groups(broker) == before


def test_a_batch_that_fails_says_what_stays(
    broker: BrokerProcess, topic: str, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    writer = BatchWriter(options(broker, topic), SCHEMA, False)
    reported = writer.write(rows("a", "b"))
    with caplog.at_level(logging.INFO, "ottla_pipeline"):
        writer.abort([reported, None])
        writer.abort([])  # no task got so far, and the marks are gone: that is no failure
    assert "2 records of the tasks that were through" in caplog.text
    assert "stays until the broker forgets it" in caplog.text


def test_a_finished_micro_batch_is_marked(broker: BrokerProcess, topic: str, task: Task) -> None:
    writer = StreamWriter(options(broker, topic), SCHEMA, False)
    task(batch=0, sql__streaming__queryId=topic)
    reported = [writer.write(rows("a")), writer.write(rows("b", "c")), writer.write(iter(()))]
    writer.commit([*reported, None], 0)
    with Admin(broker.bootstrap) as admin:
        marks = admin.list_group_offsets(f"ottla-sink-{topic}")
    assert marks[TopicPartition(topic, 0)][:2] == (3, f"done 0 {RUN}")
    writer.commit([writer.write(iter(()))], 1)  # a batch without rows


def test_what_is_worth_a_line_is_logged(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = {"onTooLarge": "deadletter", "deadLetterTopic": "dead"}
    writer = StreamWriter(options(broker, topic, skipReplayed="never", **large), SCHEMA, False)
    identity = Identity("q", 3, 0, "r")
    counts = (Counter({topic: 5}), Counter({topic: 2}), Counter({topic: 1}), Counter({topic: 4}))
    reported = Written(identity, WriteTally({topic}, *counts))
    with caplog.at_level(logging.INFO, "ottla_pipeline"):
        writer.commit([reported, reported], 3)
        writer.abort([reported], 4)
    assert f"4 rows for topic {topic} had been written by an earlier try of batch 3" in caplog.text
    assert f"2 records for topic {topic} were too large, in batch 3: they are in topic dead" in caplog.text
    assert f"8 records that an earlier try has written to topic {topic} are not among the rows" in caplog.text
    assert "batch 4 failed; 5 records" in caplog.text
    assert "write them again" not in caplog.text


def test_speculation_is_refused(broker: BrokerProcess, topic: str, task: Task) -> None:
    task(spark__speculation="true")
    with pytest.raises(WriteError, match=r"spark\.speculation is on"):
        BatchWriter(options(broker, topic), SCHEMA, False).write(rows("a"))
    BatchWriter(options(broker, topic, skipReplayed="never"), SCHEMA, False).write(rows("a"))
    assert size(broker, topic) == 1


def test_rows_are_written_in_tasks_alone(broker: BrokerProcess, topic: str, task: Task) -> None:
    writer = StreamWriter(options(broker, topic), SCHEMA, False)
    with pytest.raises(WriteError, match="which streaming query and batch"):
        writer.write(rows("a"))


def test_topics_are_not_overwritten_but_by_complete_mode_appended_to(
    broker: BrokerProcess, topic: str
) -> None:
    with pytest.raises(WriteError, match="can't be overwritten"):
        BatchWriter(options(broker, topic), SCHEMA, True)
    StreamWriter(options(broker, topic), SCHEMA, True)


def test_errors_of_the_client_are_one_line(topic: str, task: Task) -> None:
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "300", "topic": topic}
    with pytest.raises(SourceError, match=r"127\.0\.0\.1:1") as error:
        BatchWriter(nowhere, SCHEMA, False).write(rows("a"))
    assert "\n" not in str(error.value)


# A write inside foreachBatch, and one that the program names ----------------------------------------------------------


def once(writer: BatchWriter, *values: str, finish: bool = True) -> Counter[str]:
    """A write of one task; returns how many rows had been there already."""
    reported = writer.write(rows(*values))
    if finish:
        writer.commit([reported])
    return reported.tally.already


def test_a_write_inside_foreach_batch_is_known_again_after_a_restart(
    broker: BrokerProcess, topic: str, task: Task
) -> None:
    query = {"sql__streaming__queryId": topic}

    def write(*values: str, finish: bool = True) -> Counter[str]:
        return once(BatchWriter(options(broker, topic), SCHEMA, False), *values, finish=finish)

    task(batch=0, **query)
    assert write("a", "b") == {}
    task(batch=1, **query)
    assert write("a", "c", finish=False) == {}
    # The driver is killed before it commits, and the batch comes again: what it has written is there.
    task(batch=1, spark__jobGroup__id=LATER_RUN, **query)
    assert write("a", "c", "d") == {topic: 2}
    # It is killed again, before Spark has it in the checkpoint; and so is the next driver.
    for run in (RUN, LATER_RUN):
        task(batch=1, spark__jobGroup__id=run, **query)
        assert write("a", "c", "d") == {topic: 3}
    task(batch=2, spark__jobGroup__id=LATER_RUN, **query)
    assert write("a") == {}
    assert size(broker, topic) == 6
    assert f"ottla-sink-{topic}-{topic}" in groups(broker)


def test_two_writes_to_a_topic_inside_foreach_batch_need_names(
    broker: BrokerProcess, topic: str, task: Task
) -> None:
    """Whether the first of them is done or not: rows that both have could be taken for one another."""
    for query, finish in ((f"{topic}-a", True), (f"{topic}-b", False)):
        task(batch=0, sql__streaming__queryId=query)
        once(BatchWriter(options(broker, topic), SCHEMA, False), "a", finish=finish)
        with pytest.raises(WriteError, match=r"by two writes inside foreachBatch.*set txnAppId"):
            once(BatchWriter(options(broker, topic), SCHEMA, False), "a")
        for name in ("one", "two"):
            named = options(broker, topic, txnAppId=f"{query}-{name}", txnVersion="0")
            once(BatchWriter(named, SCHEMA, False), "a")
    assert size(broker, topic) == 6
    task(batch=1, sql__streaming__queryId=f"{topic}-a", spark__jobGroup__id="nightly")
    with pytest.raises(WriteError, match="job group is 'nightly'"):
        once(BatchWriter(options(broker, topic), SCHEMA, False), "a")
    once(BatchWriter(options(broker, topic, skipReplayed="never"), SCHEMA, False), "a")


def test_writes_to_several_topics_inside_foreach_batch(broker: BrokerProcess, topic: str, task: Task) -> None:
    """The one that was done before the driver was killed says nothing of the one that wasn't."""
    schema = StructType([StructField("topic", StringType()), StructField("value", StringType())])
    other = f"{topic}-other"
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(other, partitions=1)])
    given = options(broker, topic)
    del given["topic"]

    def write(name: str, *values: str, finish: bool = True) -> None:
        writer = BatchWriter(given, schema, False)
        columns = {"topic": [name] * len(values), "value": list(values)}
        reported = writer.write(iter([pa.RecordBatch.from_pydict(columns)]))
        if finish:
            writer.commit([reported])

    task(batch=0, sql__streaming__queryId=topic)
    write(topic, "a", "b")
    write(other, "a", finish=False)
    for run in (RUN, LATER_RUN):
        task(batch=0, sql__streaming__queryId=topic, spark__jobGroup__id=run)
        if run == LATER_RUN:
            write(topic, "a", "b")
            write(other, "a", "b")
    assert (size(broker, topic), size(broker, other)) == (2, 2)


def test_a_write_that_is_named_is_done_once(broker: BrokerProcess, topic: str, task: Task) -> None:
    """Started by hand again, in the same order or another."""

    def write(version: int, *values: str, finish: bool = True) -> Counter[str]:
        named = options(broker, topic, txnAppId=f"nightly-{topic}", txnVersion=str(version))
        return once(BatchWriter(named, SCHEMA, False), *values, finish=finish)

    assert write(20, "a", "b", finish=False) == {}
    assert write(20, "b", "a", "c") == {topic: 2}
    assert write(20, "b", "a", "c") == {topic: 3}
    assert write(22, "a", finish=False) == {}
    with pytest.raises(WriteError, match="txnVersion is 21, and 22 has begun"):
        write(21, "x")
    assert write(22, "a", "b") == {topic: 1}
    assert write(20, "a", "b", "c") == {topic: 3}, "an older one counts as done"
    assert write(22, "a", "b") == {topic: 2}, "and leaves the marks alone"
    assert size(broker, topic) == 5


def test_a_stream_has_names_already(broker: BrokerProcess, topic: str) -> None:
    named = options(broker, topic, txnAppId="a", txnVersion="1")
    with pytest.raises(OptionError, match="txnAppId is for batch writes"):
        StreamWriter(named, SCHEMA, False)
