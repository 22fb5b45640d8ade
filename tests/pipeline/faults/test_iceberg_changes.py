"""Random changes of Iceberg tables by other programs, with landing and compaction between, for longer."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.java import Unavailable
from harness.lakehouse import LakehouseSpark
from tests.pipeline.landing.changes import Sequence
from tests.pipeline.landing.iceberg_programs import PyIceberg, SparkSQL
from tests.support.processes import BrokerProcess

from ottla_pipeline.landing import Landing

NewTopic = Callable[..., str]
STEPS = 20


def sequence_of(
    broker: BrokerProcess, new_topic: NewTopic, folder: Path, seed: int, spark: LakehouseSpark | None
) -> None:
    topic = new_topic(prefix="changed")
    name = topic.replace("-", "_")
    landing = Landing(broker.bootstrap, f"{folder}/default.{name}", (topic,), format="iceberg", values="json")
    print(f"seed {seed}", flush=True)
    sequence = Sequence(
        landing,
        lambda: PyIceberg(landing) if spark is None else SparkSQL(landing, spark, random.Random(seed)),
        seed,
    )
    for _ in range(STEPS):
        sequence.step()


def test_pyiceberg_changes_a_table(
    broker: BrokerProcess, new_topic: NewTopic, tmp_path: Path, rounds: int, chance: random.Random
) -> None:
    for _ in range(rounds):
        sequence_of(broker, new_topic, tmp_path, chance.randrange(1 << 30), None)


def test_spark_changes_a_table(
    broker: BrokerProcess, new_topic: NewTopic, tmp_path: Path, rounds: int, chance: random.Random
) -> None:
    """Needs Maven and pip, which `make test` has no use for: only `make faults` asks for this many rounds."""
    if rounds < 3:
        pytest.skip("it is for make faults")
    try:
        spark = LakehouseSpark(tmp_path)
    except Unavailable as lack:
        pytest.skip(str(lack))
    with spark:
        for _ in range(rounds):
            sequence_of(broker, new_topic, tmp_path, chance.randrange(1 << 30), spark)
