"""Kafka's LogValidator and Ottla's on the same batches: any difference is one of those in docs/differences.md."""

from __future__ import annotations

import struct
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from harness.java import find_java
from tests.interop.support import PROGRAMS, needed, run
from tests.support import bad_batches
from tests.support.bad_batches import TIME

from ottla_broker.log.config import LogConfig
from ottla_broker.log.record_validation import validate
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CODEC_MASK, CorruptRecordError, read_header
from ottla_protocol.records.scan import FIELD, HEADER, NUMBER, REASONS, TIMESTAMP

BATCHES = 40_000


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    run([needed("javac"), "-cp", f"{java_libs}/*", "-d", str(folder), str(PROGRAMS / "Verdicts.java")])
    return folder


def kafkas(batches: list[bytes], config: LogConfig, classes: Path, libs: Path) -> list[str]:
    parts = [struct.pack(">qqb", TIME, config.message_timestamp_after_max_ms, config.compact)]
    for data in batches:
        parts += (struct.pack(">i", len(data)), data)
    parts.append(struct.pack(">i", -1))
    command = [find_java(), "-Xmx512M", "-cp", f"{libs}/*:{classes}", "Verdicts"]
    done = subprocess.run(command, input=b"".join(parts), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.decode().split()


def ottlas(data: bytes, config: LogConfig) -> tuple[str, str]:
    """An error's name and text, or the batch's largest timestamp."""
    try:
        return str(validate(memoryview(bytearray(data)), config, "flights-0", TIME).header.max_timestamp), ""
    except KafkaError as error:
        return error.code.name, error.message or ""


def difference(data: bytes, ottla: str, text: str, kafka: str) -> str:
    """Which known difference this is."""
    try:
        header = read_header(data)
    except CorruptRecordError:
        return "framing" if not kafka.lstrip("-").isdigit() and not ottla.lstrip("-").isdigit() else ""
    if header.attributes & ~CODEC_MASK:
        return "attributes"
    if kafka == "UNKNOWN_SERVER_ERROR":
        # Kafka has no error of its own for what can't be decompressed, for numbers of too many bytes, and for wrong
        # offset deltas in compressed batches, which Ottla puts right.
        return "no error of its own"
    if "timestamp -9" in text:
        return "a timestamp whose distance from now has more than 64 bits"
    if header.producer_id >= 0 and header.producer_epoch < 0:
        return "producer epoch"
    if kafka.lstrip("-").isdigit() and ottla == "INVALID_RECORD":
        if any(text.endswith(REASONS[reason]) for reason in (NUMBER, FIELD, HEADER, TIMESTAMP)):
            return "numbers that clients read differently"
        if header.codec and "can't be read" in text:
            return "length of a compressed record"
    if {kafka, ottla} <= {"INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE"}:
        return "which of several errors"
    return ""


@pytest.mark.parametrize("compact", [False, True])
def test_kafka_says_the_same(compact: bool, classes: Path, java_libs: Path) -> None:
    config = LogConfig(
        compact=compact, message_timestamp_before_max_ms=10_000, message_timestamp_after_max_ms=10_000
    )
    batches = [bytes(data) for _, data in bad_batches.one_field_at_a_time()]
    batches += map(bytes, bad_batches.batches(39 + compact, BATCHES))
    same: Counter[str] = Counter()
    known: Counter[str] = Counter()
    for data, kafka in zip(batches, kafkas(batches, config, classes, java_libs), strict=True):
        ottla, text = ottlas(data, config)
        if ottla == kafka:
            same[kafka if kafka in ErrorCode.__members__ else "stored"] += 1
            continue
        name = difference(data, ottla, text, kafka)
        assert name, (ottla, text, kafka, data)
        known[name] += 1
    print(same, known)
    assert same["stored"] > BATCHES // 20
    assert same["INVALID_RECORD"] > BATCHES // 5
    assert known.total() < BATCHES // 4
