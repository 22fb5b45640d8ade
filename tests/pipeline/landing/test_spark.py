"""The whole job, in Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from harness.ports import free_port
from tests.clients.transactional import Confluent
from tests.pipeline.landing.rounds import offsets, produce, rows
from tests.support.metrics import Scraped, get
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.transactions import wait_until_settled

from ottla_client.types import TopicPartition
from ottla_pipeline.landing import BatchDone, Landing, LandingError, land
from ottla_pipeline.landing.errors import Collision, NotLanded
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import FORMATS
from ottla_pipeline.source.cluster_queries import ClusterQueries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewTopic = Callable[..., str]
OwnBroker = Callable[..., BrokerProcess]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(2, prefix="flights")


@pytest.fixture
def landing(broker: BrokerProcess, topic: str, tmp_path: Path) -> Landing:
    return Landing(broker.bootstrap, str(tmp_path / "lake" / "flights"), topics=(topic,))


@pytest.mark.parametrize("form", FORMATS)
def test_a_job_of_several_batches(
    spark: SparkSession, landing: Landing, topic: str, form: str, new_name: Callable[..., str]
) -> None:
    for partition in (0, 1):
        produce(landing.bootstrap_servers, topic, [{"n": n, "half": n / 2} for n in range(1000)], partition)
    produce(landing.bootstrap_servers, topic, [b"?"])
    group = new_name("pipeline")
    dead = str(Path(landing.table).parent / "dead")
    job = replace(
        landing, format=form, values="json", group=group, max_records=800, dead_letters=f"table:{dead}"
    )
    batches: list[BatchDone] = []
    done = land(job, spark, batches.append)
    assert (done.rows, done.dead_letters, done.skipped) == (2000, 1, 0)
    assert done.batches == len(batches) >= 3
    assert sum(one.rows for one in batches) == 2000
    assert done.offsets == {topic: {0: 1001, 1: 1000}}
    assert all(set(one.durations) == {"read", "commit", "dead_letters", "group"} for one in batches)
    assert batches[0].latest == done.offsets
    assert offsets(job, topic) == [list(range(1000)), list(range(1000))]
    assert rows(job, "n", "half")[:2] == [(0, 0.0), (1, 0.5)]
    with ClusterQueries(landing.bootstrap_servers) as broker:
        assert broker.group_offsets(group) == {TopicPartition(topic, 0): 1001, TopicPartition(topic, 1): 1000}
    assert land(job, spark).batches == 0


def test_a_crash_after_the_tables_commit(
    spark: SparkSession, landing: Landing, topic: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The table alone says where to go on; a checkpoint, as older versions had, has no effect."""
    job = replace(landing, checkpoint=str(tmp_path / "checkpoint"))
    produce(job.bootstrap_servers, topic, [b"a"] * 100)

    def crash(done: BatchDone) -> None:
        raise RuntimeError("the driver is gone")

    with pytest.raises(RuntimeError, match="the driver is gone"):
        land(job, spark, crash)
    assert "which has no effect" in caplog.text
    produce(job.bootstrap_servers, topic, [b"b"] * 10)
    done = land(job, spark)
    assert (done.skipped, done.rows) == (0, 10)
    assert offsets(job, topic) == [list(range(110))]


def test_transactions_of_a_real_producer(
    spark: SparkSession, broker: BrokerProcess, landing: Landing, topic: str, new_name: Callable[..., str]
) -> None:
    """Aborted records are left out, and an open transaction waits for its end."""
    job = replace(landing, isolation="read_committed", max_records=3)
    producer = Confluent(landing.bootstrap_servers, new_name("tx"))
    try:
        for end in (producer.commit, producer.abort, producer.commit, None):
            producer.begin()
            for partition in (0, 1, 0):
                producer.send(topic, b"{}", partition)
            producer.flush()
            if end is not None:
                end()
        produce(job.bootstrap_servers, topic, [b"behind the open one"])
        assert land(job, spark).rows == 6
        producer.commit()
        wait_until_settled(broker.bootstrap, topic)
        assert land(job, spark).rows == 4
    finally:
        producer.close()
    assert offsets(job, topic) == [[0, 1, 6, 7, 9, 10, 11], [0, 4, 6]]


def test_new_fields_in_the_middle_of_a_stream(spark: SparkSession, landing: Landing, topic: str) -> None:
    produce(landing.bootstrap_servers, topic, [{"a": n} for n in range(50)] + [{"a": 50, "b": True}])
    produce(landing.bootstrap_servers, topic, [{"c": 1.5}], 1)
    job = replace(landing, values="json", max_records=20)
    produce(landing.bootstrap_servers, topic, [{"a": 51, "d": "x"}] * 200)
    done = land(job, spark)
    assert done.rows == 252
    assert set(table_of(job).schema().names) >= {"a", "b", "c", "d"}
    assert [row for row in rows(job, "a", "b", "c") if row[1] or row[2]] == [
        (50, True, None),
        (None, None, 1.5),
    ]


def test_batches_by_the_clock_until_it_is_told_to_stop(
    spark: SparkSession, landing: Landing, topic: str
) -> None:
    port = free_port()
    job = replace(landing, trigger=0.1, metrics_listener=str(port))
    stop = threading.Event()

    def more(done: BatchDone) -> None:
        found = Scraped(get(f"127.0.0.1:{port}", "/metrics")[1])
        assert found("ottla_landing_rows_total", table=job.table) == done.end[topic][0]
        at = {"table": job.table, "topic": topic, "partition": 0}
        assert found("ottla_landing_lag_records", **at) == found("ottla_landing_lag_seconds", **at) == 0
        if done.end[topic][0] < 30:
            produce(job.bootstrap_servers, topic, [b"x"] * 10)
        else:
            stop.set()

    produce(job.bootstrap_servers, topic, [b"x"] * 10)
    done = land(job, spark, more, stop=stop)
    assert done.offsets[topic][0] == 30
    assert offsets(job, topic) == [list(range(30))]


def test_a_batch_under_way_is_landed_when_the_job_is_told_to_stop(
    spark: SparkSession, landing: Landing, topic: str
) -> None:
    job = replace(landing, format="parquet", task_bytes=1_000_000)
    for _ in range(20):
        produce(job.bootstrap_servers, topic, [b"x" * 1000] * 1000)
    stop, ended = threading.Event(), threading.Event()

    def stop_amid() -> None:
        while not ended.wait(0.01):
            if list(Path(job.table).rglob("*.parquet")):
                stop.set()

    watcher = threading.Thread(target=stop_amid)
    watcher.start()
    try:
        done = land(job, spark, stop=stop)
    finally:
        ended.set()
        watcher.join()
    assert stop.is_set()
    assert done.rows == 20_000
    land(job, spark)
    assert sum(map(len, offsets(job, topic))) == 20_000


def test_errors_are_one_line(spark: SparkSession, landing: Landing, topic: str) -> None:
    from ottla_client.sync import Admin

    produce(landing.bootstrap_servers, topic, [b"x"] * 10)
    with pytest.raises(
        NotLanded, match=f"^{topic}-0 offset 0: the value is not a JSON object; say where dead"
    ):
        land(replace(landing, values="json", schema="a INT"), spark)
    land(landing, spark)
    produce(landing.bootstrap_servers, topic, [b"x"] * 10)
    with Admin(landing.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 15})
    with pytest.raises(LandingError, match=r"offsets 10 to 14 .*retention") as caught:
        land(landing, spark)
    assert len(str(caught.value).splitlines()) == 1


def test_two_jobs_on_one_table(spark: SparkSession, landing: Landing, topic: str) -> None:
    job = replace(landing, max_records=5)
    produce(job.bootstrap_servers, topic, [b"x"] * 10)

    def meanwhile(_: BatchDone) -> None:
        land(job, spark)

    with pytest.raises(Collision, match=f"has {topic}-0 up to offset 10 now, and this job did not land that"):
        land(job, spark, meanwhile)
    assert offsets(job, topic) == [list(range(10))]


def test_a_worker_is_killed(spark: SparkSession, landing: Landing, topic: str) -> None:
    """Spark gives up on one machine; the job begins the batch again, and says so."""
    for _ in range(20):
        produce(landing.bootstrap_servers, topic, [b"x" * 1000] * 1000)
    job = replace(landing, task_bytes=1_000_000, max_records=10_000)
    over = threading.Event()
    killed: list[int] = []

    def kill() -> None:
        staged = Path(landing.table)
        while not over.is_set() and not killed:
            if staged.is_dir() and any(staged.glob("*.parquet")):
                java = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
                for daemon in psutil.Process(java).children():
                    # Not the daemon itself: Spark then fails other tests' queries when it ends its idle workers.
                    for worker in daemon.children():
                        killed.append(worker.pid)
                        worker.kill()
            over.wait(0.002)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        done = land(job, spark)
    finally:
        over.set()
        killer.join()
    assert killed
    assert done.offsets[topic][0] == 20_000
    assert offsets(job, topic) == [list(range(20_000))]


def test_the_broker_is_killed_under_a_job(spark: SparkSession, own_broker: OwnBroker, tmp_path: Path) -> None:
    broker = own_broker()
    create_topic(broker, "flights", 1)
    for _ in range(10):
        produce(broker.bootstrap, "flights", [b"x" * 100] * 1000)
    job = Landing(
        broker.bootstrap,
        str(tmp_path / "flights"),
        topics=("flights",),
        max_records=1000,
        segments="never",
        group="g",
    )

    def kill(done: BatchDone) -> None:
        if done.batch_id == 2:
            broker.kill()
            threading.Timer(1.0, broker.start).start()

    done = land(job, spark, kill)
    assert done.rows == 10_000
    assert offsets(job, "flights") == [list(range(10_000))]
