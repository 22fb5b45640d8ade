"""Kafka's own performance tools, as main classes in the jars of :mod:`harness.maven`."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from harness import maven
from harness.java import find_java

_LOG4J = Path(tempfile.gettempdir()) / "ottla-bench-log4j.properties"


def run(main: str, *arguments: str, timeout: float = 600.0) -> str:
    """Run a tool to its end and give back its output; RuntimeError when it fails."""
    _LOG4J.write_text("log4j.rootLogger=OFF\n")
    command = [
        find_java(),
        "-Xmx512M",
        f"-Dlog4j.configuration=file:{_LOG4J}",
        "-cp",
        f"{maven.kafka_jars()}/*",
    ]
    done = subprocess.run(
        [*command, main, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if done.returncode:
        raise RuntimeError(f"{main} failed ({done.returncode}):\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def produce(address: str, topic: str, records: int, size: int, acks: str, codec: str) -> float:
    """Records a second by ProducerPerformance, batches of 64 KiB."""
    output = run(
        "org.apache.kafka.tools.ProducerPerformance",
        "--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={address}", f"acks={acks}", f"compression.type={codec}",
        "batch.size=65536", "linger.ms=5",
    )  # fmt: skip
    rates = re.findall(r"records sent, ([\d.]+) records/sec", output)
    if not rates:
        raise RuntimeError(f"ProducerPerformance printed no rate:\n{output[-500:]}")
    return float(rates[-1])


def consume(address: str, topic: str, records: int) -> float:
    """Records a second by ConsumerPerformance, without the time its group took to form."""
    output = run(
        "org.apache.kafka.tools.ConsumerPerformance",
        "--bootstrap-server", address, "--topic", topic, "--messages", str(records), "--timeout", "60000",
    )  # fmt: skip
    lines = [line.split(", ") for line in output.splitlines() if line.count(", ") == 9]
    if len(lines) < 2:
        raise RuntimeError(f"ConsumerPerformance printed no figures:\n{output[-500:]}")
    figures = dict(zip(lines[0], lines[-1], strict=True))
    if int(figures["data.consumed.in.nMsg"]) < records:
        raise RuntimeError(f"ConsumerPerformance saw {figures['data.consumed.in.nMsg']} of {records} records")
    return float(figures["fetch.nMsg.sec"])


def end_to_end(address: str, topic: str, records: int, size: int) -> dict[str, float]:
    """EndToEndLatency, acks=all, one record at a time: mean and whole-millisecond percentiles, in ms."""
    output = run("org.apache.kafka.tools.EndToEndLatency", address, topic, str(records), "all", str(size))
    mean = re.search(r"Avg latency: ([\d.]+) ms", output)
    parts = re.search(r"50th = (\d+), 99th = (\d+), 99.9th = (\d+)", output)
    if mean is None or parts is None:
        raise RuntimeError(f"EndToEndLatency printed no figures:\n{output[-500:]}")
    found = {"mean": float(mean[1])}
    found.update(zip(("p50", "p99", "p99.9"), map(float, parts.groups()), strict=True))
    return found
