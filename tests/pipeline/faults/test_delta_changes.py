"""Random changes of a table by another program, with landing and compaction amid: no row lost, doubled or returned."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from tests.pipeline.landing.delta_changes import Deltalake, Lake
from tests.support.processes import BrokerProcess

from ottla_pipeline.landing import Landing


def test_a_delta_table_that_another_program_changes(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    tmp_path: Path,
    rounds: int,
    chance: random.Random,
) -> None:
    for number in range(rounds):
        topic, place = new_topic(1, prefix="changed"), str(tmp_path / f"lake{number}")
        job = Landing(broker.bootstrap, place, topics=(topic,), values="json")
        Lake(job, topic, Deltalake(place), chance).steps(20)
