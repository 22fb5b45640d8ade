"""``ottla console``: its pages with many topics and groups, what an open page costs the broker, and a filter.

* The first page: from the request to the whole page, in a console that has just started, with 1,000 topics of six
  partitions and 1,000 groups, and its bytes as they go over the wire, with the style, the script and the icon that it
  loads (the bars are a second and 200 KB); the page of groups after it.
* An open page: the broker's CPU while a browser stays on the first page, as a share of one core, beyond what the same
  broker takes without one. "At first" is the first minute and a half, in which the console asks for what changes least:
  sizes, settings and every group.
* A filter over a million records of 100 B that few or no record passes: until the first hit, and until its end.
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from urllib.parse import urlencode

from harness.brokers import HOST, Broker
from harness.ports import free_port

from bench import load, procstat
from bench.context import Bench
from ottla_client import TopicPartition
from ottla_client.admin import NewTopic
from ottla_client.sync import Admin

_PARTITIONS = 6
_TOGETHER = 100
_PATIENCE = 120.0
_SETTLING = 90
"""Seconds after which a console has looked at everything once."""
_NONE = "nothing has this text"


class _Console:
    """A console's process, and a browser with its cookie."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cookie = ""

    def get(self, path: str) -> float:
        """The seconds until a whole page is there. Raises RuntimeError for a page of a failure."""
        return self.fetch(path)[0]

    def fetch(self, path: str) -> tuple[float, int, str]:
        """The same, with the page's bytes over the wire, and its text."""
        began = time.perf_counter()
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_PATIENCE)
        connection.request("GET", path, headers={"Cookie": self._cookie, "Accept-Encoding": "gzip"})
        answer = connection.getresponse()
        data = answer.read()
        seconds = time.perf_counter() - began
        text = gzip.decompress(data) if answer.getheader("Content-Encoding") == "gzip" else data
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}: {text[:500]!r}")
        self._cookie = (answer.getheader("Set-Cookie") or self._cookie).partition(";")[0]
        connection.close()
        head = sum(len(f"{name}: {value}\r\n") for name, value in answer.getheaders())
        return seconds, head + len(data), text.decode()

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[tuple[str, object]]]:
        """The events of a page's stream, which is left at the end."""
        connection = http.client.HTTPConnection(HOST, self._port, timeout=_PATIENCE)
        connection.request("GET", path, headers={"Cookie": self._cookie, "Accept": "text/event-stream"})
        try:
            yield _events(connection.getresponse())
        finally:
            connection.close()


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, object]]:
    name = ""
    while line := answer.readline():
        if line.startswith(b"event: "):
            name = line[7:].decode().strip()
        elif line.startswith(b"data: "):
            yield name, json.loads(line[6:])


@contextmanager
def _console(broker: Broker) -> Iterator[_Console]:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "ottla_cli",
        "console",
        "-b",
        broker.address,
        "--listen",
        f"{HOST}:{port}",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline().startswith("the console is at"):
                raise RuntimeError("the console didn't start")
            yield _Console(port)
        finally:
            process.terminate()


def _fill(broker: Broker, count: int) -> None:
    """Make topics, and groups with a committed offset."""
    with Admin(broker.address, request_timeout_ms=60_000) as admin:
        for first in range(0, count, _TOGETHER):
            admin.create_topics(
                [NewTopic(f"many-{number:04}", _PARTITIONS) for number in range(first, first + _TOGETHER)]
            )
        for number in range(count):
            admin.alter_group_offsets(f"group-{number:04}", {TopicPartition(f"many-{number:04}", 0): 0})


def _pages(bench: Bench, broker: Broker, count: int) -> None:
    label = f"{count:,} topics and groups: "
    for _ in range(bench.repeats):
        with _console(broker) as console:
            seconds, size, page = console.fetch("/")
            assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', page)
            if len(assets) < 3:
                raise RuntimeError(f"the page loads only {assets}")
            size += sum(console.fetch(path)[1] for path in assets)
            bench.add("console", label + "first page", "s", "lower", broker, seconds)
            bench.add("console", label + "its size", "KB", "lower", broker, size / 1000)
            bench.add("console", label + "groups", "s", "lower", broker, console.get("/groups"))


def _open_pages(bench: Bench, brokers: Sequence[Broker], count: int) -> None:
    """A console's page on each broker, all of them open at the same time."""
    label = f"{count * _PARTITIONS:,} partitions: broker's CPU for an open page"
    idle = _cpu(brokers, bench.scaled(30, 5))
    with ExitStack() as stack:
        for broker in brokers:
            console = stack.enter_context(_console(broker))
            console.get("/")
            next(stack.enter_context(console.events("/")))
        first = _cpu(brokers, bench.scaled(_SETTLING, 5))
        later = _cpu(brokers, bench.scaled(60, 5))
    for broker in brokers:
        for when, spent in (("", later), (", at first", first)):
            share = max(0.0, spent[broker] - idle[broker])
            bench.add("console", label + when, "%", "lower", broker, share)


def _cpu(brokers: Sequence[Broker], seconds: float) -> dict[Broker, float]:
    """Percent of a core that each broker takes."""
    before = {broker: procstat.cpu_seconds(broker.pid) for broker in brokers}
    time.sleep(seconds)
    return {
        broker: (procstat.cpu_seconds(broker.pid) - spent) / seconds * 100 for broker, spent in before.items()
    }


def _filter(bench: Bench, broker: Broker) -> None:
    records = bench.scaled(1_000_000, 100_000)
    topic = bench.topic(broker)
    load.run(load.Job("produce", broker.address, topic, records))
    label = f"filter of {records:,} records of 100 B: "
    rare = load.payloads(100, load.BATCH)[load.BATCH // 2].decode()
    questions = {
        "none passes": {"contains": _NONE},
        "one in 10,000 passes": {"contains": rare},
        "a regular expression that none passes": {"contains": r"nothing \d+ this", "regex": "1"},
    }
    with _console(broker) as console:
        console.get("/")
        for _ in range(bench.repeats):
            for name, question in questions.items():
                first, whole = _search(console, topic, question)
                bench.add("console", label + name, "s", "lower", broker, whole)
                if first is not None:
                    bench.add("console", label + "first hit", "s", "lower", broker, first)
    bench.drop(broker, topic)


def _search(console: _Console, topic: str, question: dict[str, str]) -> tuple[float | None, float]:
    """The seconds until the first hit, None without one, and until the end."""
    began = time.perf_counter()
    first: float | None = None
    with console.events(
        f"/topics/{topic}/found?{urlencode({**question, 'from': 'earliest', 'limit': 500})}"
    ) as events:
        for name, data in events:
            if name == "hits" and isinstance(data, dict) and data["html"] and first is None:
                first = time.perf_counter() - began
            elif name != "hits":
                if name != "done" or "all searched" not in str(data):
                    raise RuntimeError(f"the search ended: {data}")
                break
    return first, time.perf_counter() - began


def measure(bench: Bench) -> None:
    count = bench.scaled(1000, 100)
    with bench.all_up() as brokers:
        for broker in brokers:
            _filter(bench, broker)
            _fill(broker, count)
            _pages(bench, broker, count)
        _open_pages(bench, brokers, count)
