"""A data folder moves: Kafka's DumpLogSegments reads every file the broker wrote and finds nothing amiss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import javatools, maven, wire
from harness.brokers import HOST
from tests.interop.conftest import KIND, SETTINGS, java_tools
from tests.interop.support import Java

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 3000
GROUP = "dumped-group"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Java, Path]]:
    """A folder that a broker filled by clients of Kafka's own, and left by a clean stop."""
    broker = KIND(tmp_path_factory.mktemp("dumped"), {**SETTINGS, "offsets.topic.num.partitions": "1"})
    broker.start()
    try:
        java = java_tools(broker.address, maven.KAFKA_VERSION, tmp_path_factory.mktemp("tools"))
        connection = wire.Connection(HOST, broker.port)
        configs = {"segment.bytes": "200000", "index.interval.bytes": "1024"}
        for codec in CODECS:
            connection.create(f"dump-{codec}", 1, configs)
            javatools.produce(broker.address, f"dump-{codec}", RECORDS, 200, "all", codec)
        connection.create("dump-keys", 1)
        connection.create("dump-transactions", 1)
        connection.close()
        _transactions(broker.address)
        java.produce("dump-keys", [f"h:1\tk{n}\tv{n}" for n in range(10)], *_keys_and_headers())
        assert len(java.consume("dump-keys", 10, "--group", GROUP)) == 10
        broker.stop()
        yield java, broker.data
    finally:
        broker.remove()


def _transactions(address: str) -> None:
    """A committed transaction, an aborted one, and one that is open when the broker stops."""
    producer = Producer({"bootstrap.servers": address, "transactional.id": "dumped"})
    producer.init_transactions(60)
    for end in (producer.commit_transaction, producer.abort_transaction, None):
        producer.begin_transaction()
        producer.produce("dump-transactions", b"v", partition=0)
        assert producer.flush(60) == 0
        if end is not None:
            end(60)


def _keys_and_headers() -> list[str]:
    return ["--property", "parse.key=true", "--property", "parse.headers=true"]


def _dump(java: Java, files: list[Path], *arguments: str) -> str:
    assert files
    output = java.offline("dump-log", "--files", ",".join(map(str, files)), *arguments)
    for complaint in (
        "Mismatches in",
        "Non-consecutive offsets",
        "mismatch",
        "error",
        "Exception",
        "corrupt",
    ):
        assert complaint not in output, output[-3000:]
    return output


@pytest.mark.parametrize("codec", CODECS)
def test_segments_deeply(written: tuple[Java, Path], codec: str) -> None:
    java, data = written
    segments = sorted((data / f"dump-{codec}-0").glob("*.log"))
    if codec == "none":
        assert len(segments) >= 3
    output = _dump(java, segments, "--deep-iteration")
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
    assert offsets == list(range(RECORDS))
    assert output.count("isvalid: true") == len(re.findall(r"^baseOffset: ", output, re.MULTILINE))
    assert set(re.findall(r"compresscodec: (\w+)", output)) == {codec}
    starts = [int(found) for found in re.findall(r"Log starting offset: (\d+)", output)]
    assert starts == [int(segment.stem) for segment in segments]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_indexes(written: tuple[Java, Path], codec: str) -> None:
    java, data = written
    folder = data / f"dump-{codec}-0"
    for ending in ("index", "timeindex"):
        output = _dump(java, sorted(folder.glob(f"*.{ending}")), "--verify-index-only")
        assert f"Dumping {folder}" in output
        # As Kafka leaves them: trimmed to their entries by a clean stop.
        _dump(java, sorted(folder.glob(f"*.{ending}")), "--index-sanity-check")
    entries = _dump(java, sorted(folder.glob("*.index")))
    assert re.search(r"offset: \d+ position: \d+", entries)
    times = _dump(java, sorted(folder.glob("*.timeindex")))
    assert re.search(r"timestamp: \d{13} offset: \d+", times)


def test_producer_snapshots(written: tuple[Java, Path]) -> None:
    java, data = written
    snapshots = sorted((data / "dump-none-0").glob("*.snapshot"))
    output = _dump(java, snapshots)
    last = output.splitlines()[-1]
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: \d+.*lastOffset: \d+", last), last


def test_transactions(written: tuple[Java, Path]) -> None:
    java, data = written
    folder = data / "dump-transactions-0"
    output = _dump(java, sorted(folder.glob("*.log")), "--print-data-log")
    markers = re.findall(r"offset: (\d+) .*endTxnMarker: (\w+) coordinatorEpoch: (\d+)", output)
    assert markers == [("1", "COMMIT", "0"), ("3", "ABORT", "0")]
    assert len(re.findall(r"^baseOffset: .* isTransactional: true", output, re.MULTILINE)) == 5
    (producer_id,) = set(re.findall(r"producerId: (\d+)", output))
    index = _dump(java, sorted(folder.glob("*.txnindex")))
    assert f"version: 0 producerId: {producer_id} firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in index
    snapshot = _dump(java, [max(folder.glob("*.snapshot"))])
    assert re.search(
        rf"producerId: {producer_id} producerEpoch: 0 coordinatorEpoch: 0 currentTxnFirstOffset: .*4.*lastSequence: 2",
        snapshot,
    ), snapshot


def test_keys_values_and_headers(written: tuple[Java, Path]) -> None:
    java, data = written
    output = _dump(java, sorted((data / "dump-keys-0").glob("*.log")), "--print-data-log")
    assert re.findall(r"headerKeys: \[h\] key: (k\d) payload: (v\d)", output) == [
        (f"k{n}", f"v{n}") for n in range(10)
    ]


def test_offsets_topic_by_its_decoder(written: tuple[Java, Path]) -> None:
    java, data = written
    output = _dump(java, sorted((data / "__consumer_offsets-0").glob("*.log")), "--offsets-decoder")
    commit = re.search(r'key: (\{"type":"1".*?\}\}) payload: (\{.*?\}\})', output)
    assert commit is not None, output[-2000:]
    assert f'"group":"{GROUP}","topic":"dump-keys","partition":0' in commit[1]
    assert '"offset":10' in commit[2]
    assert re.search(
        rf'key: \{{"type":"2","data":\{{"group":"{GROUP}"\}}\}} payload: \{{"version":"\d","data":', output
    )
