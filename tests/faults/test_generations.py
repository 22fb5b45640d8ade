"""Consumers of all generations, bundled and of Kafka's, read one topic under faults, as long as ``make faults`` says.

``OTTLA_FAULT_SEED`` decides on the faults. Where Java or Maven is missing, Kafka's own consumers stay away.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from harness.java import Unavailable
from tests.faults.conftest import Plan
from tests.faults.generations import Generations
from tests.support.zookeeper import ZooKeeperProcess

pytestmark = pytest.mark.skipif(
    not os.environ.get("OTTLA_FAULT_MINUTES"), reason="make faults runs it: a round of faults takes minutes"
)


def test_no_generation_misses_a_record(zookeeper: ZooKeeperProcess, tmp_path: Path, plan: Plan) -> None:
    print(f"OTTLA_FAULT_SEED={plan.seed}, {plan.seconds:g} s, logs: {tmp_path}", flush=True)
    try:
        generations = Generations(zookeeper, tmp_path, plan.seed, kafkas=True)
    except Unavailable as lack:
        print(f"without Kafka's own consumers: {lack}", flush=True)
        generations = Generations(zookeeper, tmp_path, plan.seed, kafkas=False)
    with generations as running:
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            running.faults.next()
        running.finish()
