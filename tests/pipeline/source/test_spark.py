"""``format("ottla")`` in Spark: batches, streams, and the errors that a user sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from harness.ports import free_port
from tests.pipeline.source.conftest import Put
from tests.support.metrics import Scraped
from tests.support.processes import BrokerProcess
from tests.support.spark import patiently
from tests.support.waiting import wait_for

from ottla_client.sync import Admin, Consumer, Producer
from ottla_client.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NOON = 1_700_000_000_000
Options = Callable[..., dict[str, str]]
Rows = list[tuple[int, int]]


@pytest.fixture
def table(spark: SparkSession, options: Options) -> Callable[..., DataFrame]:
    """Topics as a table."""
    return lambda **given: spark.read.format("ottla").options(**options(**given)).load()


@pytest.fixture
def run(spark: SparkSession, options: Options, tmp_path: Path) -> Callable[..., Rows]:
    """Runs a query to its end, on the test's checkpoint; the partition and offset of each row that came."""

    def make(fail_in: int | None = None, **given: str) -> Rows:
        rows: Rows = []

        def take(batch: DataFrame, number: int) -> None:
            if number == fail_in:
                raise RuntimeError("the sink fails")
            rows.extend((row.partition, row.offset) for row in batch.collect())

        stream = spark.readStream.format("ottla").options(**options(**given)).load()
        writer = stream.writeStream.foreachBatch(take).option(
            "checkpointLocation", str(tmp_path / "checkpoint")
        )

        def once() -> None:
            query = writer.trigger(availableNow=True).start()
            try:
                query.awaitTermination(120)
            finally:
                query.stop()

        patiently(once)
        return rows

    return make


def said(error: BaseException) -> str:
    """What a user reads: our line, and neither a Python nor a Java stack behind it."""
    text = str(error)
    assert "Traceback" not in text, text
    assert "\tat " not in text, text
    return text


def test_columns_and_types_are_those_of_sparks_connector(
    table: Callable[..., DataFrame], broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2, retention_ms=-1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"one", b"k", partition=0, timestamp_ms=NOON, headers=[("a", b"1"), ("a", None)])
        producer.send(topic, None, None, partition=1, timestamp_ms=NOON + 1)
    found = table(subscribe=topic, includeHeaders="true")
    assert found.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    first, second = found.selectExpr("*", "unix_millis(timestamp) AS millis").sort("partition").collect()
    assert (bytes(first.key), bytes(first.value), first.topic, first.partition) == (b"k", b"one", topic, 0)
    assert (first.offset, first.millis, first.timestampType) == (0, NOON, 0)
    assert [(each.key, each.value and bytes(each.value)) for each in first.headers] == [
        ("a", b"1"),
        ("a", None),
    ]
    assert (second.key, second.value, second.millis) == (None, None, NOON + 1)
    assert not second.headers


def test_columns_that_are_asked_for(
    spark: SparkSession, options: Options, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 3)
    reader = spark.read.format("ottla").options(**options(subscribe=topic))
    rows = reader.schema("offset bigint, value binary").load().collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(0, b"0:0"), (1, b"0:1"), (2, b"0:2")]
    with pytest.raises(Exception, match="the column offset is of type bigint, not int") as caught:
        reader.schema("offset int").load().collect()
    said(caught.value)


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_with_and_without_pushdown(
    spark: SparkSession,
    table: Callable[..., DataFrame],
    new_topic: Callable[..., str],
    put: Put,
    pushdown: str,
) -> None:
    topic = new_topic(2)
    put(topic, 5)
    put(topic, 5, partition=1)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    try:
        found = table(subscribe=topic, minPartitions="4")
        assert found.rdd.getNumPartitions() == 4
        assert found.where("partition = 1 AND offset >= 3").count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.parametrize(
    ("schema", "wrong", "what"),
    [
        (
            "offset bigint",
            {"startingOfset": "earliest"},
            "unknown option 'startingofset'; did you mean startingOffsets",
        ),
        ("offset int", {}, "the column offset is of type bigint, not int"),
        (None, {"endingOffsets": "latest"}, "endingOffsets is for batches; a stream has no end"),
    ],
)
def test_what_is_wrong_with_a_stream_is_said_when_it_starts(
    spark: SparkSession,
    options: Options,
    tmp_path: Path,
    schema: str | None,
    wrong: dict[str, str],
    what: str,
) -> None:
    reader = spark.readStream.format("ottla").options(**options(subscribe="t", **wrong))
    stream = (reader if schema is None else reader.schema(schema)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match=what) as caught:
        query.awaitTermination()
    said(caught.value)


def test_a_wrong_option_is_said_when_the_table_is_loaded(table: Callable[..., DataFrame]) -> None:
    with pytest.raises(
        Exception, match="unknown option 'startingofset'; did you mean startingOffsets"
    ) as caught:
        table(subscribe="t", startingOfset="earliest")
    said(caught.value)


def test_nobody_to_ask(spark: SparkSession, options: Options) -> None:
    given = {
        **options(subscribe="t", kafka__request__timeout__ms="1000"),
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }
    with pytest.raises(
        Exception, match=r"no bootstrap server answered .*127.0.0.1:1: connection refused"
    ) as caught:
        spark.read.format("ottla").options(**given).load().count()
    said(caught.value)


def test_a_batch_that_can_not_be_decoded(
    spark: SparkSession, own_broker: Callable[..., BrokerProcess]
) -> None:
    broker = own_broker()
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=0) as producer:
        for number in range(3):
            producer.send("t", f"value {number}".encode(), partition=0)
            producer.flush()
    (segment,) = broker.folder.glob("t-0/*.log")
    segment.write_bytes(segment.read_bytes().replace(b"value 1", b"value X"))
    reader = spark.read.format("ottla").options(
        **{"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", "segments": "never"}
    )
    with pytest.raises(
        Exception, match=r"t-0: the record batch at offset 1 can't be read: .*checksum"
    ) as caught:
        reader.load().count()
    said(caught.value)
    rows = reader.options(onCorrupt="deadletter", deadLetterTopic="bad").load().collect()
    assert [row.offset for row in rows] == [0, 2]
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("bad", 0)])
        records: list[Any] = []
        while not records:
            records += consumer.poll(1)
    assert b"value X" in records[0].value
    headers = {name: value.decode() for name, value in records[0].headers}
    assert (headers["ottla.topic"], headers["ottla.partition"], headers["ottla.offset"]) == ("t", "0", "1")
    assert "checksum" in headers["ottla.error"]


def test_a_stream_reads_each_record_once_over_restarts_and_tells_its_group(
    run: Callable[..., Rows],
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    put: Put,
    admin: Admin,
    tmp_path: Path,
) -> None:
    topic, group = new_topic(2), new_name("group")
    given = {"subscribe": topic, "startingOffsets": "earliest", "kafka__group__id": group}

    def committed() -> dict[int, int]:
        return {each.partition: at.offset for each, at in admin.list_group_offsets(group).items()}

    put(topic, 8)
    put(topic, 2, partition=1)
    first = run(**given, maxOffsetsPerTrigger="5")
    assert sorted(first) == [(0, each) for each in range(8)] + [(1, 0), (1, 1)]
    assert committed() == {0: 8, 1: 2}, "the last batch, too"
    assert len(list((tmp_path / "checkpoint" / "commits").glob("[0-9]"))) == 2

    put(topic, 3, partition=1)
    with pytest.raises(Exception, match="the sink fails"):
        run(fail_in=2, **given)
    assert committed() == {0: 8, 1: 2}
    put(topic, 1)
    assert sorted(run(**given)) == [(0, 8), (1, 2), (1, 3), (1, 4)]
    assert committed() == {0: 9, 1: 5}
    assert run(**given) == []


def test_latest_loses_nothing_when_the_first_batch_fails(
    run: Callable[..., Rows], new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 2)
    with pytest.raises(Exception, match="the sink fails"):
        run(fail_in=0, subscribe=topic)
    put(topic, 3)
    assert sorted(run(subscribe=topic)) == [(0, 2), (0, 3), (0, 4)]


def test_loss_stops_a_stream_with_a_line(
    run: Callable[..., Rows], new_topic: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic = new_topic()
    put(topic, 2)
    given = {"subscribe": topic, "startingOffsets": "earliest"}
    assert len(run(**given)) == 2
    put(topic, 8)
    admin.delete_records({TopicPartition(topic, 0): 5})
    with pytest.raises(
        Exception, match=f"{topic}-0: offsets 2 to 4 .retention: the log starts at 5"
    ) as caught:
        run(**given)
    said(caught.value)
    assert run(**given, failOnDataLoss="false") == [(0, each) for each in range(5, 10)]


def test_a_listener_commits_at_once(
    spark: SparkSession,
    options: Options,
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    put: Put,
    admin: Admin,
    tmp_path: Path,
) -> None:
    """The next batch is an hour away, and with it the reader's own commit. Its metrics are there at once, too."""
    from ottla_pipeline.listener import GroupCommitListener
    from ottla_pipeline.query_metrics import QueryMetrics

    topic, group = new_topic(), new_name("group")
    put(topic, 4)
    given = options(subscribe=topic, startingOffsets="earliest", kafka__group__id=group)
    listener, metrics = GroupCommitListener(given), QueryMetrics(given, "0")
    spark.streams.addListener(listener)
    spark.streams.addListener(metrics)
    stream = spark.readStream.format("ottla").options(**given).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))

    def once() -> None:
        query = writer.trigger(processingTime="1 hour").start()
        try:
            wait_for(lambda: admin.list_group_offsets(group) or not query.isActive, "the commit", timeout=120)
            query.awaitTermination(1)  # raises what went wrong
        finally:
            query.stop()

    try:
        patiently(once)
        assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 4

        def ended() -> Scraped | None:
            found = Scraped(metrics.render().decode())
            return (
                found if found.samples.get("ottla_query_active", {}).values() and not active(found) else None
            )

        def active(found: Scraped) -> bool:
            return any(found.samples["ottla_query_active"].values())

        found = wait_for(ended, "the end of the query in its metrics")
        (rows,) = found.samples["ottla_query_rows_total"].values()
        assert rows >= 4
        assert list(found.samples["ottla_query_lag_records"].values()) == [0]
    finally:
        spark.streams.removeListener(listener)
        spark.streams.removeListener(metrics)
        metrics.close()


def test_the_listener_reads_progress_of_any_query(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from ottla_pipeline.listener import GroupCommitListener
    from ottla_pipeline.source.cluster_queries import ClusterQueries
    from ottla_pipeline.source.errors import OptionError

    done: list[dict[TopicPartition, int]] = []
    monkeypatch.setattr(ClusterQueries, "commit", lambda self, group, offsets: done.append(dict(offsets)))

    def progress(*ends: object, name: str | None = None) -> Any:
        text = json.dumps({"sources": [{"endOffset": end} for end in ends]})
        return SimpleNamespace(progress=SimpleNamespace(name=name, json=text))

    with pytest.raises(OptionError, match=r"set kafka\.group\.id"):
        GroupCommitListener(options(subscribe="a"))
    listener = GroupCommitListener(options(subscribePattern="a.*", kafka__group__id="g"))
    listener.onQueryProgress(progress({"a1": {"0": 5}}, '{"a2":{"0":6}}', {"b": {"0": 7}}, 17, "rate", None))
    assert done == [{TopicPartition("a1", 0): 5}, {TopicPartition("a2", 0): 6}]
    named = GroupCommitListener(options(assign='{"a":[0]}', kafka__group__id="g"), query="mine")
    named.onQueryProgress(progress({"a": {"0": 5}}, name="other"))
    named.onQueryProgress(progress({"a": {"0": 6}}, name="mine"))
    named.onQueryProgress(progress({"a": {"1": 7}}, name="mine"))
    assert done[2:] == [{TopicPartition("a", 0): 6}]
    listener.onQueryTerminated(SimpleNamespace())  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _no_query_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        assert request.getfixturevalue("spark").streams.active == []


def test_a_login_by_scram_in_both_spellings(spark: SparkSession, tmp_path: Path) -> None:
    port = free_port()
    broker = BrokerProcess(
        tmp_path / "data",
        {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "connection.failed.authentication.delay.ms": 10},
    )
    broker.settings["listeners"] = f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{port}"
    asked = {
        "kafka.bootstrap.servers": f"127.0.0.1:{port}",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.request.timeout.ms": "10000",
        "subscribe": "t",
        "segments": "never",
    }
    in_java = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    logins = (
        {"kafka.sasl.username": "alice", "kafka.sasl.password": "alice-secret"},
        {"kafka.sasl.jaas.config": f'{in_java} username="alice" password="alice-secret";'},
    )
    with broker:
        with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
            admin.set_password("alice", "alice-secret")
            producer.send("t", b"one").result()
        for login in logins:
            rows = spark.read.format("ottla").options(**asked, **login).load().collect()
            assert [bytes(row.value) for row in rows] == [b"one"]
            wrong = {name: text.replace("alice-secret", "a-guess") for name, text in login.items()}
            with pytest.raises(
                Exception, match=r"the login of alice by SCRAM-SHA-512 failed: .*; check sasl.username"
            ) as caught:
                spark.read.format("ottla").options(**asked, **wrong).load().collect()
            assert "a-guess" not in said(caught.value)
