"""The demo's course of events; see the package. ``python -m bench.demo [--broker kafka]``."""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import maven, wire
from bench.brokers import HOST, Broker, Kafka, Ottla
from bench.demo import flights
from bench.demo.consuming import News, consume
from bench.demo.ledger import Ledger
from bench.demo.producing import Acknowledged, produce
from bench.demo.screen import Screen, arrivals, screen

# What share of the flights must have been acknowledged and consumed before the broker is killed, and consumed
# before
# a member leaves.
KILL_ACKNOWLEDGED, KILL_CONSUMED, LEAVE_CONSUMED = 0.40, 0.25, 0.60
# Until the kill the producer is at most this many flights ahead of the consumers.
LEAD = 100_000
PATIENCE_SECONDS = 60.0


class Stuck(Exception):
    """Nothing has moved for so long that something must be broken."""


class Demo:
    """One run. Owns the broker and the three client processes; everything here runs in the main thread."""

    def __init__(self, broker: Broker, out: Screen, rows: int) -> None:
        self.broker, self.out, self.rows = broker, out, rows
        self.ledger = Ledger(rows)
        self.acknowledged = Acknowledged(0, 0, 0.0, False)
        self.commits_failed = 0
        self.consumed_seconds = 0.0
        self.outage_seconds = 0.0
        self._assigned: dict[int, int] = {}
        self._left: set[int] = set()
        self._moved = time.monotonic()
        # Spawned, not forked: nothing of this process's threads and sockets goes into the clients'.
        self._context = multiprocessing.get_context("spawn")
        self._reports: Any = self._context.Queue()
        self._lead: Any = self._context.Value("q", LEAD)
        self._ready, self._go = self._context.Event(), self._context.Event()
        self._leave = {1: self._context.Event(), 2: self._context.Event()}
        self._processes = [
            self._context.Process(
                target=produce,
                args=(broker.address, self._ready, self._go, self._lead, self._reports),
                daemon=True,
            )
        ]
        for member, leave in self._leave.items():
            arguments = (member, broker.address, leave, self._reports)
            self._processes.append(self._context.Process(target=consume, args=arguments, daemon=True))

    def run(self) -> None:
        """The course of events; :class:`Stuck` when it does not go on."""
        connection = wire.Connection(HOST, self.broker.port)
        connection.create(flights.TOPIC, flights.PARTITIONS)
        connection.close()
        for process in self._processes:
            process.start()
        self.out.say("two consumers (kafka-python) join one group, the producer (confluent-kafka) gets ready")
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
        # Whatever is stored twice would come now: what follows the last flight must be nothing.
        self._until(lambda: 2 in self._left)
        self._settle(1.0)
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
        # Reports that were still under way at the kill count for nothing here.
        self._settle(0.1)
        stored = self.acknowledged.count
        self._until(lambda: self.acknowledged.count > stored)
        self.outage_seconds = time.monotonic() - killed
        self.out.say(
            f"started again on the same folder and port: accepts clients {started:.2f} s after the kill, "
            f"acknowledges again after {self.outage_seconds:.2f} s"
        )

    def _settle(self, seconds: float) -> None:
        """Take reports for so long."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._take(0.05)

    def _until(self, reached: Any) -> None:
        self._moved = time.monotonic()
        while not reached():
            self._take(0.05)
            if time.monotonic() - self._moved > PATIENCE_SECONDS:
                raise Stuck(f"nothing has moved for {PATIENCE_SECONDS:.0f} s")

    def _take(self, timeout: float) -> None:
        """Enter one report of a client process."""
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
                self._lead.value = max(self._lead.value, self.ledger.distinct + LEAD)
        self.commits_failed += news.commits_failed


def _conclude(console: Console, demo: Demo, csv: flights.Delays) -> bool:
    """Print the tables; True when everything is there once and the delays are the CSV's."""
    ledger, sent = demo.ledger, demo.acknowledged
    console.print(arrivals(ledger.delays, csv, flights.airlines()))
    same = all(ledger.delays.same(csv, carrier) for carrier in csv.flights)
    seconds = max(sent.seconds, 0.001)
    for line in [
        f"flights in the CSV            {demo.rows:>9,}",
        f"acknowledged                  {sent.count:>9,}   ({sent.failed:,} failed)",
        f"consumed                      {ledger.distinct:>9,}   "
        + ", ".join(f"member {who} {count:,}" for who, count in sorted(ledger.by_member.items())),
        f"lost                          {ledger.lost:>9,}",
        f"doubled (stored twice)        {ledger.doubled:>9,}",
        f"redelivered                   {ledger.redelivered:>9,}   (the same record read again; it counts once)",
        f"commits that failed meanwhile {demo.commits_failed:>9,}",
        f"produced at {sent.count / seconds:,.0f} flights/s and consumed at "
        f"{ledger.distinct / max(demo.consumed_seconds, seconds):,.0f} flights/s, "
        f"the {demo.outage_seconds:.2f} s outage included",
    ]:
        console.print(line, highlight=False, soft_wrap=True)
    good = (
        same
        and not (ledger.lost or ledger.doubled or ledger.foreign or sent.failed)
        and sent.count == demo.rows
    )
    console.print(
        "[green]all there, once, and the delays agree[/]" if good else "[red]NOT as it should be[/]"
    )
    return good


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument(
        "--broker", choices=["ottla", "kafka"], default="ottla", help="run it against Apache Kafka"
    )
    kind = {"ottla": Ottla, "kafka": Kafka}[parser.parse_args().broker]
    console = Console()
    rows, csv = flights.delays_of_csv()
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        try:
            broker = kind(Path(folder))
        except maven.Unavailable as lack:
            console.print(f"Apache Kafka is not to be had here: {lack}")
            return 1
        try:
            broker.start()
            with screen(console, rows) as out:
                out.say(
                    f"{broker.name} accepts clients on {broker.address}; {rows:,} flights are to go through"
                )
                demo = Demo(broker, out, rows)
                try:
                    demo.run()
                except Stuck as stuck:
                    out.say(f"stuck: {stuck}; the broker's last lines:\n{broker.tail()}")
                finally:
                    demo.close()
            return 0 if _conclude(console, demo, csv) else 1
        finally:
            broker.stop()


if __name__ == "__main__":
    sys.exit(main())
