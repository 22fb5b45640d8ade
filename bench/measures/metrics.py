"""What ``/metrics`` costs: the data path with it on and off, and a scrape of many partitions and groups.

* Two brokers, one with ``metrics.listener`` and a scrape every five seconds, one without, take turns at the load of
  ``cpu``: the broker's CPU for a million records. A scrape counts in the CPU of the one that has it.
* 10,000 partitions that have records, and 1,000 groups with ten offsets each: until a scrape is whole, the processor
  time that it takes, and for how long it holds the event loop at a time: by the broker's own measure of processor time,
  and by the longest round trip of a client that sends heartbeats over and over meanwhile, beside one without a scrape.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext

from harness import wire
from harness.brokers import HOST, Ottla, running
from harness.ports import free_port

from bench import load, procstat
from bench.context import Bench
from bench.measures.cpu import loaded, warm_up
from ottla_client import TopicPartition
from ottla_client.sync import Admin, Producer

_SCRAPE_SECONDS = 5.0
_TOPICS = 10
_OFFSETS = 10
_REST_SECONDS = 2.5
"""A broker makes the page at most every two seconds."""


def _scrape(port: int) -> tuple[float, bytes]:
    """The seconds until the whole page is there, and the page."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"/metrics answered {answer.status}")
    return time.perf_counter() - began, text


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
        with Producer(broker.address) as producer:
            for name in names:
                for partition in range(partitions // _TOPICS):
                    producer.send(name, b"x", partition=partition)
                producer.flush()
        with Admin(broker.address) as admin:
            for number in range(groups):
                topic = names[number % _TOPICS]
                admin.alter_group_offsets(
                    f"group-{number}", {TopicPartition(topic, index): 0 for index in range(_OFFSETS)}
                )
        _scrape(port)
        for _ in range(bench.repeats):
            time.sleep(_REST_SECONDS)
            spent = procstat.cpu_seconds(broker.pid)
            seconds, text = _scrape(port)
            spent = procstat.cpu_seconds(broker.pid) - spent
            quiet = _longest(connection, 2.0)
            with ThreadPoolExecutor(1) as pool:
                scrape = pool.submit(_scrape, port)
                disturbed = _longest(connection, 2.0)
                scrape.result()
            bench.add("metrics", label + "a scrape", "ms", "lower", broker, seconds * 1000)
            bench.add("metrics", label + "its processor time", "ms", "lower", broker, spent * 1000)
            bench.add("metrics", label + "the loop is held for", "ms", "lower", broker, _held(text) * 1000)
            bench.add("metrics", label + "its size", "MB", "lower", broker, len(text) / 1e6)
            bench.add("metrics", label + "longest round trip, quiet", "ms", "lower", broker, quiet)
            bench.add("metrics", label + "longest round trip meanwhile", "ms", "lower", broker, disturbed)
        connection.close()


def _held(text: bytes) -> float:
    """For how many seconds a scrape held the event loop at a time."""
    found = re.search(rb"^ottla_metrics_held_seconds_max (\S+)$", text, re.MULTILINE)
    if found is None:
        raise RuntimeError("the scrape doesn't say how long it held the event loop")
    return float(found[1])


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
