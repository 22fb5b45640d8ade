"""Consumers of all generations, bundled and of Kafka 0.8.2.2, 0.10.2.2, 3.9 and 4.2, read one topic of one cluster.

A broker and all of Kafka's consumers are killed meanwhile. ``make faults`` does it for longer.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness.java import Unavailable
from tests.faults.generations import Generations
from tests.support.zookeeper import ZooKeeperProcess


def test_no_generation_misses_a_record(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    try:
        generations = Generations(zookeeper, tmp_path, seed=1, kafkas=True)
    except Unavailable as lack:
        pytest.skip(str(lack))
    with generations as running:
        for member in running.kafkas:
            member.kill()
        running.faults.kill_broker()
        for member in running.kafkas:
            member.start()
        running.stream.wait_for_more(200)
        running.finish()
