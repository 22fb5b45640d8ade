"""A landing job on a standalone cluster: driver and workers are processes that share the table's folder alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.landing.rounds import offsets, produce
from tests.support.processes import BrokerProcess

from ottla_pipeline.landing import Landing
from ottla_pipeline.landing.job_plan import table_of

if TYPE_CHECKING:
    from tests.support.spark import StandaloneCluster

PROGRAM = """
import sys
from pyspark.sql import SparkSession
from ottla_pipeline.landing import Landing, land

servers, table, topic = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()
landed = land(Landing(servers, table, topics=(topic,), segments="never", max_records=100, restarts=5), spark)
print("landed", landed.rows, "in", landed.batches)
"""


def test_a_job_on_a_cluster(
    spark_cluster: StandaloneCluster, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, prefix="flights")
    for partition in (0, 1):
        produce(broker.bootstrap, topic, [b"x"] * 100, partition)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    landing = Landing(broker.bootstrap, str(tmp_path / "lake" / "flights"), topics=(topic,))
    done = spark_cluster.submit(program, broker.bootstrap, landing.table, topic, timeout=300)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "landed 200 in 2" in done.stdout
    assert offsets(landing, topic) == [list(range(100)), list(range(100))]
    assert table_of(landing).offsets() == {topic: {0: 100, 1: 100}}
