"""The transactional sink's driver gets SIGKILL: no record is lost or doubled, and no half of a batch stays visible.

The kills come at any moment of a batch and hit the driver with all its processes, its Java process, or the process that
commits. What is left of the driver may go on for a while; the next one takes over from it.

``make faults`` runs this: each driver starts Spark. In the suite, ``writing/test_spark.py`` kills the process that
commits, in the session that all tests share.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.faults.jobs import HANGS, Driver, committing, driver, kill, name, under
from tests.support.processes import BrokerProcess
from tests.support.sink import values, wait_for_records
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

OwnBroker = Callable[..., BrokerProcess]
TOPIC = "lines"
LINES = 5_000
"""In each file, which is a batch."""

pytestmark = pytest.mark.skipif(
    not os.environ.get("OTTLA_FAULT_ROUNDS"), reason="`make faults` starts Spark for each kill"
)


def lines(files: int) -> Counter[bytes | None]:
    return Counter(b"%d" % line for line in range(files * LINES))


def put(folder: Path, number: int) -> None:
    """Add a file, which the query sees at once as a whole."""
    made = folder.parent / f"{number}.txt"
    made.write_bytes(b"".join(b"%d\n" % line for line in range(number * LINES, (number + 1) * LINES)))
    # Spark takes files in the order of their times.
    os.utime(made, (1_700_000_000 + number,) * 2)
    made.rename(folder / made.name)


def strike(broker: BrokerProcess, made: Driver, chance: random.Random) -> str:
    """Kill a driver or a part of it while it writes."""

    def running() -> bool:
        return made.process.poll() is None

    if not made.wait_for("ready", 1) or not wait_for_records(broker, TOPIC, running):
        return "nothing: it had ended"
    time.sleep(chance.choice([0, 0, chance.uniform(0, 2)]))
    family = under(made.process.pid)
    what = chance.choice(["all", "Java", "committing"])
    if what == "all":
        made.process.kill()
        kill(family)
    elif what == "Java":
        kill([one for one in family if name(one) == "java"])
    else:
        kill(committing(family))
    made.process.wait(HANGS)
    return what


def test_a_driver_that_is_killed_neither_loses_nor_doubles_nor_halves(
    own_broker: OwnBroker, rounds: int, chance: random.Random, tmp_path: Path
) -> None:
    broker = own_broker()
    create_topic(broker, TOPIC, 3)
    folder, log = tmp_path / "in", tmp_path / "drivers.log"
    folder.mkdir()
    module = "tests.pipeline.faults.sink_driver"
    given: dict[str, Any] = {
        "folder": str(folder),
        "checkpoint": str(tmp_path / "checkpoint"),
        "sink": {
            "kafka.bootstrap.servers": broker.bootstrap,
            "topic": TOPIC,
            "transactional": "true",
            # Small batches make the transaction long.
            "kafka.batch.size": "500",
        },
    }
    files = 0

    def whole() -> bool:
        """What readers of committed records see is whole batches. They see one come partition by partition."""
        found = values(broker, TOPIC)
        batches, rest = divmod(found.total(), LINES)
        return rest == 0 and found == lines(batches)

    for number in range(rounds):
        for _ in range(2):
            put(folder, files)
            files += 1
        with driver(module, given, log) as made:
            what = strike(broker, made, chance)
        found = values(broker, TOPIC).total(), values(broker, TOPIC, "read_uncommitted").total()
        print(f"{number}: {what}; {found[0]} of {found[1]} records are committed")
        wait_for(whole, "all of each batch or none")
    with driver(module, given, log) as made:
        assert made.process.wait(HANGS) == 0, log.read_text()[-3000:]
    wait_for(lambda: values(broker, TOPIC) == lines(files), "each record once")
