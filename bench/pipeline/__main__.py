"""Runs the demo described in the package: ``python -m bench.pipeline [--quick] [--keep FOLDER] [--seed N]``."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from harness.brokers import Ottla
from harness.children import ending_with_parent
from rich.console import Console

from bench.pipeline import data, picture
from bench.pipeline.driver import GROUP
from bench.pipeline.story import Story, audits, delays
from ottla_client.admin import NewTopic
from ottla_client.sync import Admin, Producer

# The driver is killed after this many batches of flights, and up to this many seconds later.
KILL_AFTER, KILL_WITHIN = 2, 0.5
# Records in a batch of a table: few enough that the kill comes among the flights.
BATCH = 50_000
# A quick run has every tenth flight, and batches of a tenth.
QUICK = 10
# Records that go to the producer at once.
_CHUNK = 20_000


class Failed(Exception):
    """The demo can't continue."""


class Stopped(KeyboardInterrupt):
    """SIGINT, SIGTERM or SIGHUP arrived; ``sign`` is the signal's number."""

    def __init__(self, sign: int) -> None:
        super().__init__()
        self.sign = sign


class Driver:
    """A process of :mod:`bench.pipeline.driver`, which ends with this program, and Java and Python workers with it."""

    def __init__(self, servers: str, lake: Path, result: Path, log: Path, batch: int) -> None:
        self._log = log
        command = [sys.executable, "-m", "bench.pipeline.driver", servers, str(lake), str(result), str(batch)]
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
                preexec_fn=ending_with_parent(signal.SIGKILL),
                env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            )

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield its events until it ends. Raises Failed if it fails."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)
        if self._process.wait():
            last = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
            raise Failed(
                f"the driver ended with exit code {self._process.returncode}; its last lines:\n{last}"
            )

    def kill(self) -> None:
        """Send SIGKILL to Python and Java together, if they still run."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def _running(driver: Driver) -> Iterator[Driver]:
    try:
        yield driver
    finally:
        driver.kill()


def produce(servers: str, frames: dict[str, Any], story: Story) -> dict[str, int]:
    """Produce the CSV files into topics. Returns the number of records by topic."""
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(source.topic, source.partitions) for source in data.SOURCES])
    counts = {}
    with Producer(servers, compression_type="zstd", client_id="make-pipeline") as producer:
        for source in data.SOURCES:
            deliveries, keys, values = [], [], []
            began, size = time.monotonic(), 0
            for key, value in data.messages(source, frames[source.topic]):
                keys.append(key)
                values.append(value)
                size += len(value)
                if len(values) == _CHUNK:
                    deliveries.append(producer.send_batch(source.topic, values, keys=keys))
                    keys, values = [], []
            if values:
                deliveries.append(producer.send_batch(source.topic, values, keys=keys))
            counts[source.topic] = sum(
                len(written.indices) for delivery in deliveries for written in delivery.result()
            )
            story.say(
                f"{counts[source.topic]:>7,} {source.topic} in a topic of {source.partitions} "
                f"partition{'s' if source.partitions > 1 else ''} ({size / 2**20:.1f} MiB of JSON), "
                f"{time.monotonic() - began:.1f} s"
            )
    return counts


def land(servers: str, folder: Path, story: Story, seed: int, batch: int) -> None:
    """Run the driver, kill it among the flights, and run it again to its end."""
    lake, result, log = folder / "lake", folder / "result.json", folder / "driver.log"
    chance = random.Random(seed)
    with _running(Driver(servers, lake, result, log, batch)) as driver:
        batches = 0
        for event in driver.events():
            _narrate(story, event)
            batches += event["event"] == "batch" and event["topic"] == "flights"
            if batches == KILL_AFTER:
                break
        time.sleep(chance.uniform(0, KILL_WITHIN))
        driver.kill()
    rows, uncommitted = _count_files(lake / "flights")
    moment = (
        f"in mid-batch: {uncommitted} of its files are written, but not committed"
        if uncommitted
        else "between two commits"
    )
    story.say(f"SIGKILL to the driver, Python and Java, {moment}")
    story.say(f"the table has {rows:,} flights; the driver is started again")
    with _running(Driver(servers, lake, result, log, batch)) as driver:
        for event in driver.events():
            _narrate(story, event)


def _count_files(folder: Path) -> tuple[int, int]:
    """Return a table's rows, and the number of Parquet files in its folder that aren't committed."""
    from ottla_pipeline.landing.tables import open_table

    table = open_table("delta", str(folder))
    table.refresh()
    files = table.data_files()
    written = [file for file in folder.rglob("*.parquet") if "_delta_log" not in file.parts]
    return sum(file.rows for file in files), len(written) - len(files)


def _narrate(story: Story, event: dict[str, Any]) -> None:
    kind = event["event"]
    if kind == "started":
        story.say(f"Spark {event['version']} has started, local[2]")
    elif kind == "batch":
        story.say(
            f"{event['rows']:>7,} {event['topic']} landed in {event['seconds']:.2f} s, {event['lag']:,} to go"
        )
    elif kind == "asked":
        story.say("Spark has joined flights, weather and planes")


def check(
    servers: str, folder: Path, story: Story, frames: dict[str, Any], counts: dict[str, int], png: Path
) -> bool:
    """Audit the tables, compare the result and draw it. Returns whether everything is right."""
    import pandas  # type: ignore[import-untyped,unused-ignore]

    from ottla_pipeline.audit import audit
    from ottla_pipeline.landing.tables import open_table

    found = []
    for source in data.SOURCES:
        table = open_table("delta", str(folder / "lake" / source.topic))
        found.append(audit(servers, table, [source.topic], whole=True))
    present = {each.partitions[0].topic: sum(part.present for part in each.partitions) for each in found}
    whole = all(each.clean for each in found) and present == counts
    story.say(
        f"the tables are audited: {'every offset is there once' if whole else 'they DIFFER from the topics'}"
    )
    with Admin(servers) as admin:
        committed = sum(each.offset for each in admin.list_group_offsets(GROUP).values())
    behind = sum(counts.values()) - committed
    story.say(f"the group {GROUP} has committed {committed:,} offsets, lag {behind:,}")
    result = data.in_order(pandas.read_json(folder / "result.json", orient="records"))
    same = result.equals(data.expected(*(frames[name] for name in ("flights", "weather", "planes"))))
    story.say(
        f"{len(result)} means by carrier and hour, {'as' if same else 'NOT as'} pandas computes from the CSV"
    )
    picture.draw(result, data.airlines(), png)
    story.console.print()
    story.console.print(delays(result))
    story.console.print()
    story.console.print(audits(found))
    story.console.print()
    story.console.print(f"picture: {png}", highlight=False, soft_wrap=True)
    good = whole and same and not behind
    seconds = f"{story.seconds:.0f} s"
    story.console.print(
        f"[green]nothing lost, nothing doubled, and Spark agrees with pandas[/], in {seconds}"
        if good
        else f"[bold red]the results are WRONG[/], after {seconds}",
        highlight=False,
    )
    return good


def run(folder: Path, story: Story, seed: int, png: Path, quick: bool) -> int:
    """Run the demo in ``folder``: a broker, the topics, the driver, the checks. Returns the exit code."""
    frames = {source.topic: data.frame(source) for source in data.SOURCES}
    batch = BATCH
    if quick:
        frames["flights"] = frames["flights"].iloc[::QUICK]
        batch //= QUICK
    broker = Ottla(folder / "broker", ends_with_parent=True)
    try:
        broker.start()
        story.say(f"{broker.name} accepts clients on {broker.address}")
        counts = produce(broker.address, frames, story)
        story.say(f"a driver lands them in Delta tables, {batch:,} records a batch; seed of the kill: {seed}")
        land(broker.address, folder, story, seed, batch)
        return 0 if check(broker.address, folder, story, frames, counts, png) else 1
    except Failed as failure:
        story.say(str(failure))
        return 1
    finally:
        broker.stop()


def _stopped(number: int, frame: FrameType | None) -> None:
    raise Stopped(number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make pipeline", description=__doc__)
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="work in this folder, and keep the tables"
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=Path(__file__).parents[1] / "results" / "pipeline.png",
        metavar="FILE",
        help="write the picture to this file",
    )
    parser.add_argument("--seed", type=int, default=None, metavar="N", help="seed for the moment of the kill")
    parser.add_argument("--quick", action="store_true", help="land every tenth flight only")
    options = parser.parse_args()
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        print(
            "make pipeline: Spark needs Java 17 or later: install one, or set JAVA_HOME to it",
            file=sys.stderr,
        )
        return 1
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _stopped)
    story = Story(Console())
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    try:
        # Workers of a killed driver may still write a file while the folder is removed.
        with tempfile.TemporaryDirectory(prefix="ottla-pipeline-", ignore_cleanup_errors=True) as temporary:
            folder = options.keep or Path(temporary)
            folder.mkdir(parents=True, exist_ok=True)
            return run(folder, story, seed, options.picture.absolute(), options.quick)
    except Stopped as stopped:
        story.say("stopped")
        return 128 + stopped.sign


if __name__ == "__main__":
    sys.exit(main())
