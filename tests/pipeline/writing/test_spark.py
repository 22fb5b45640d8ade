"""DataFrames and streams of Spark, written with ``format("ottla")``."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.faults.jobs import committing, kill, under
from tests.pipeline.writing.written import records
from tests.support.processes import BrokerProcess
from tests.support.sink import values, wait_for_records
from tests.support.transactions import wait_until_settled
from tests.support.waiting import wait_for

from ottla_client.admin import NewTopic
from ottla_client.errors import ProducerFencedError, TransactionAbortedError
from ottla_client.producer.partitioner import partition_for_key
from ottla_client.sync import Admin, Producer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

_names = count()


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"spark-sink-{next(_names)}"
    with Admin(broker.bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=3)])
    return name


def groups(broker: BrokerProcess) -> set[str]:
    with Admin(broker.bootstrap) as admin:
        return set(admin.list_groups())


def test_a_dataframe_is_written_once_with_keys_and_headers(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    rows = spark.range(0, 1000, numPartitions=3).selectExpr(
        "concat('k', id) AS key",
        "cast(id AS string) AS value",
        "array(named_struct('key', 'h', 'value', cast('x' AS binary))) AS headers",
        "id * 2 AS unrelated",
    )
    rows.write.format("ottla").options(**{"kafka.bootstrap.servers": broker.bootstrap, "topic": topic}).mode(
        "append"
    ).save()
    found = records(broker, topic)
    assert Counter(record.value for record in found) == Counter(str(n).encode() for n in range(1000))
    for record in found:
        assert record.key is not None
        assert record.partition == partition_for_key(record.key, 3)
        assert record.headers[0] == ("h", b"x")
    assert not [name for name in groups(broker) if name.startswith("ottla-write-")]


def test_what_can_not_be_written_is_said_in_a_line(
    spark: SparkSession, broker: BrokerProcess, topic: str
) -> None:
    from pyspark.errors import PySparkException

    def write(rows: DataFrame, mode: str = "append", **options: str) -> str:
        options = {"kafka.bootstrap.servers": broker.bootstrap, **options}
        with pytest.raises(PySparkException) as error:
            rows.write.format("ottla").options(**options).mode(mode).save()
        return str(error.value)

    rows = spark.range(1).selectExpr("cast(id AS string) AS value")
    assert "set the option topic, or add a column topic" in write(rows)
    assert "topics can't be overwritten" in write(rows, "overwrite", topic=topic)
    assert "did you mean topic?" in write(rows, tpoic=topic)
    assert "the column value has the type bigint" in write(spark.range(1).toDF("value"), topic=topic)
    large = spark.range(1).selectExpr("repeat('x', 2000000) AS value")
    assert "set onTooLarge to skip or deadletter" in write(large, topic=topic)


def sink(rows: DataFrame, broker: BrokerProcess, topic: str, checkpoint: Path) -> DataStreamWriter:
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": topic,
        "checkpointLocation": str(checkpoint),
    }
    return rows.writeStream.format("ottla").options(**options).trigger(availableNow=True)


def run(writer: DataStreamWriter) -> None:
    """Wait until everything is written. Raises the stream's error."""
    query = writer.start()
    try:
        assert query.awaitTermination(540)
    finally:
        query.stop()


def lines(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.format("text").option("maxFilesPerTrigger", 2).load(str(folder))


def put(folder: Path, name: str, numbers: range) -> set[bytes]:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(f"{number}\n" for number in numbers))
    return {str(number).encode() for number in numbers}


def forget_last(checkpoint: Path) -> None:
    """As if all had been done, and only Spark did not get to know of the last batch."""
    last = max(
        (path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()),
        key=lambda p: int(p.name),
    )
    last.unlink()
    (checkpoint / "commits" / f".{last.name}.crc").unlink()


def test_a_stream_that_starts_again_does_not_double(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    expected = (
        put(folder, "a", range(100)) | put(folder, "b", range(100, 200)) | put(folder, "c", range(200, 250))
    )
    run(sink(lines(spark, folder), broker, topic, checkpoint))
    assert Counter(record.value for record in records(broker, topic)) == Counter(expected)
    forget_last(checkpoint)
    expected |= put(folder, "d", range(250, 300))
    run(sink(lines(spark, folder), broker, topic, checkpoint))
    found = records(broker, topic)
    assert Counter(record.value for record in found) == Counter(expected)
    batches = {(dict(record.headers)["ottla.write"] or b"").split(b"/")[1] for record in found}
    assert batches == {b"0", b"1", b"2"}


def test_a_stream_in_transactions(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """A batch comes again after its commit, beside a driver that hangs in the next one's transaction."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    expected = put(folder, "a", range(2_000)) | put(folder, "b", range(2_000, 4_000))
    expected |= put(folder, "c", range(4_000, 4_010))
    rows = lines(spark, folder)
    own = f"own-{topic}"
    options = {"transactional": "true", "kafka.transactional.id": own}

    def values(isolation: Any = "read_committed") -> Counter[bytes | None]:
        wait_until_settled(broker.bootstrap, topic)
        return Counter(record.value for record in records(broker, topic, isolation))

    run(sink(rows, broker, topic, checkpoint).options(**options))
    assert values() == values("read_uncommitted") == Counter(expected)
    forget_last(checkpoint)
    expected |= put(folder, "d", range(5_000, 5_010))
    with Producer(broker.bootstrap, transactional_id=own) as killed:
        killed.begin_transaction()
        killed.send(topic, b"5000").result(60)
        run(sink(rows, broker, topic, checkpoint).options(**options))
        with pytest.raises(TransactionAbortedError):
            killed.commit_transaction()
        with pytest.raises(ProducerFencedError):
            killed.abort_transaction()
    assert values() == Counter(expected)
    assert values("read_uncommitted") == Counter(expected) + Counter([b"5000"])


def test_a_commit_that_is_killed_in_its_transaction(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """SIGKILL for the process in which Spark commits the batch; ``make faults`` kills whole drivers as well."""
    from pyspark.errors import StreamingQueryException

    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    expected: Counter[bytes | None] = Counter(put(folder, "a", range(5_000)))
    transactional = sink(lines(spark, folder), broker, topic, checkpoint).option("transactional", "true")
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    # Small batches make the transaction long.
    query = transactional.option("kafka.batch.size", "500").start()
    try:
        wait_for_records(broker, topic, lambda: query.isActive)
        kill(committing(under(gateway.proc.pid)))
        with suppress(StreamingQueryException):
            assert query.awaitTermination(540)
    finally:
        query.stop()
    # Readers may see a batch come partition by partition, but no part of it stays without the others.
    wait_for(lambda: values(broker, topic) in (Counter(), expected), "all of the batch or nothing")
    run(transactional.option("kafka.batch.size", "16384"))
    wait_for(lambda: values(broker, topic) == expected, "each record once")


def test_a_batch_that_broke_in_the_middle_is_finished_later(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    expected = put(folder, "a", range(30_000)) | put(folder, "b", range(30_000, 60_000))
    rows = lines(spark, folder)
    breaking = rows.selectExpr("if(value = '25000', raise_error('on purpose'), value) AS value")
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run(sink(breaking, broker, topic, checkpoint))
    assert len(records(broker, topic)) < len(expected)
    run(sink(rows, broker, topic, checkpoint))
    assert Counter(record.value for record in records(broker, topic)) == Counter(expected)


def test_writes_inside_foreach_batch_are_known_again(
    spark: SparkSession, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    """The driver ends before the batch is in the checkpoint, amid its second write; one is unnamed, the other named."""
    from pyspark.errors import StreamingQueryException

    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    put(folder, "a", range(100))
    put(folder, "b", range(100, 30_000))
    put(folder, "c", range(30_000, 60_000))
    broken = [True]

    def write(rows: DataFrame, number: int) -> None:
        out = rows.write.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).mode("append")
        out.option("topic", topic).save()
        breaks = broken[0] and number == 1
        again = rows.selectExpr(
            "if(value = '55000', raise_error('on purpose'), value) AS value" if breaks else "value"
        )
        out = again.write.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).mode("append")
        out.option("topic", topic).option("txnAppId", f"{topic}-again").option("txnVersion", number).save()

    def run_all() -> None:
        writer = lines(spark, folder).writeStream.foreachBatch(write).trigger(availableNow=True)
        run(writer.option("checkpointLocation", str(checkpoint)))

    put(folder, "d", range(60_000, 60_010))
    with pytest.raises(StreamingQueryException, match="on purpose"):
        run_all()
    assert len(records(broker, topic)) < 2 * 60_010
    broken[0] = False
    run_all()
    expected = Counter(str(number).encode() for number in range(60_010) for _ in range(2))
    assert Counter(record.value for record in records(broker, topic)) == expected
    forget_last(checkpoint)
    run_all()
    assert Counter(record.value for record in records(broker, topic)) == expected
