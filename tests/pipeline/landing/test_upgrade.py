"""Tables and checkpoints that an older version left (tests/pipeline/data) go on, without a record lost or doubled."""

from __future__ import annotations

import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipeline.landing.rounds import rows, run, sent_to_topic
from tests.support.processes import BrokerProcess

from ottla_client.types import TopicPartition
from ottla_pipeline.landing import Landing, land
from ottla_pipeline.landing.dead_letter_sink import dead_table
from ottla_pipeline.source.cluster_queries import ClusterQueries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OwnBroker = Callable[..., BrokerProcess]
ARCHIVE = Path(__file__).parents[1] / "data/landed.tar.xz"
CATALOG = {"type": "sql", "uri": "sqlite:///catalog.db", "warehouse": "iceberg"}
WANTED = [(partition, n, n) for partition in (0, 1) for n in range(40) if n % 10 != 7]
DEAD = [(partition, n) for partition in (0, 1) for n in range(40) if n % 10 == 7]


@pytest.fixture
def old(own_broker: OwnBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BrokerProcess:
    """A broker with the topics, and the tables and checkpoints in the working directory."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    monkeypatch.chdir(tmp_path)
    # The records are as old as the archive.
    return own_broker(folder=tmp_path / "broker", settings={"log.retention.ms": -1})


def job(broker: BrokerProcess, table: str, **settings: Any) -> Landing:
    return Landing(
        broker.bootstrap,
        table,
        topics=("flights",),
        values="json",
        schema="n BIGINT, text STRING",
        **settings,
    )


def delta(broker: BrokerProcess) -> Landing:
    return job(broker, "delta", dead_letters="table:delta-dead", group="delta")


def iceberg(broker: BrokerProcess) -> Landing:
    return job(broker, "lake.flights", format="iceberg", catalog=CATALOG, dead_letters="table:lake.dead")


def parquet(broker: BrokerProcess) -> Landing:
    return job(
        broker,
        "parquet",
        format="parquet",
        dead_letters="topic:flights-dead",
        group="parquet",
        partition_by="date(_timestamp)",
    )


@pytest.mark.parametrize("made", [delta, iceberg, parquet])
def test_a_table_goes_on(old: BrokerProcess, made: Callable[[BrokerProcess], Landing]) -> None:
    landing = made(old)
    done = run(landing)
    assert done is not None
    assert (done.start, done.end) == ({"flights": {0: 28, 1: 28}}, {"flights": {0: 40, 1: 40}})
    assert (done.rows, done.dead_letters) == (22, 2)
    assert rows(landing, "_partition", "_offset", "n") == WANTED
    assert dead_letters(landing) == DEAD


def test_a_job_with_a_checkpoint_goes_on(spark: SparkSession, old: BrokerProcess, tmp_path: Path) -> None:
    landing = replace(delta(old), checkpoint=str(tmp_path / "checkpoints/delta"), max_records=16)
    done = land(landing, spark)
    assert done.rows == 22
    assert rows(landing, "_partition", "_offset", "n") == WANTED
    assert dead_letters(landing) == DEAD
    with ClusterQueries(old.bootstrap) as broker:
        assert broker.group_offsets("delta") == {TopicPartition("flights", at): 40 for at in (0, 1)}


def test_a_query_goes_on_from_its_checkpoint(spark: SparkSession, old: BrokerProcess, tmp_path: Path) -> None:
    found: list[tuple[int, int]] = []
    stream = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", old.bootstrap)
        .option("subscribe", "flights")
        .option("kafka.group.id", "query")
        .load()
    )
    query = (
        stream.select("partition", "offset")
        .writeStream.foreachBatch(lambda frame, _: found.extend(map(tuple, frame.collect())))
        .option("checkpointLocation", str(tmp_path / "checkpoints/query"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(found) == [(partition, offset) for partition in (0, 1) for offset in range(20, 40)]


def dead_letters(landing: Landing) -> list[tuple[int, int]]:
    """Partitions and offsets of all dead letters, sorted."""
    if landing.dead_letters == "topic:flights-dead":
        return sorted((one["partition"], one["offset"]) for one in sent_to_topic(landing))
    return rows(dead_table(landing), "partition", "offset")
