"""What ``/metrics`` costs: the data path with it on and off, and a scrape of many partitions and groups.

* Two brokers, one with ``metrics.listener`` and a scrape every five seconds, one without, take turns at the load of
  ``cpu``: the broker's CPU for a million records. A scrape counts in the CPU of the one that has it.
* 10,000 partitions and 1,000 groups: until a scrape is whole, and the longest round trip of a client that sends
  heartbeats over and over meanwhile, which shows for how long the event loop is held at a time.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

from harness import wire
from harness.brokers import HOST, Ottla, running
from harness.ports import free_port

from bench import load
from bench.context import Bench
from bench.measures.cpu import loaded, warm_up
from ottla_client import TopicPartition
from ottla_client.sync import Admin

_SCRAPE_SECONDS = 5.0
_TOPICS = 10


def _scrape(port: int) -> tuple[float, int]:
    """The seconds until the whole page is there, and its bytes."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    size = len(answer.read())
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"/metrics answered {answer.status}")
    return time.perf_counter() - began, size


@contextmanager
def _scraped(port: int) -> Iterator[None]:
    """Scrape regularly, from now on."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_SCRAPE_SECONDS):
            _scrape(port)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _data_path(bench: Bench) -> None:
    port = free_port()
    on = bench.broker(Ottla, {"metrics.listener": f"{HOST}:{port}"})
    off = bench.broker(Ottla, {"metrics.listener": ""})
    records = bench.scaled(6_000_000, 500_000)
    with running(on), running(off):
        for broker in (on, off):
            warm_up(bench, broker, bench.scaled(4_000_000, 500_000))
        for _ in range(bench.scaled(2 * bench.repeats + 1, 1)):
            for broker, label, scraped in (
                (on, "on, produce", _scraped(port)),
                (off, "off, produce", nullcontext()),
            ):
                topic = bench.topic(broker)
                job = load.Job("produce", broker.address, topic, records)
                with scraped:
                    loaded(bench, broker, "metrics", label, job)
                bench.drop(broker, topic)


def _many(bench: Bench) -> None:
    partitions, groups = bench.scaled(10_000, 1_000), bench.scaled(1_000, 100)
    label = f"{partitions:,} partitions, {groups:,} groups: "
    port = free_port()
    with running(bench.broker(Ottla, {"metrics.listener": f"{HOST}:{port}"})) as broker:
        connection = wire.Connection(HOST, broker.port)
        names = [f"many-{number}" for number in range(_TOPICS)]
        for name in names:
            connection.create(name, partitions // _TOPICS)
        with Admin(broker.address) as admin:
            for number in range(groups):
                admin.alter_group_offsets(f"group-{number}", {TopicPartition(names[number % _TOPICS], 0): 0})
        _scrape(port)  # The first one looks at the folders of logs that aren't open.
        for _ in range(bench.repeats):
            seconds, size = _scrape(port)
            quiet = _longest(connection, 2.0)
            with ThreadPoolExecutor(1) as pool:
                scrape = pool.submit(_scrape, port)
                disturbed = _longest(connection, 2.0)
                scrape.result()
            bench.add("metrics", label + "a scrape", "ms", "lower", broker, seconds * 1000)
            bench.add("metrics", label + "its size", "MB", "lower", broker, size / 1e6)
            bench.add("metrics", label + "longest round trip, quiet", "ms", "lower", broker, quiet)
            bench.add("metrics", label + "longest round trip meanwhile", "ms", "lower", broker, disturbed)
        connection.close()


def _longest(connection: wire.Connection, seconds: float) -> float:
    """The longest of the round trips of so many seconds, in ms."""
    longest = 0.0
    end = time.perf_counter() + seconds
    while (began := time.perf_counter()) < end:
        connection.call(wire.HEARTBEAT, wire.heartbeat("no-such-group", 0, "member"))
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.0005)
    return longest * 1000


def measure(bench: Bench) -> None:
    if Ottla not in bench.kinds:
        return
    _data_path(bench)
    _many(bench)
