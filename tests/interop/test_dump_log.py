"""A data folder moves: Kafka's DumpLogSegments reads every file the broker wrote and finds nothing amiss."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from harness import maven, wire
from harness.brokers import HOST
from tests.interop.conftest import KIND, SETTINGS, java_tools
from tests.interop.support import Java, run

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
            _produce(java, f"dump-{codec}", codec)
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


def _produce(java: Java, topic: str, codec: str) -> None:
    """Records by Kafka's performance tool, in batches of 64 KiB."""
    run(
        java.command(
            "org.apache.kafka.tools.ProducerPerformance",
            "--topic", topic, "--num-records", str(RECORDS), "--record-size", "200", "--throughput", "-1",
            "--producer-props", f"bootstrap.servers={java.address}", "acks=all", f"compression.type={codec}",
            "batch.size=65536", "linger.ms=5",
        )
    )  # fmt: skip


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


def _dumps(java: Java, files: list[Path], *arguments: str) -> dict[Path, str]:
    """By file what one run of the tool prints of it: most of a run is the start of Java."""
    parts = re.split(r"^Dumping (.+)\n", java.dump_log(files, *arguments), flags=re.MULTILINE)[1:]
    found = {Path(file): text for file, text in zip(parts[::2], parts[1::2], strict=True)}
    assert list(found) == files
    return found


def test_segments_deeply(written: tuple[Java, Path]) -> None:
    java, data = written
    segments = {codec: sorted((data / f"dump-{codec}-0").glob("*.log")) for codec in CODECS}
    assert len(segments["none"]) >= 3
    dumped = _dumps(java, [file for files in segments.values() for file in files], "--deep-iteration")
    for codec, files in segments.items():
        output = "".join(dumped[file] for file in files)
        offsets = [int(found) for found in re.findall(r"^\| offset: (\d+)", output, re.MULTILINE)]
        assert offsets == list(range(RECORDS))
        assert output.count("isvalid: true") == len(re.findall(r"^baseOffset: ", output, re.MULTILINE))
        assert set(re.findall(r"compresscodec: (\w+)", output)) == {codec}
        starts = [int(found) for found in re.findall(r"Log starting offset: (\d+)", output)]
        assert starts == [int(segment.stem) for segment in files]


def test_indexes(written: tuple[Java, Path]) -> None:
    java, data = written
    folders = [data / f"dump-{codec}-0" for codec in ("none", "zstd")]
    files = {
        ending: [file for folder in folders for file in sorted(folder.glob(f"*.{ending}"))]
        for ending in ("index", "timeindex")
    }
    both = files["index"] + files["timeindex"]
    _dumps(java, both, "--verify-index-only")
    # As Kafka leaves them: trimmed to their entries by a clean stop.
    _dumps(java, both, "--index-sanity-check")
    dumped = _dumps(java, both)
    for ending, entry in (
        ("index", r"offset: \d+ position: \d+"),
        ("timeindex", r"timestamp: \d{13} offset: \d+"),
    ):
        for folder in folders:
            assert re.search(entry, "".join(dumped[file] for file in files[ending] if file.parent == folder))


def test_producer_snapshots(written: tuple[Java, Path]) -> None:
    java, data = written
    snapshots = sorted((data / "dump-none-0").glob("*.snapshot"))
    output = java.dump_log(snapshots)
    last = output.splitlines()[-1]
    assert re.search(r"producerId: \d+ producerEpoch: 0 .*lastSequence: \d+.*lastOffset: \d+", last), last


def test_transactions(written: tuple[Java, Path]) -> None:
    java, data = written
    folder = data / "dump-transactions-0"
    output = java.dump_log(sorted(folder.glob("*.log")), "--print-data-log")
    markers = re.findall(r"offset: (\d+) .*endTxnMarker: (\w+) coordinatorEpoch: (\d+)", output)
    assert markers == [("1", "COMMIT", "0"), ("3", "ABORT", "0")]
    assert len(re.findall(r"^baseOffset: .* isTransactional: true", output, re.MULTILINE)) == 5
    (producer_id,) = set(re.findall(r"producerId: (\d+)", output))
    others = java.dump_log([*sorted(folder.glob("*.txnindex")), max(folder.glob("*.snapshot"))])
    assert f"version: 0 producerId: {producer_id} firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in others
    assert re.search(
        rf"producerId: {producer_id} producerEpoch: 0 coordinatorEpoch: 0 currentTxnFirstOffset: .*4.*lastSequence: 2",
        others,
    ), others


def test_keys_values_and_headers(written: tuple[Java, Path]) -> None:
    java, data = written
    output = java.dump_log(sorted((data / "dump-keys-0").glob("*.log")), "--print-data-log")
    assert re.findall(r"headerKeys: \[h\] key: (k\d) payload: (v\d)", output) == [
        (f"k{n}", f"v{n}") for n in range(10)
    ]


def test_offsets_topic_by_its_decoder(written: tuple[Java, Path]) -> None:
    java, data = written
    output = java.dump_log(sorted((data / "__consumer_offsets-0").glob("*.log")), "--offsets-decoder")
    commit = re.search(r'key: (\{"type":"1".*?\}\}) payload: (\{.*?\}\})', output)
    assert commit is not None, output[-2000:]
    assert f'"group":"{GROUP}","topic":"dump-keys","partition":0' in commit[1]
    assert '"offset":10' in commit[2]
    assert re.search(
        rf'key: \{{"type":"2","data":\{{"group":"{GROUP}"\}}\}} payload: \{{"version":"\d","data":', output
    )


def test_transactions_topic_by_its_decoder(written: tuple[Java, Path]) -> None:
    java, data = written
    segments = sorted(data.glob("__transaction_state-*/*.log"))
    output = java.dump_log(segments, "--transaction-log-decoder")
    states = re.findall(
        r"key: transaction_metadata::transactionalId=dumped payload: .*?,state=(\w+),", output
    )
    ended = [f"{step}{end}" for end in ("Commit", "Abort") for step in ("Prepare", "Complete")]
    assert [state for state in states if state not in ("Empty", "Ongoing")] == ended
    assert (states[0], states[-1]) == ("Empty", "Ongoing")
