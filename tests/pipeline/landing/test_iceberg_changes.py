"""Iceberg tables that pyiceberg changes between batches: renames, drops, deletes, updates, partitions, roll-backs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.pipeline.landing.changes import Sequence
from tests.pipeline.landing.iceberg_programs import PyIceberg
from tests.support.processes import BrokerProcess

from ottla_pipeline.landing import Landing

NewTopic = Callable[..., str]
SEEDS = 3
STEPS = 14


@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_pyiceberg_changes_rows_stay_what_they_are(
    broker: BrokerProcess, new_topic: NewTopic, tmp_path: Path, seed: int
) -> None:
    landing = Landing(
        broker.bootstrap,
        f"{tmp_path}/lake/default.t",
        (new_topic(prefix="t"),),
        format="iceberg",
        values="json",
    )
    sequence = Sequence(landing, lambda: PyIceberg(landing), seed)
    for _ in range(STEPS):
        sequence.step()
