"""The harness finds brokers with planted defects.

Four minutes; run with ``OTTLA_FAULT_PLANTED=1``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.faults.campaign import run, topics
from tests.faults.checker import check, summary
from tests.faults.cluster import FaultCluster
from tests.faults.conftest import Plan
from tests.faults.network import Network

pytestmark = pytest.mark.skipif(
    not os.environ.get("OTTLA_FAULT_PLANTED"), reason="OTTLA_FAULT_PLANTED=1 runs it"
)


@pytest.mark.parametrize(
    ("defect", "fault", "producer", "kinds"),
    [
        # An idempotent producer gives up where the broker forgets what it has acknowledged.
        ("acknowledge early", "cut off from all", "plain", {"lost"}),
        ("forget sequences", "freeze the leader", "idempotent", {"doubled"}),
        # A consumer may notice the truncation before it reads the new records.
        ("show uncommitted", "cut off from all", "plain", {"vanished", "differs", "complaint"}),
        ("forget commits", "kill the follower", "plain", {"commit went back"}),
        ("skip records", "kill the follower", "plain", {"skipped", "unseen"}),
    ],
)
def test_a_planted_defect_is_found(
    tmp_path: Path, defect: str, fault: str, producer: str, kinds: set[str]
) -> None:
    find(tmp_path, defect, Plan(1, 12.0, 0.0, (fault,), producers=(producer,)), kinds)


@pytest.mark.parametrize(
    ("defect", "kinds"),
    [
        ("show aborted", {"aborted"}),
        ("forget transactional offsets", {"doubled"}),
    ],
)
def test_a_planted_defect_of_transactions_is_found(tmp_path: Path, defect: str, kinds: set[str]) -> None:
    find(
        tmp_path, defect, Plan(1, 30.0, 0.0, ("bounce",), producers=("idempotent",), exactly_once=True), kinds
    )


def find(tmp_path: Path, defect: str, plan: Plan, kinds: set[str]) -> None:
    with Network() as network:
        cluster = FaultCluster(tmp_path, network, topics(plan), defect)
        try:
            history = run(cluster, plan, [])
        finally:
            cluster.close()
    found = check(history)
    print(summary(found, 2))
    assert kinds & {anomaly.kind for anomaly in found}, summary(found)
