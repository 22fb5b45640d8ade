"""A landing job is killed again and again: in the end every record is in its table once, or once a dead letter.

Half of the kills hit the driver at a chosen point of its work (tests/pipeline/faults/driver.py), the others the driver,
Spark's Java process or a worker at any moment. `make faults` kills more often.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.pipeline.faults import jobs
from tests.pipeline.faults.driver import POINTS
from tests.pipeline.faults.jobs import HANGS, Driver, kill, name, under
from tests.pipeline.landing.rounds import produce, rows
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic

from ottla_client.types import TopicPartition
from ottla_pipeline.audit import audit, in_table
from ottla_pipeline.landing import Landing
from ottla_pipeline.landing.dead_letter_sink import dead_table
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.tables import FORMATS
from ottla_pipeline.source.cluster_queries import ClusterQueries

OwnBroker = Callable[..., BrokerProcess]
PARTITIONS = 3
A_ROUND = 1500
"""Records a partition that come with each round; one in 50 can't be parsed."""


def driver(
    settings: dict[str, Any], die: tuple[str, int] | None, log: Path
) -> AbstractContextManager[Driver]:
    return jobs.driver("tests.pipeline.faults.driver", {"landing": settings, "die": die}, log)


def strike(made: Driver, chance: random.Random) -> str:
    """Kill something of a job that runs, at any moment of it."""
    batches = chance.randrange(3)
    if not (made.wait_for("batch", batches) if batches else made.wait_for("ready", 1)):
        return "nothing: it had ended"
    time.sleep(chance.uniform(0, 1.5))
    family = under(made.process.pid)
    what = chance.choice(["driver", "Java", "worker"])
    if what == "driver":
        made.process.kill()
    elif what == "Java":
        kill([one for one in family if name(one) == "java"])
    else:
        workers = [one for one in family if name(one).startswith("python")]
        kill(chance.sample(workers, min(1, len(workers))))
    # Orphans end by themselves, sooner or later; what they write late must do no harm.
    return what


def test_every_record_is_landed_once_whatever_is_killed(
    own_broker: OwnBroker, rounds: int, chance: random.Random, tmp_path: Path
) -> None:
    broker = own_broker()
    formats = list(FORMATS) if rounds > len(FORMATS) else [chance.choice(FORMATS)]
    blows = [rounds // len(formats) + (i < rounds % len(formats)) for i in range(len(formats))]
    for form, times in zip(formats, blows, strict=True):
        topic = f"records-{form}"
        create_topic(broker, topic, PARTITIONS)
        lake = tmp_path / form
        settings: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap,
            "table": str(lake / "table"),
            "topics": [topic],
            "format": form,
            "values": "json",
            "schema": "n BIGINT, text STRING",
            "dead_letters": f"table:{lake / 'dead'}",
            "group": f"group-{form}",
            "max_records": 1000,
            # Where the machine is busy, Spark's own workers may be too late for Spark.
            "restarts": 10,
        }
        if chance.random() < 0.5:
            settings["checkpoint"] = str(lake / "checkpoint")
        for number in range(times):
            more(broker, topic, number)
            die = (chance.choice(POINTS), chance.randrange(1, 4)) if number % 2 == 0 else None
            with driver(settings, die, tmp_path / "drivers.log") as made:
                if die is not None:
                    made.process.wait(HANGS)
                    what = f"{die[0]} ({die[1]})"
                else:
                    what = strike(made, chance)
            print(f"{form} {number}: {what}")
        more(broker, topic, times)
        with driver(settings, None, tmp_path / "drivers.log") as made:
            assert made.process.wait(HANGS) == 0, (tmp_path / "drivers.log").read_text()[-3000:]
        check(Landing(**settings), topic, (times + 1) * A_ROUND)


def more(broker: BrokerProcess, topic: str, number: int) -> None:
    for partition in range(PARTITIONS):
        start = number * A_ROUND
        values = [
            b"?" if n % 50 == partition else {"n": n, "text": f"{partition}-{n}"}
            for n in range(start, start + A_ROUND)
        ]
        produce(broker.bootstrap, topic, values, partition)


def check(landing: Landing, topic: str, records: int) -> None:
    """Nothing lost, nothing doubled, nothing strange; and the group knows."""
    found = rows(landing, "_topic_partition", "_offset", "n", "text")
    dead = rows(dead_table(landing), "partition", "offset", "value")
    wanted = [(p, n, n, f"{p}-{n}") for p in range(PARTITIONS) for n in range(records) if n % 50 != p]
    assert found == wanted
    assert dead == [(p, n, b"?") for p in range(PARTITIONS) for n in range(records) if n % 50 == p]
    table = table_of(landing)
    result = audit(
        landing.bootstrap_servers, table, [topic], whole=True, dead=in_table(dead_table(landing), table)
    )
    assert result.clean, result.to_json()
    assert landing.group is not None
    with ClusterQueries(landing.bootstrap_servers) as broker:
        committed = broker.group_offsets(landing.group)
    assert committed == {TopicPartition(topic, p): records for p in range(PARTITIONS)}
