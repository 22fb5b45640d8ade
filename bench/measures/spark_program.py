"""The queries of ``bench.measures.spark`` in one Spark session: ``python -m bench.measures.spark_program JSON``.

Prints a line of JSON per figure, and per failed kind of query. Results that two ways of reading share are compared,
because a figure of a query that read something else is worthless.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from bench.measures.spark import MICRO_BATCH, Plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = (
    "row BIGINT, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, "
    "sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, "
    "air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"
)
_LANDED = ("key", "value", "topic", "partition", "offset", "timestamp")
_WARM_BATCHES = 3
_SAMPLE_SECONDS = 0.01

WIRE, SEGMENTS = {"segments": "never"}, {"segments": "always"}


def say(figure: str, unit: str, better: str, value: float) -> None:
    print(json.dumps({"figure": figure, "unit": unit, "better": better, "value": value}), flush=True)


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def session(plan: Plan) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.local.dir": f"{plan.folder}/local",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{plan.folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if plan.jars:
        settings["spark.jars"] = plan.jars
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


class Workers:
    """Spark's Python worker processes, and their private memory."""

    def __init__(self) -> None:
        self.peak = 0.0
        """Return the MB (10**6 bytes) of the largest."""

    @staticmethod
    def largest() -> float:
        largest = 0.0
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, OSError):
                if "pyspark.daemon" in " ".join(process.cmdline()):
                    # The kernel can reclaim pages of mapped files.
                    status = Path(f"/proc/{process.pid}/status").read_text()
                    anonymous = status.partition("RssAnon:")[2].split()[0]
                    largest = max(largest, int(anonymous) * 1024 / 1e6)
        return largest

    @contextmanager
    def watched(self) -> Iterator[None]:
        self.peak = 0.0
        done = threading.Event()

        def watch() -> None:
            while not done.wait(_SAMPLE_SECONDS):
                self.peak = max(self.peak, self.largest())

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


class Queries:
    """Run all queries in one session."""

    def __init__(self, plan: Plan, spark: SparkSession) -> None:
        self.plan = plan
        self.spark = spark
        self.folder = Path(plan.folder)

    def _options(self, topic: str, **more: str) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self.plan.address, "subscribe": topic}
        return {**given, "startingOffsets": "earliest", **more}

    def _read(self, kind: str, topic: str, columns: str = "", **more: str) -> DataFrame:
        reader = self.spark.read.format(kind).options(**self._options(topic, **more))
        return (reader.schema(columns) if columns else reader).load()

    def _fresh(self, name: str) -> str:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return str(self.folder / name)

    # ---- memory

    def memory(self) -> None:
        """Measure a task that reads all columns of a partition, minus one that reads almost nothing."""
        workers = Workers()
        end = json.dumps({self.plan.large: dict.fromkeys(map(str, range(4)), 100)})
        for name, way in (("over the wire", WIRE), ("from segments", SEGMENTS)):
            little = self._read("ottla", self.plan.large, endingOffsets=end, **way)
            everything = self._read("ottla", self.plan.large, **way)
            little.write.format("noop").mode("overwrite").save()
            with workers.watched():
                little.write.format("noop").mode("overwrite").save()
                time.sleep(5 * _SAMPLE_SECONDS)
            base = workers.peak
            with workers.watched():
                everything.write.format("noop").mode("overwrite").save()
            say(f"memory of a read task, {name}", "MB", "lower", max(0.0, workers.peak - base))

    # ---- scan

    def scans(self) -> None:
        columns = "value BINARY, offset BIGINT"
        ways: dict[str, Callable[[], DataFrame]] = {
            "scan, over the wire": lambda: self._read("ottla", self.plan.large, columns, **WIRE),
            "scan, from segments": lambda: self._read("ottla", self.plan.large, columns, **SEGMENTS),
        }
        if self.plan.jars:
            ways["scan, Kafka connector"] = lambda: self._read("kafka", self.plan.large)
        sums = "count(*)", "sum(length(value))", "sum(offset)"
        found: set[tuple[int, ...]] = set()

        def scan(way: Callable[[], DataFrame]) -> None:
            from pyspark.sql.functions import expr

            row = way().agg(*map(expr, sums)).collect()[0]
            found.add(tuple(row))

        self._in_turn(ways, scan, self.plan.large_records)
        if len(found) != 1 or next(iter(found))[0] != self.plan.large_records:
            raise RuntimeError(f"the scans differ: {found}")

    def _in_turn(
        self,
        ways: dict[str, Callable[[], Any]],
        work: Callable[[Callable[[], Any]], None],
        records: int,
    ) -> None:
        """Alternate between the ways; the first round doesn't count."""
        for number in range(1 + self.plan.repeats):
            for name, way in ways.items():
                taken = seconds(lambda way=way: work(way))  # type: ignore[misc]
                if number:
                    say(name, "rows/s", "higher", records / taken)

    # ---- landing

    def landings(self) -> None:
        from ottla_pipeline.landing import Landing, land

        def ours(**way: str) -> Callable[[], None]:
            def run() -> None:
                table = self._fresh("ours")
                landing = Landing(
                    self.plan.address,
                    table,
                    topics=(self.plan.large,),
                    format="parquet",
                    compression="snappy",
                    segments=way.get("segments", "auto"),  # type: ignore[arg-type]
                )
                rows = land(landing, self.spark).rows
                if rows != self.plan.large_records:
                    raise RuntimeError(f"{rows} of {self.plan.large_records} records were landed")

            return run

        def theirs() -> None:
            rows = self._read("kafka", self.plan.large).select(*_LANDED)
            rows.write.option("compression", "snappy").parquet(self._fresh("theirs"))

        ways = {"to Parquet snappy, ottla": ours(), "to Parquet snappy, ottla over the wire": ours(**WIRE)}
        if self.plan.jars:
            ways["to Parquet snappy, Kafka connector"] = theirs
        self._in_turn(ways, lambda way: way(), self.plan.large_records)

    def flights(self) -> None:
        from ottla_pipeline.landing import Landing, land

        def ours() -> None:
            landing = Landing(
                self.plan.address,
                self._fresh("flights-ours"),
                topics=(self.plan.flights,),
                values="json",
                schema=_SCHEMA,
            )
            rows = land(landing, self.spark).rows
            if rows != self.plan.flights_records:
                raise RuntimeError(f"{rows} of {self.plan.flights_records} flights were landed")

        def theirs() -> None:
            from pyspark.sql.functions import col, from_json

            rows = self._read("kafka", self.plan.flights)
            parsed = from_json(col("value").cast("string"), _SCHEMA).alias("flight")
            typed = rows.select(parsed, "topic", "partition", "offset", "timestamp")
            columns = ["flight.*", "topic", "partition", "offset", "timestamp"]
            typed.select(*columns).write.option("compression", "zstd").parquet(self._fresh("flights-theirs"))

        ways = {"flights typed, ottla to Delta zstd": ours}
        if self.plan.jars:
            ways["flights typed, Kafka connector to Parquet zstd"] = theirs
        self._in_turn(ways, lambda way: way(), self.plan.flights_records)

    # ---- micro-batches

    def micro_batches(self) -> None:
        kinds = ["ottla", "kafka"] if self.plan.jars else ["ottla"]
        for number in range(1 + self.plan.repeats):
            for kind in kinds:
                name = "ottla" if kind == "ottla" else "Kafka connector"
                median = self._micro_batch(kind)
                if number:
                    say(f"micro-batch of 10,000, {name}", "ms", "lower", median)

    def _micro_batch(self, kind: str) -> float:
        """Return the median in milliseconds."""
        options = self._options(self.plan.small, maxOffsetsPerTrigger=str(MICRO_BATCH))
        frame = self.spark.readStream.format(kind).options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", self._fresh(f"micro-{kind}"))
        query = writer.trigger(availableNow=True).start()
        try:
            query.awaitTermination()
            times = [
                progress.durationMs["triggerExecution"]
                for progress in query.recentProgress
                if progress.numInputRows
            ]
        finally:
            query.stop()
        if len(times) < self.plan.micro_batches:
            raise RuntimeError(f"{kind} made {len(times)} micro-batches, not {self.plan.micro_batches}")
        return statistics.median(times[_WARM_BATCHES:])

    # ---- writing

    def writes(self) -> None:
        rows = self.spark.range(self.plan.written_records, numPartitions=4).selectExpr(
            "cast(id AS string) AS key", "repeat(cast(id % 10 AS string), 100) AS value"
        )

        def write(kind: str) -> None:
            options = {"kafka.bootstrap.servers": self.plan.address, "topic": self.plan.written}
            rows.write.format(kind).options(**options).mode("append").save()

        ways = {"write, ottla": lambda: write("ottla")}
        if self.plan.jars:
            ways["write, Kafka connector"] = lambda: write("kafka")
        self._in_turn(ways, lambda way: way(), self.plan.written_records)


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    spark = session(plan)
    queries = Queries(plan, spark)
    # Memory first, because workers keep what they allocated.
    for work in (
        queries.memory,
        queries.scans,
        queries.landings,
        queries.flights,
        queries.micro_batches,
        queries.writes,
    ):
        try:
            work()
        except Exception as error:
            lines = str(error).strip().splitlines()
            print(json.dumps({"failed": f"{work.__name__}: {lines[0] if lines else error!r}"}), flush=True)
            traceback.print_exc()
    spark.stop()


if __name__ == "__main__":
    main()
