"""Runs the demo described in the package: ``python -m bench.demo [--quick] [--broker kafka] [--only CLIENT]``."""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import wire
from harness.brokers import HOST, Broker, Kafka, Ottla
from harness.java import Unavailable
from rich.console import Console

from bench.demo import flights
from bench.demo.consuming import News, consume
from bench.demo.ledger import Ledger
from bench.demo.producing import Acknowledged, produce
from bench.demo.screen import Outcome, Screen, arrivals, outcomes, screen

# The producer, and both members of the group. The bundled client takes each part, and both.
COURSES = [
    ("confluent-kafka", "kafka-python"),
    ("ottla_client", "aiokafka"),
    ("confluent-kafka", "ottla_client"),
    ("ottla_client", "ottla_client"),
]
# Shares of the flights: acknowledged and consumed before the broker is killed, and consumed before a member leaves.
KILL_ACKNOWLEDGED, KILL_CONSUMED, LEAVE_CONSUMED = 0.40, 0.25, 0.60
# How far, as a share of the flights, the producer may be ahead of the consumers until the kill.
LEAD = 0.3
# The flights of a quick run: those of January.
QUICK_FLIGHTS = 27_000
PATIENCE_SECONDS = 60.0
# How long a group waits for its second member; the default is 3 s.
SETTINGS = {"group.initial.rebalance.delay.ms": "1000"}


class Stuck(Exception):
    """No progress for ``PATIENCE_SECONDS``."""


class Course:
    """One course: three client processes and a kill. Everything here runs in the main thread."""

    def __init__(
        self, broker: Broker, out: Screen, rows: int, file: Path, number: int, producer: str, consumer: str
    ) -> None:
        self.broker, self.out, self.rows = broker, out, rows
        self.producer, self.consumer = producer, consumer
        self._topic, group = f"flights-{number}", f"arrivals-board-{number}"
        self.ledger = Ledger(rows)
        self.acknowledged = Acknowledged(0, 0, 0.0, False)
        self.commits_failed = 0
        self.consumed_seconds = 0.0
        self.outage_seconds = 0.0
        self._assigned: dict[int, int] = {}
        self._left: set[int] = set()
        self._moved = time.monotonic()
        # Spawned, not forked, so that clients inherit no threads and sockets.
        self._context = multiprocessing.get_context("spawn")
        self._reports: Any = self._context.Queue()
        self._lead: Any = self._context.Value("q", int(LEAD * rows))
        self._ready, self._go = self._context.Event(), self._context.Event()
        self._leave = {1: self._context.Event(), 2: self._context.Event()}
        self._processes = [
            self._context.Process(
                target=produce,
                args=(
                    producer,
                    broker.address,
                    self._topic,
                    file,
                    self._ready,
                    self._go,
                    self._lead,
                    self._reports,
                ),
                daemon=True,
            )
        ]
        for member, leave in self._leave.items():
            arguments = (consumer, member, broker.address, self._topic, group, leave, self._reports)
            self._processes.append(self._context.Process(target=consume, args=arguments, daemon=True))

    def run(self) -> None:
        """Run the course. Raises Stuck if it makes no progress."""
        connection = wire.Connection(HOST, self.broker.port)
        connection.create(self._topic, flights.PARTITIONS)
        connection.close()
        for process in self._processes:
            process.start()
        self.out.say(
            f"two consumers ({self.consumer}) join one group, the producer ({self.producer}) gets ready"
        )
        self._until(lambda: self._ready.is_set() and self._shared_out())
        shares = " and ".join(str(count) for _, count in sorted(self._assigned.items()))
        self.out.say(f"the group is stable: {shares} of {flights.PARTITIONS} partitions; producing begins")
        began = time.monotonic()
        self._go.set()
        self._until(
            lambda: (
                self.acknowledged.count >= KILL_ACKNOWLEDGED * self.rows
                and self.ledger.distinct >= KILL_CONSUMED * self.rows
            )
        )
        self._kill_and_restart()
        self._until(lambda: self.ledger.distinct >= LEAVE_CONSUMED * self.rows)
        self.out.say(
            f"member 2 leaves the group, {self.ledger.distinct:,} flights consumed; member 1 carries on"
        )
        self._leave[2].set()
        self._until(lambda: self.acknowledged.done and self.ledger.lost == 0)
        self.consumed_seconds = time.monotonic() - began
        # A flight stored twice would arrive now, after the last one.
        self._until(lambda: 2 in self._left)
        self._drain(1.0)
        self._leave[1].set()
        self._until(lambda: 1 in self._left)

    def close(self) -> None:
        for process in self._processes:
            if process.pid is not None:
                process.terminate()
                process.join(10)

    def _shared_out(self) -> bool:
        shares = self._assigned
        return len(shares) == 2 and min(shares.values()) > 0 and sum(shares.values()) == flights.PARTITIONS

    def _kill_and_restart(self) -> None:
        stored = self.acknowledged.count
        self.out.say(
            f"SIGKILL to the broker, {stored:,} flights acknowledged, {self.ledger.distinct:,} consumed"
        )
        killed = time.monotonic()
        self.broker.kill()
        self._lead.value = self.rows
        self.broker.start()
        started = time.monotonic() - killed
        # Reports sent before the kill don't count.
        self._drain(0.1)
        stored = self.acknowledged.count
        self._until(lambda: self.acknowledged.count > stored)
        self.outage_seconds = time.monotonic() - killed
        self.out.say(
            f"started again on the same folder and port: accepts clients {started:.2f} s after the kill, "
            f"acknowledges again after {self.outage_seconds:.2f} s"
        )

    def _drain(self, seconds: float) -> None:
        """Process reports for this many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._process_report(0.05)

    def _until(self, reached: Any) -> None:
        self._moved = time.monotonic()
        while not reached():
            self._process_report(0.05)
            if time.monotonic() - self._moved > PATIENCE_SECONDS:
                raise Stuck(f"nothing has moved for {PATIENCE_SECONDS:.0f} s")

    def _process_report(self, timeout: float) -> None:
        """Process one report of a client process, if one comes in time."""
        for process in self._processes:
            if process.exitcode not in (None, 0):
                raise Stuck(f"a client process ended with exit code {process.exitcode}")
        try:
            report = self._reports.get(timeout=timeout)
        except queue.Empty:
            return
        if isinstance(report, Acknowledged):
            if report.count > self.acknowledged.count or report.done:
                self._moved = time.monotonic()
            self.acknowledged = report
        elif isinstance(report, News):
            self._enter(report)
        members = self.ledger.by_member
        self.out.show([self.acknowledged.count, members.get(1, 0), members.get(2, 0), self.ledger.distinct])

    def _enter(self, news: News) -> None:
        if news.assigned is not None:
            self._assigned[news.member] = news.assigned
            if self._go.is_set():
                self.out.say(
                    f"member {news.member} now has {news.assigned} of {flights.PARTITIONS} partitions"
                )
        if news.left:
            self._left.add(news.member)
        if news.flights:
            self.ledger.enter(news.member, news.flights)
            self._moved = time.monotonic()
            if not self.acknowledged.done:
                self._lead.value = max(self._lead.value, self.ledger.distinct + int(LEAD * self.rows))
        self.commits_failed += news.commits_failed

    def outcome(self, csv: flights.Delays) -> Outcome:
        """Return the results, and whether they are as expected."""
        ledger, sent = self.ledger, self.acknowledged
        seconds = max(sent.seconds, 0.001)
        return Outcome(
            producer=self.producer,
            consumer=self.consumer,
            acknowledged=sent.count,
            consumed=ledger.distinct,
            lost=ledger.lost,
            doubled=ledger.doubled,
            redelivered=ledger.redelivered,
            commits_failed=self.commits_failed,
            outage_seconds=self.outage_seconds,
            produced_per_second=sent.count / seconds,
            consumed_per_second=ledger.distinct / max(self.consumed_seconds, seconds),
            good=sent.count == self.rows
            and not (ledger.lost or ledger.doubled or ledger.foreign or sent.failed)
            and all(ledger.delays.same(csv, carrier) for carrier in csv.flights),
        )


def _run(broker: Broker, console: Console, folder: Path, only: str | None, limit: int | None) -> bool:
    """Run the courses and print their tables. Returns whether every flight arrived once."""
    file = folder / "flights.tsv"
    rows, csv = flights.write_messages(file, limit)
    results: list[Outcome] = []
    consumed = flights.Delays()
    with screen(console, rows) as out:
        out.say(f"{broker.name} accepts clients on {broker.address}; {rows:,} flights to send")
        for number, (producer, consumer) in enumerate(COURSES, 1):
            if only not in (None, producer, consumer):
                continue
            out.course(f"{producer} to {consumer}")
            course = Course(broker, out, rows, file, number, producer, consumer)
            try:
                course.run()
            except Stuck as stuck:
                out.say(f"stuck: {stuck}; the broker's last lines:\n{broker.tail()}")
            finally:
                course.close()
            results.append(course.outcome(csv))
            consumed = course.ledger.delays
    console.print(arrivals(consumed, csv, flights.airlines()))
    console.print(outcomes(results))
    good = bool(results) and all(result.good for result in results)
    console.print(
        "[green]every flight arrived once, and the delays agree[/]"
        if good
        else "[red]the results are WRONG[/]"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--broker", choices=["ottla", "kafka"], default="ottla", help="broker to run; ottla by default"
    )
    clients = sorted({client for course in COURSES for client in course})
    parser.add_argument("--only", choices=clients, help="run only the courses with this client")
    parser.add_argument("--quick", action="store_true", help="send the flights of January only")
    options = parser.parse_args()
    kind = {"ottla": Ottla, "kafka": Kafka}[options.broker]
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        try:
            broker = kind(Path(folder), SETTINGS)
        except Unavailable as lack:
            console.print(f"Apache Kafka can't run here: {lack}")
            return 1
        try:
            broker.start()
            limit = QUICK_FLIGHTS if options.quick else None
            return 0 if _run(broker, console, Path(folder), options.only, limit) else 1
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main())
