"""Spark's own Kafka connector, unchanged: batches, streams and writing, with Java's consumer, admin and producer."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness import maven
from harness.brokers import Broker
from harness.java import QUICK, Unavailable
from tests.interop.secured import MODULES, Secured

from ottla_client.admin import NewPartitions, NewTopic
from ottla_client.producer.partitioner import partition_for_key
from ottla_client.sync import Admin, Producer
from ottla_client.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

MakeTopic = Callable[..., str]
START = (int(time.time()) - 3_600) * 1000
"""The first record's timestamp, in milliseconds: not so old that retention takes it."""

_CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": " ".join(QUICK),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_DEPRECATED = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with the connector's jars; its Java process ends with it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        jars = maven.spark_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.master("local[2]").appName("connector").config("spark.jars", jars)
        for name, value in {**_CONF, "spark.local.dir": str(folder / "local")}.items():
            builder = builder.config(name, value)
        session = builder.config("spark.sql.warehouse.dir", str(folder / "warehouse")).getOrCreate()
        session.sparkContext.setLogLevel("FATAL")
        yield session
        session.stop()
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(params=["admin", "consumer"])
def asked_by(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str]:
    """Who fetches offsets for the driver: the admin client, as it comes, or a consumer, as it was until Spark 3.0."""
    spark.conf.set(_DEPRECATED, str(request.param == "consumer").lower())
    yield request.param
    spark.conf.unset(_DEPRECATED)


def fill(broker: Broker, topic: str, partitions: int, records: int, first: int = 0) -> None:
    """Record n goes to partition n % partitions, a second after the one before, with key, value and a header."""
    with Producer(broker.address) as producer:
        for n in range(first, first + records):
            producer.send(
                topic,
                None if n % 10 == 9 else b"value-%d" % n,
                None if n % 10 == 8 else b"key-%d" % n,
                partition=n % partitions,
                timestamp_ms=START + 1000 * n,
                headers=[("n", b"%d" % n), ("n", b"again")] if n % 2 == 0 else (),
            )


def read(spark: SparkSession, broker: Broker, **options: Any) -> DataFrame:
    given = {"kafka.bootstrap.servers": broker.address, **options}
    return spark.read.format("kafka").options(**given).load()


def numbers(frame: DataFrame) -> list[int]:
    """Which records these are, by their timestamps."""
    rows = frame.selectExpr(f"(unix_millis(timestamp) - {START}) div 1000 AS n").collect()
    return sorted(row.n for row in rows)


def offsets(topic: str, *each: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(each)}})


def test_batches_have_every_column(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, asked_by: str
) -> None:
    topic = new_topic(partitions=3)
    fill(broker, topic, 3, 300)
    rows = read(spark, broker, subscribe=topic, includeHeaders="true").collect()
    assert len(rows) == 300
    for row in rows:
        n = row.offset * 3 + row.partition
        assert row.topic == topic
        assert row.key == (None if n % 10 == 8 else b"key-%d" % n)
        assert row.value == (None if n % 10 == 9 else b"value-%d" % n)
        assert row.timestampType == 0
        expected = [("n", b"%d" % n), ("n", b"again")] if n % 2 == 0 else None
        assert (None if row.headers is None else [(h.key, h.value) for h in row.headers]) == expected
    assert numbers(read(spark, broker, subscribe=topic)) == list(range(300))


def test_ranges_are_given_by_offsets_and_by_timestamps(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, asked_by: str
) -> None:
    topic = new_topic(partitions=2)
    fill(broker, topic, 2, 100)
    some = {"startingOffsets": offsets(topic, 10, -2), "endingOffsets": offsets(topic, 20, -1)}
    expected = [n for n in range(100) if n % 2 == 1 or 10 <= n // 2 < 20]
    assert numbers(read(spark, broker, subscribe=topic, **some)) == expected
    times = {"startingTimestamp": START + 30_500, "endingTimestamp": START + 60_000}
    assert numbers(read(spark, broker, subscribe=topic, **times)) == list(range(31, 60))
    by_partition = {
        "startingOffsetsByTimestamp": offsets(topic, START + 50_000, START + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
        "endingOffsetsByTimestamp": offsets(topic, START + 70_000, START + 2 * 10**9),
    }
    assert numbers(read(spark, broker, subscribe=topic, **by_partition)) == list(range(50, 70, 2))
    too_late = {"startingTimestamp": START + 10**9}
    # An error of Spark's or, where the consumer asks, of py4j's.
    with pytest.raises(Exception, match="No offset matched"):
        read(spark, broker, subscribe=topic, **too_late).count()


def test_topics_are_named_by_pattern_and_partitions_assigned(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, asked_by: str
) -> None:
    one, two = new_topic(partitions=2), new_topic(partitions=1)
    fill(broker, one, 2, 10)
    fill(broker, two, 1, 5, first=100)
    pattern = f"({one}|{two})"
    assert numbers(read(spark, broker, subscribePattern=pattern)) == [*range(10), *range(100, 105)]
    # Its admin client finds a pattern anywhere in a name, its consumer matches whole names.
    inside = numbers(read(spark, broker, subscribePattern=f"{two[1:]}$"))
    assert inside == ([*range(100, 105)] if asked_by == "admin" else [])
    assert numbers(read(spark, broker, subscribe=f"{one},{two}")) == [*range(10), *range(100, 105)]
    assert numbers(read(spark, broker, assign=json.dumps({one: [1]}))) == list(range(1, 10, 2))


def test_ranges_are_split_into_the_tasks_asked_for(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic
) -> None:
    topic = new_topic(partitions=2)
    fill(broker, topic, 2, 1000)
    split = read(spark, broker, subscribe=topic, minPartitions="7")
    assert split.rdd.getNumPartitions() >= 7
    assert numbers(split) == list(range(1000))
    both = read(spark, broker, subscribe=topic, maxRecordsPerPartition="120", minPartitions="3")
    assert both.rdd.getNumPartitions() >= 10
    assert numbers(both) == list(range(1000))


def test_groups_isolation_and_fetch_sizes_may_be_set(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, asked_by: str
) -> None:
    topic = new_topic(partitions=2)
    fill(broker, topic, 2, 500)
    settings = {
        "kafka.group.id": f"{topic}-group",
        "kafka.isolation.level": "read_committed",
        "kafka.max.partition.fetch.bytes": "1024",
        "kafka.max.poll.records": "7",
    }
    assert numbers(read(spark, broker, subscribe=topic, **settings)) == list(range(500))
    assert numbers(read(spark, broker, subscribe=topic, groupIdPrefix="mine")) == list(range(500))


def test_compressed_records_are_read(spark: SparkSession, broker: Broker, new_topic: MakeTopic) -> None:
    topic = new_topic()
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with Producer(broker.address, compression_type=codec) as producer:
            producer.send_batch(topic, [codec.encode() * 20] * 100)
    counted = read(spark, broker, subscribe=topic).groupBy("value").count().collect()
    assert {row.value[:4]: row["count"] for row in counted} == dict.fromkeys(
        (b"gzip", b"snap", b"lz4l", b"zstd"), 100
    )


class Stream:
    """A query that keeps what it reads in a table of Parquet, from one start to the next."""

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.folder = folder
        self.options = {"kafka.bootstrap.servers": broker.address, **options}

    def start(self, **trigger: Any) -> StreamingQuery:
        frame = self.spark.readStream.format("kafka").options(**self.options).load()
        writer = frame.writeStream.format("parquet").option(
            "checkpointLocation", str(self.folder / "checkpoint")
        )
        return writer.trigger(**trigger).start(str(self.folder / "out"))

    def run(self) -> list[int]:
        """All that there is; the sizes of the micro-batches."""
        query = self.start(availableNow=True)
        try:
            assert query.awaitTermination(300)
            return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
        finally:
            query.stop()

    @property
    def numbers(self) -> list[int]:
        return numbers(self.spark.read.parquet(str(self.folder / "out")))


def test_streams_go_on_where_they_were(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, tmp_path: Path, asked_by: str
) -> None:
    topic = new_topic(partitions=2)
    fill(broker, topic, 2, 100)
    stream = Stream(
        spark, broker, tmp_path, subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40"
    )
    assert stream.run() == [40, 40, 20]
    fill(broker, topic, 2, 50, first=100)
    assert stream.run() == [40, 10]
    with Admin(broker.address) as admin:
        admin.create_partitions({topic: NewPartitions(3)})
    fill(broker, topic, 3, 30, first=150)
    stream.run()
    assert stream.numbers == list(range(180))


def test_streams_start_at_the_end_and_find_topics_made_later(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    fill(broker, topic, 1, 10)
    metadata = {"kafka.metadata.max.age.ms": "500"}
    stream = Stream(spark, broker, tmp_path, subscribePattern=f"{topic}.*", **metadata)
    query = stream.start(processingTime="200 milliseconds")
    try:
        deadline = time.monotonic() + 300
        while not query.recentProgress:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        fill(broker, topic, 1, 10, first=10)
        later = f"{topic}-later"
        with Admin(broker.address) as admin:
            admin.create_topics([NewTopic(later, partitions=1)])
        fill(broker, later, 1, 10, first=20)
        while sum(progress.numInputRows for progress in query.recentProgress) < 20:
            assert time.monotonic() < deadline
            assert query.isActive, query.exception()
            time.sleep(0.2)
    finally:
        query.stop()
    assert stream.numbers == list(range(10, 30))


def test_minimum_offsets_are_waited_for(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = new_topic()
    fill(broker, topic, 1, 5)
    limits = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "1s"}
    stream = Stream(spark, broker, tmp_path, subscribe=topic, startingOffsets="earliest", **limits)
    query = stream.start(processingTime="100 milliseconds")
    try:
        deadline = time.monotonic() + 300
        while sum(progress.numInputRows for progress in query.recentProgress) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        query.stop()
    assert stream.numbers == list(range(5))


def test_records_that_are_gone_stop_a_stream_or_are_passed_over(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    topic = new_topic()
    fill(broker, topic, 1, 20)
    starting = {"subscribe": topic, "startingOffsets": offsets(topic, 5)}
    with Admin(broker.address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})
    strict = Stream(spark, broker, tmp_path / "strict", **starting, failOnDataLoss="true")
    with pytest.raises(PySparkException, match="failOnDataLoss"):
        strict.run()
    loose = Stream(spark, broker, tmp_path / "loose", **starting, failOnDataLoss="false")
    loose.run()
    assert loose.numbers == list(range(10, 20))
    batch = read(spark, broker, **starting, failOnDataLoss="false")
    assert numbers(batch) == list(range(10, 20))


def test_records_that_were_deleted_before_are_no_loss(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic
) -> None:
    topic = new_topic()
    fill(broker, topic, 1, 30)
    with Admin(broker.address) as admin:
        admin.delete_records({TopicPartition(topic, 0): 10})
    assert numbers(read(spark, broker, subscribe=topic)) == list(range(10, 30))


def test_dataframes_are_written(spark: SparkSession, broker: Broker, new_topic: MakeTopic) -> None:
    one, two = new_topic(partitions=5), new_topic(partitions=2)
    frame = spark.range(200).selectExpr(
        f"if(id < 150, '{one}', '{two}') AS topic",
        "concat('key-', id) AS key",
        "if(id % 7 = 0, null, cast(id AS string)) AS value",
        "if(id >= 150, 1, null) AS partition",
        "array(named_struct('key', 'h', 'value', cast(cast(id AS string) AS binary))) AS headers",
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker.address).save()
    written = read(spark, broker, subscribe=f"{one},{two}", includeHeaders="true").collect()
    assert Counter(row.topic for row in written) == {one: 150, two: 50}
    for row in written:
        n = int(row.key.removeprefix(b"key-"))
        assert row.value == (None if n % 7 == 0 else b"%d" % n)
        assert row.partition == (1 if n >= 150 else partition_for_key(row.key, 5))
        assert [(h.key, h.value) for h in row.headers] == [("h", b"%d" % n)]


def test_records_over_tls_with_a_login(spark: SparkSession, secured: Secured) -> None:
    options = {
        "kafka.bootstrap.servers": secured.sasl,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": secured.certificates.authority,
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{MODULES["SCRAM-SHA-512"]} required username="alice" password="alices";',
    }
    frame = spark.range(100).selectExpr("cast(id AS string) AS value")
    frame.write.format("kafka").options(**options, topic="from-spark").save()
    rows = spark.read.format("kafka").options(**options, subscribe="from-spark").load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))


def test_streams_are_written_idempotently_and_compressed(
    spark: SparkSession, broker: Broker, new_topic: MakeTopic, tmp_path: Path
) -> None:
    source, target = new_topic(partitions=2), new_topic(partitions=3)
    fill(broker, source, 2, 300)
    frame = (
        spark.readStream.format("kafka")
        .options(**{"kafka.bootstrap.servers": broker.address, "subscribe": source})
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "100")
        .load()
        .selectExpr("key", "value")
    )
    settings = {
        "kafka.bootstrap.servers": broker.address,
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.compression.type": "zstd",
        "topic": target,
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }
    query = frame.writeStream.format("kafka").options(**settings).trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300)
    finally:
        query.stop()
    rows = read(spark, broker, subscribe=target).collect()
    expected = Counter(
        (None if n % 10 == 8 else b"key-%d" % n, None if n % 10 == 9 else b"value-%d" % n) for n in range(300)
    )
    assert Counter((row.key, row.value) for row in rows) == expected
