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
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.writing import BatchWriter, StreamWriter, WriteError, Written
from ottla_pipeline.writing.identity import Identity

SCHEMA = StructType([StructField("value", StringType())])
_names = count()

Task = Callable[..., None]


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"writers-{next(_names)}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
    return name


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    """Be in a task from now on, with these local properties."""

    def become(number: int = 0, attempt: int = 0, **properties: str) -> None:
        told = {
            "sql.streaming.queryId": "query",
            "streaming.sql.batchId": "0",
            "spark.jobGroup.id": "run",
            **{name.replace("__", "."): value for name, value in properties.items()},
        }
        context = SimpleNamespace(
            partitionId=lambda: number, attemptNumber=lambda: attempt, getLocalProperty=told.get
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
    told = writer.write(rows("a", "b", "c"))
    assert told.already == Counter({topic: some})
    assert size(broker, topic) == 3
    assert len(groups(broker) - before) == 1
    made.commit([told, None])
    assert groups(broker) == before


def test_a_batch_that_fails_says_what_stays(
    broker: BrokerProcess, topic: str, task: Task, caplog: pytest.LogCaptureFixture
) -> None:
    writer = BatchWriter(options(broker, topic), SCHEMA, False)
    told = writer.write(rows("a", "b"))
    with caplog.at_level(logging.INFO, "ottla_pipeline"):
        writer.abort([told, None])
        writer.abort([])  # no task got so far, and the marks are gone: that is no failure
    assert "2 records of the tasks that were through" in caplog.text
    assert "stays until the broker forgets it" in caplog.text


def test_a_finished_micro_batch_is_marked(broker: BrokerProcess, topic: str, task: Task) -> None:
    writer = StreamWriter(options(broker, topic), SCHEMA, False)
    task(sql__streaming__queryId=topic)
    told = [writer.write(rows("a")), writer.write(rows("b", "c")), writer.write(iter(()))]
    writer.commit([*told, None], 0)
    with Admin(broker.bootstrap) as admin:
        marks = admin.list_group_offsets(f"ottla-sink-{topic}")
    assert marks[TopicPartition(topic, 0)][:2] == (3, "done 0 run")
    writer.commit([writer.write(iter(()))], 1)  # a batch without rows


def test_what_is_worth_a_line_is_logged(
    broker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    large = {"onTooLarge": "deadletter", "deadLetterTopic": "dead"}
    writer = StreamWriter(options(broker, topic, skipReplayed="never", **large), SCHEMA, False)
    identity = Identity("q", 3, 0, "r")
    told = Written(
        identity, {topic}, Counter({topic: 5}), Counter({topic: 2}), Counter({topic: 1}), Counter({topic: 4})
    )
    with caplog.at_level(logging.INFO, "ottla_pipeline"):
        writer.commit([told, told], 3)
        writer.abort([told], 4)
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
    task(streaming__sql__batchId=None)  # type: ignore[arg-type]
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
