"""The results of a run: figures by broker, medians, ratios, bars, and JSON."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class Row:
    """One figure per broker; ``better`` is ``higher`` or ``lower``."""

    measure: str
    name: str
    unit: str
    better: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def median(self, broker: str) -> float | None:
        values = self.values.get(broker)
        return statistics.median(values) if values else None

    @property
    def ratio(self) -> float | None:
        """Ottla's median over Kafka's."""
        ours, theirs = self.median("ottla"), self.median("kafka")
        return None if ours is None or not theirs else ours / theirs


class Results:
    """The rows of a run, in the order of their first figures."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Row] = {}
        self.failures: list[str] = []

    def add(self, measure: str, name: str, unit: str, better: str, broker: str, value: float) -> None:
        row = self.rows.setdefault((measure, name), Row(measure, name, unit, better))
        row.values.setdefault(broker, []).append(value)

    def median(self, measure: str, name: str, broker: str = "ottla") -> float | None:
        row = self.rows.get((measure, name))
        return None if row is None else row.median(broker)

    def write(self, folder: Path, options: dict[str, object]) -> Path:
        """Write the run as JSON, making the folder. Returns the file."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
        rows = [
            {
                "measure": row.measure,
                "name": row.name,
                "unit": row.unit,
                "better": row.better,
                "values": row.values,
                "median": {broker: row.median(broker) for broker in row.values},
                "ratio": row.ratio,
            }
            for row in self.rows.values()
        ]
        bars = [{"bar": bar.text, "measured": bar.measured(self), "met": bar.met(self)} for bar in BARS]
        machine = {"python": platform.python_version(), "kernel": platform.release(), "cpu": _cpu()}
        document = {
            "machine": machine,
            "options": options,
            "rows": rows,
            "bars": bars,
            "failures": self.failures,
        }
        path.write_text(json.dumps(document, indent=1) + "\n")
        return path


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(models)} x {models[0]}" if models else platform.machine()


@dataclass(frozen=True, slots=True)
class Bar:
    """A target for Ottla's median, or for its ratio to Kafka's.

    With ``own``, ``limit`` is for the median itself, otherwise for the ratio.
    """

    text: str
    measure: str
    name: str
    limit: float
    own: bool = False
    at_least: bool = False

    def value(self, results: Results) -> float | None:
        row = results.rows.get((self.measure, self.name))
        if row is None:
            return None
        return row.median("ottla") if self.own else row.ratio

    def met(self, results: Results) -> bool | None:
        """Whether the target is met; None if it was not measured."""
        value = self.value(results)
        if value is None:
            return None
        return value >= self.limit if self.at_least else value <= self.limit

    def measured(self, results: Results) -> str:
        value = self.value(results)
        if value is None:
            return "not measured"
        row = results.rows[(self.measure, self.name)]
        if self.own:
            return number(value, row.unit)
        ours, theirs = row.median("ottla") or 0.0, row.median("kafka") or 0.0
        return f"{number(ours, row.unit)} against {number(theirs, row.unit)} ({value:.2f})"


@dataclass(frozen=True, slots=True)
class PeerBar:
    """A target relative to other figures of the same run, on every broker that has both.

    ``limit`` is for the median over the best of the rows ``peers``: a maximum, or a minimum with ``at_least``.
    """

    text: str
    measure: str
    name: str
    peers: tuple[str, ...]
    limit: float
    at_least: bool = False

    def ratios(self, results: Results) -> dict[str, float]:
        """Return the ratios by broker."""
        own = results.rows.get((self.measure, self.name))
        ratios: dict[str, float] = {}
        for broker in () if own is None else own.values:
            mine = results.median(self.measure, self.name, broker)
            theirs = [results.median(self.measure, peer, broker) for peer in self.peers]
            measured = [median for median in theirs if median]
            if mine and measured:
                ratios[broker] = mine / (max(measured) if self.at_least else min(measured))
        return ratios

    def met(self, results: Results) -> bool | None:
        """Whether the target is met; None if it was not measured."""
        ratios = self.ratios(results).values()
        if not ratios:
            return None
        return all(ratio >= self.limit if self.at_least else ratio <= self.limit for ratio in ratios)

    def measured(self, results: Results) -> str:
        ratios = self.ratios(results)
        return ", ".join(f"{ratio:.2f} on {broker}" for broker, ratio in ratios.items()) or "not measured"


_C_CLIENT = ("produce, confluent-kafka produce", "produce, confluent-kafka produce_batch")
_AIOKAFKA = ("consume, aiokafka getmany", "consume, aiokafka async for")


def _client(text: str, name: str, limit: float, *peers: str) -> PeerBar:
    return PeerBar(f"ottla_client, {text}", "client", name, peers, limit, at_least=True)


def _round(what: str, percent: str) -> PeerBar:
    text = f"round trip, {what}, {percent}: below aiokafka's"
    return PeerBar(text, "round", f"ottla {what}: {percent}", (f"aiokafka {what}: {percent}",), 1.0)


def _spark(text: str, name: str, peer: str, limit: float, at_least: bool = True) -> PeerBar:
    return PeerBar(f"Spark, {text} its Kafka connector", "spark", name, (peer,), limit, at_least)


_KEYED = "32 consumers, 4 partitions, ordered by key: "
_SCRAPE = "10,000 partitions, 1,000 groups: "

BARS: list[Bar | PeerBar] = [
    Bar("start to first acknowledged produce: under 0.5 s", "start", "existing folder", 0.5, own=True),
    Bar("resident memory, idle: under 80 MB", "memory", "idle", 80.0, own=True),
    Bar("produce rate, C client, 100 B: Kafka's or ahead", "cpu", "produce rate", 1.0, at_least=True),
    Bar("consume rate, C client, 100 B: Kafka's or ahead", "cpu", "consume rate", 1.0, at_least=True),
    Bar("broker CPU per million records of 100 B, produce: at most Kafka's", "cpu", "produce CPU", 1.0),
    Bar("broker CPU per million records of 100 B, consume: at most Kafka's", "cpu", "consume CPU", 1.0),
    Bar("end to end, acks=all, p50: at most Kafka's", "latency", "p50", 1.0),
    Bar("end to end, acks=all, p99: at most Kafka's", "latency", "p99", 1.0),
    Bar(
        "transactions of 100 records: Kafka's rate or ahead",
        "transactions",
        "in transactions, 100 together: rate",
        1.0,
        at_least=True,
    ),
    Bar("the same, p99 of a commit: at most Kafka's", "transactions", "in transactions, 100 together: p99", 1.0),
    PeerBar(
        "transactions of 1,000 records: 0.9 of the idempotent rate",
        "transactions",
        "in transactions, 1000 together: rate",
        ("idempotent, 1000 together: rate",),
        0.9,
        at_least=True,
    ),
    PeerBar(
        "the same by ottla_client",
        "transactions",
        "ottla_client, in transactions, 1000 together: rate",
        ("ottla_client, idempotent, 1000 together: rate",),
        0.9,
        at_least=True,
    ),
    Bar("1,000 consumers in a group stable: no later than Kafka", "group", "1,000 stable, no delay", 1.0),
    Bar("the same with the default delay of 3 s", "group", "1,000 stable, default delay", 1.0),
    Bar("5,000 consumers in one group stable: half of Kafka", "members", "5,000 in one group: stable", 0.5),
    Bar("the same in 50 groups: 0.7 of Kafka", "members", "5,000 in 50 groups: stable", 0.7),
    Bar("heartbeats of 5,000, p50: half of Kafka", "members", "5,000 heartbeats p50", 0.5),
    Bar("heartbeats of 5,000, p99: half of Kafka", "members", "5,000 heartbeats p99", 0.5),
    Bar("5,000 commits a second, p99: under 100 ms", "members", "5,000 commits p99", 100.0, own=True),
    Bar("5,000 consumers of the 2012 coordinator started: 10 s", "push", "5,000: all fetchers started", 10.0, own=True),
    Bar("the same: memory under 250 MB", "push", "memory", 250.0, own=True),
    Bar("32 consumers ordered by key: 0.9 of 200 each", "share", _KEYED + "of 32 x 200/s", 0.9, True, True),
    Bar("the same: no inversion", "share", _KEYED + "inversions", 0.0, own=True),
    Bar("TLS, 100 B: produce CPU at most Kafka's", "secure", "100 B over TLS produce CPU", 1.0),
    Bar("the same, consume", "secure", "100 B over TLS consume CPU", 1.0),
    Bar("TLS, 1 KiB: produce CPU at most Kafka's", "secure", "1024 B over TLS produce CPU", 1.0),
    Bar("the same, consume", "secure", "1024 B over TLS consume CPU", 1.0),
    Bar("end to end over TLS, p50: at most Kafka's", "secure", "end to end over TLS p50", 1.0),
    Bar("the same, p99", "secure", "end to end over TLS p99", 1.0),
    Bar("10,000 rules: under 2 % of the CPU", "acls", "share of 10000 rules in the CPU", 2.0, own=True),
    Bar("1,000 SCRAM logins at once: no later than Kafka", "logins", "1000 logins at once", 1.0),
    Bar("a bystander's p99 meanwhile: under 50 ms", "logins", "bystander p99, while clients log in", 50.0, own=True),
    *(
        Bar(f"a flood ({what}): others' p99 at most 3 x quiet", "flood", f"p99 beside quiet: {what}", 3.0, own=True)
        for what in ("produce", "metadata", "joins", "connections", "handshakes")
    ),
    PeerBar("metrics on: at most 1 % more CPU", "metrics", "on, produce CPU", ("off, produce CPU",), 1.01),
    Bar("/metrics, 10,000 partitions, 1,000 groups: 200 ms", "metrics", _SCRAPE + "a scrape", 200.0, own=True),
    Bar("10,000 partitions: starts in under 5 s", "partitions", "10,000: restart", 5.0, own=True),
    Bar("10,000 partitions: idle CPU under 2 %", "partitions", "10,000: idle CPU", 2.0, own=True),
    Bar("10 M records over 1 M keys cleaned: no later than Kafka", "cleaning", "10 M records until clean", 1.0),
    PeerBar(
        "p99 of produce while cleaning: at most twice the quiet one",
        "cleaning",
        "produce p99, cleaning",
        ("produce p99, quiet",),
        2.0,
    ),
    Bar(
        "10 M commits to one partition: under two segments left",
        "commits",
        "10 M commits: left, in segments of 10 MiB",
        2.0,
        own=True,
    ),
    Bar("1 GB converted to format 1 for an old consumer: no later than Kafka", "conversion", "1 GB to format 1", 1.0),
    Bar("1 GB converted to format 0: no later than Kafka", "conversion", "1 GB to format 0", 1.0),
    PeerBar(
        "p99 of produce while converting: at most twice the quiet one",
        "conversion",
        "produce p99, converting",
        ("produce p99, quiet",),
        2.0,
    ),
    Bar("fsync for each acknowledgement, one partition: ahead", "flush", "one partition: rate", 1.0, at_least=True),
    Bar("the same, 32 partitions", "flush", "32 partitions: rate", 1.0, at_least=True),
    Bar("1 GB not flushed, SIGKILL: serving no later than Kafka", "recovery", "1 GB not flushed: serving", 1.0),
    PeerBar(
        "p99 of produce while another broker recovers: at most twice the quiet one",
        "recovery",
        "produce p99, another broker recovers",
        ("produce p99, quiet",),
        2.0,
    ),
    Bar("fetch, of a bare sendfile loop: at least 0.8", "fetch", "of bare sendfile", 0.8, True, True),
    Bar(
        "console, first page, 1,000 topics and groups: under 1 s",
        "console",
        "1,000 topics and groups: first page",
        1.0,
        own=True,
    ),
    Bar(
        "console, broker CPU for an open page, 6,000 partitions: under 0.5 %",
        "console",
        "6,000 partitions: broker's CPU for an open page",
        0.5,
        own=True,
    ),
    Bar(
        "console, filter of 1 M records that none passes: under 3 s",
        "console",
        "filter of 1,000,000 records of 100 B: none passes",
        3.0,
        own=True,
    ),
    _client("produce one by one: twice aiokafka", "produce, ottla send", 2.0, "produce, aiokafka send"),
    _client("produce in batches: 0.9 of confluent-kafka", "produce, ottla send_batch", 0.9, *_C_CLIENT),
    _client("consume one by one: 1.5 times aiokafka", "consume, ottla async for", 1.5, _AIOKAFKA[1]),
    _client("consume in batches: three times aiokafka", "consume, ottla poll", 3.0, *_AIOKAFKA),
    _client("consume as Arrow: three times aiokafka", "consume, ottla poll_arrow", 3.0, *_AIOKAFKA),
    _round("acknowledged", "p50"),
    _round("acknowledged", "p99"),
    _round("back at a consumer", "p50"),
    _round("back at a consumer", "p99"),
    PeerBar("ottla produce, from a file: half of kcat's rate", "cli", "ottla produce", ("kcat produce",), 0.5, True),
    PeerBar("ottla consume, to a file: half of kcat's rate", "cli", "ottla consume", ("kcat consume",), 0.5, True),
    Bar("leader killed, three replicas: under 1 s without", "failover", "leader killed", 1.0, own=True),
    Bar("the same, it is the controller, too: under 1 s", "failover", "leader and controller killed", 1.0, own=True),
    Bar("leader stopped: under 0.3 s without", "failover", "leader stopped", 0.3, own=True),
    Bar("leader frozen: under a session of 6 s and 1 s without", "failover", "leader frozen", 7.0, own=True),
    Bar("three brokers from nothing: under 2 s", "failover", "three brokers serve", 2.0, own=True),
    Bar("memory of one of three brokers, idle: under 90 MB", "failover", "memory of one, idle", 90.0, own=True),
    Bar("acks=all, three replicas: Kafka's rate or ahead", "failover", "produce acks=all", 1.0, at_least=True),
    Bar("2,000 partitions, controller killed: all led in 5 s", "wide", "2,000 x 3: controller killed", 5.0, own=True),
    _spark("scan over the wire: three times", "scan, over the wire", "scan, Kafka connector", 3.0),
    _spark("scan from segments: five times", "scan, from segments", "scan, Kafka connector", 5.0),
    _spark("landed in Parquet: four times", "to Parquet snappy, ottla", "to Parquet snappy, Kafka connector", 4.0),
    _spark(
        "flights typed and landed: three times",
        "flights typed, ottla to Delta zstd",
        "flights typed, Kafka connector to Parquet zstd",
        3.0,
    ),
    _spark(
        "a micro-batch of 10,000: no slower than",
        "micro-batch of 10,000, ottla",
        "micro-batch of 10,000, Kafka connector",
        1.0,
        at_least=False,
    ),
    Bar("memory of a read task in Spark: under 300 MB", "spark", "memory of a read task, over the wire", 300.0, True),
    Bar("the same from segments", "spark", "memory of a read task, from segments", 300.0, own=True),
    Bar("import ottla_client: under 0.1 s", "import", "ottla_client", 0.1, own=True),
    Bar("broker inside a test, ready from nothing: under 0.5 s", "fixture", "ready", 0.5, own=True),
]  # fmt: skip


def number(value: float, unit: str) -> str:
    """Format a figure with its unit, to about three digits."""
    if value >= 1_000_000:
        text = f"{value / 1_000_000:.2f} M"
    elif value >= 10_000:
        text = f"{value / 1000:.0f} k"
    elif value >= 100:
        text = f"{value:.0f}"
    else:
        text = f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def table(head: list[str], lines: list[list[str]], right: Callable[[int], bool]) -> str:
    """Align text in columns; ``right`` marks the right-aligned ones."""
    widths = [max(len(line[index]) for line in [head, *lines]) for index in range(len(head))]

    def one(cells: list[str]) -> str:
        placed = [
            cell.rjust(width) if right(index) else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(placed).rstrip()

    return "\n".join([one(head), "  ".join("-" * width for width in widths), *map(one, lines)])


def report(results: Results, brokers: list[str]) -> str:
    """Format the rows with their ratios, then the bars whose figures were measured."""
    lines = []
    for row in results.rows.values():
        medians = [row.median(broker) for broker in brokers]
        cells = ["" if median is None else number(median, row.unit) for median in medians]
        ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
        lines.append([row.measure, row.name, *cells, ratio, f"{row.better} is better"])
    head = ["measure", "what", *brokers, "ratio", ""]
    text = table(head, lines, lambda index: 2 <= index < 3 + len(brokers))
    measured = [bar for bar in BARS if bar.met(results) is not None]
    if not measured:
        return text
    bars = [["pass" if bar.met(results) else "FAIL", bar.text, bar.measured(results)] for bar in measured]
    return f"{text}\n\n{table(['bar', 'what', 'measured'], bars, lambda index: False)}"
