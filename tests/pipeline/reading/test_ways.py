"""Both ways to read, against a broker that compacts, deletes, dies and comes back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from tests.clients.transactional import Confluent
from tests.log.test_old_formats import mixed, timestamp_of
from tests.pipeline.reading.logs import ALL
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.transactions import wait_until_settled
from tests.support.waiting import wait_for

from ottla_client.admin import OffsetSpec
from ottla_client.sync import Admin, Consumer, Producer
from ottla_client.types import TopicPartition
from ottla_pipeline.reading import (
    Checksum,
    DataLoss,
    OffsetRange,
    ReadError,
    ReadSettings,
    SegmentPlace,
    read,
)
from ottla_pipeline.source.cluster_queries import ClusterQueries

WAYS = ("never", "always")
Made = Callable[..., BrokerProcess]

SMALL = {"segment_bytes": 20_000, "index_interval_bytes": 500}


def fill(broker: BrokerProcess, topic: str, count: int, **options: Any) -> None:
    """``count`` records with keys, headers and nulls, in batches of all sizes."""
    with Producer(broker.bootstrap, linger_ms=5, **options) as producer:
        for number in range(count):
            key = b"k%d" % (number % 50) if number % 7 else None
            value = b"v%d" % number * (number % 30) if number % 11 else None
            headers = [("h", b"%d" % number), ("", None)] if number % 13 == 0 else []
            producer.send(topic, value, key=key, headers=headers)
            if number % 100 == 99:
                producer.flush()


def data_of(broker: BrokerProcess) -> Path:
    """Where it keeps its logs."""
    return next(broker.folder.rglob("meta.properties")).parent


def place(broker: BrokerProcess) -> SegmentPlace:
    lines = (data_of(broker) / "meta.properties").read_text().splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    number = found.get("broker.id") or found["node.id"]
    return SegmentPlace(str(data_of(broker)), found["cluster.id"], int(number))


def planned(broker: BrokerProcess, topic: str, start: int = 0) -> OffsetRange:
    """The whole log, as a planner would have it."""
    with Admin(broker.bootstrap) as admin:
        (about,) = admin.describe_topics([topic]).values()
        (end,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.LATEST}).values()
    assert about.id is not None
    return OffsetRange(
        topic, UUID(bytes=about.id).hex, 0, start, end.offset, end.leader_epoch or 0, segments=place(broker)
    )


def rows(range: OffsetRange, broker: BrokerProcess, **given: Any) -> list[dict[str, Any]]:
    return [row for made in reading(range, broker, **given) for row in made.to_pylist()]


def reading(range: OffsetRange, broker: BrokerProcess, **given: Any) -> Iterator[Any]:
    client = {"retry.backoff.ms": "20", **given.pop("client", {})}
    return read(range, ReadSettings(broker.bootstrap, client, **{"columns": ALL, **given}))


def take(going: Iterator[Any], seen: list[int]) -> None:
    """Add the offsets of all that is read."""
    for made in going:
        seen += made.column("offset").to_pylist()


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_both_ways_bring_the_same(
    broker: BrokerProcess, new_topic: Callable[..., str], codec: str | None
) -> None:
    t = new_topic(**SMALL)
    fill(broker, t, 3000, compression_type=codec)
    whole = planned(broker, t)
    assert whole.end == 3000
    wire, files = (rows(whole, broker, segments=way) for way in WAYS)
    assert wire == files
    assert [row["offset"] for row in wire] == list(range(3000))
    assert wire[13]["headers"] == [{"key": "h", "value": b"13"}, {"key": "", "value": None}]
    assert (wire[0]["key"], wire[0]["value"], wire[12]["headers"]) == (None, None, None)
    assert len(list(data_of(broker).glob(f"{t}-0/*.log"))) > 1
    for start, end in ((0, 1), (1234, 1235), (777, 2222), (2999, 3000)):
        part = OffsetRange(t, whole.topic_id, 0, start, end, segments=whole.segments)
        for way in WAYS:
            assert rows(part, broker, segments=way, fetch_bytes=5000) == wire[start:end]


def test_compacted_logs(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    """The cleaner works while both read; whatever it has done, each key's last value is there, and in order."""
    t = new_topic(cleanup_policy="compact", min_cleanable_dirty_ratio=0.01, **SMALL)
    with Producer(broker.bootstrap, linger_ms=1) as producer:
        for number in range(4000):
            producer.send(t, b"v%d" % number * 5, key=b"k%d" % (number % 50))
            if number % 100 == 99:
                producer.flush()
    whole = planned(broker, t)
    last = {b"k%d" % (number % 50): b"v%d" % number * 5 for number in range(3950, 4000)}
    seen: set[int] = set()

    def is_clean() -> bool:
        for way in WAYS:
            read_now = rows(whole, broker, segments=way, fetch_bytes=3000)
            offsets = [row["offset"] for row in read_now]
            assert offsets == sorted(set(offsets))
            assert {row["key"]: row["value"] for row in read_now} == last
            assert offsets[-1] == 3999
            seen.add(len(offsets))
        return min(seen) < 1000

    wait_for(is_clean, "the log to be compacted")
    wait_for(
        lambda: rows(whole, broker, segments="never") == rows(whole, broker, segments="always"), "a pause"
    )


@pytest.mark.parametrize("way", ["never", "always", "auto"])
def test_records_that_are_trimmed(broker: BrokerProcess, new_topic: Callable[..., str], way: str) -> None:
    t = new_topic(**SMALL)
    fill(broker, t, 2000)
    whole = planned(broker, t)
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(t, 0): 1500})
    logs = data_of(broker) / f"{t}-0"
    wait_for(lambda: sum(int(path.stem) <= 1500 for path in logs.glob("*.log")) == 1, "segments to go")
    with pytest.raises(DataLoss, match=rf"{t}-0: offsets 0 to \d+ are lost \(retention\)") as caught:
        rows(whole, broker, segments=way)
    if way != "always":
        assert caught.value.last == 1499
    offsets = [row["offset"] for row in rows(whole, broker, segments=way, fail_on_data_loss=False)]
    assert offsets == list(range(caught.value.last + 1, 2000))


def test_trimmed_while_it_is_read(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    """What is not read yet is lost over the wire too, and said to be, from exactly there on."""
    t = new_topic(**SMALL)
    fill(broker, t, 3000)
    whole = planned(broker, t)
    going = reading(whole, broker, segments="never", fetch_bytes=10_000)
    seen = next(going).column("offset").to_pylist()
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(t, 0): 2990})
    with pytest.raises(DataLoss, match=r"\(retention\)") as caught:
        take(going, seen)
    assert seen == list(range(caught.value.first))
    assert caught.value.last == 2989


@pytest.mark.parametrize("way", ["never", "auto"])
@pytest.mark.parametrize("again", [False, True])
def test_a_topic_that_is_deleted(
    broker: BrokerProcess, new_topic: Callable[..., str], way: str, again: bool
) -> None:
    t = new_topic(**SMALL)
    fill(broker, t, 500)
    whole = planned(broker, t)
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([t])
        if again:
            create_topic(broker, t)
            fill(broker, t, 600)
    kind = "recreated" if again else "deletion"
    with pytest.raises(DataLoss, match=rf"{t}-0: offsets 0 to 499 are lost \({kind}\)"):
        rows(whole, broker, segments=way)


def test_a_topic_that_is_deleted_while_it_is_read(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    """Its files stay for a moment, and what is open for good; the rest is lost, and said to be."""
    t = new_topic(**SMALL)
    fill(broker, t, 3000)
    whole = planned(broker, t)
    going = reading(whole, broker, segments="auto", fetch_bytes=3000)
    seen = next(going).column("offset").to_pylist()
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([t])
    wait_for(lambda: not list(data_of(broker).glob(f"{t}-0*")), "the folder to go")
    with pytest.raises(DataLoss, match=r"\(deletion\)") as caught:
        take(going, seen)
    assert seen == list(range(caught.value.first))


@pytest.mark.parametrize("way", WAYS)
def test_a_broker_killed_and_started_again(own_broker: Made, way: str) -> None:
    broker = own_broker()
    create_topic(broker, "t", **SMALL)
    fill(broker, "t", 3000)
    whole = planned(broker, "t")
    going = reading(whole, broker, segments=way, fetch_bytes=3000)
    seen = next(going).column("offset").to_pylist()
    for _ in range(2):
        broker.kill()
        starting = threading.Timer(0.3, broker.start)
        starting.start()
        for made in going:
            seen += made.column("offset").to_pylist()
            if len(seen) > 1500:
                break
        starting.join()
    take(going, seen)
    assert seen == list(range(3000))


def test_where_the_files_are_not_to_be_had(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    t = new_topic(**SMALL)
    fill(broker, t, 1000)
    whole = planned(broker, t)
    right = place(broker)
    for wrong in (
        None,
        SegmentPlace("/nowhere", right.cluster_id, right.broker_id),
        SegmentPlace(right.folder, "another", right.broker_id),
        SegmentPlace(right.folder, right.cluster_id, 77),
    ):
        elsewhere = OffsetRange(t, whole.topic_id, 0, 0, 1000, segments=wrong)
        assert len(rows(elsewhere, broker, segments="auto")) == 1000
        with pytest.raises(ReadError, match="segments=auto reads over the wire"):
            rows(elsewhere, broker, segments="always")


def test_files_that_get_worse(
    tmp_path: Path, broker: BrokerProcess, new_topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    """Reading leaves damaged files at the first doubt, without reading records twice."""
    t = new_topic(**SMALL)
    fill(broker, t, 3000)
    whole = planned(broker, t)
    copy = tmp_path / "copy"
    _copy(data_of(broker), copy, f"{t}-0")
    there = SegmentPlace(str(copy), place(broker).cluster_id, place(broker).broker_id)
    logs = sorted(copy.glob(f"{t}-0/*.log"))
    data = bytearray(logs[2].read_bytes())
    data[len(data) // 2] ^= 1
    logs[2].write_bytes(data)
    damaged = OffsetRange(t, whole.topic_id, 0, 0, 3000, segments=there)
    assert rows(damaged, broker, batch_rows=10) == rows(whole, broker, segments="never")
    assert f"{t}-0 is read over the wire from offset" in caplog.text
    for path in logs[2:]:
        path.unlink()
    assert rows(damaged, broker, batch_rows=10) == rows(whole, broker, segments="never")


def _copy(source: Path, target: Path, folder: str) -> None:
    (target / folder).mkdir(parents=True)
    for path in (source / "meta.properties", *(source / folder).iterdir()):
        (target / path.relative_to(source)).write_bytes(path.read_bytes())


def test_checksums_of_both_ways(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    t = new_topic(**SMALL)
    fill(broker, t, 1000)
    whole = planned(broker, t)
    pieces = [
        OffsetRange(t, whole.topic_id, 0, at, at + 250, segments=whole.segments) for at in range(0, 1000, 250)
    ]
    sums = []
    for way, ranges in (("never", [whole]), ("always", pieces[::-1])):
        total = Checksum()
        for range_ in ranges:
            for made in reading(range_, broker, segments=way, columns=("offset", "key", "value")):
                total += Checksum.of(made)
        sums.append(total)
    assert sums[0] == sums[1]
    assert sums[0].count == 1000


def test_transactions_of_real_producers(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    """Committed, aborted and open ones, mixed with other records over several segments and fetches."""
    t = new_topic(**SMALL)
    expected: dict[str, list[bytes | None]] = {"read_committed": [], "read_uncommitted": []}
    one, other = Confluent(broker.bootstrap, new_name("tx")), Confluent(broker.bootstrap, new_name("tx"))
    try:
        with Producer(broker.bootstrap, linger_ms=0) as plain:
            for number in range(9):
                value = b"%d" % number * 3000
                aborts = number % 3 == 0
                one.begin()
                other.begin()
                for producer, text in ((one, b"one "), (other, b"other ")):
                    producer.send(t, text + value)
                    producer.flush()
                plain.send(t, value).result(60)
                one.abort() if aborts else one.commit()
                other.commit()
                written = [b"one " + value, b"other " + value, value]
                expected["read_uncommitted"] += written
                expected["read_committed"] += written[aborts:]
            wait_until_settled(broker.bootstrap, t)
            one.begin()
            one.send(t, b"open")
            one.flush()
            plain.send(t, b"behind it").result(60)
        expected["read_uncommitted"] += [b"open", b"behind it"]
        whole = planned(broker, t)
        with ClusterQueries(broker.bootstrap) as cluster:
            (stable,) = cluster.latest([TopicPartition(t, 0)], "read_committed").values()
        assert stable == whole.end - 2
        assert len(list(data_of(broker).glob(f"{t}-0/*.log"))) > 2
        for isolation, end in (("read_uncommitted", whole.end), ("read_committed", stable)):
            for start in (0, stable // 2):
                part = OffsetRange(t, whole.topic_id, 0, start, end, segments=whole.segments)
                found = [
                    rows(part, broker, segments=way, isolation=isolation, fetch_bytes=5000) for way in WAYS
                ]
                assert found[0] == found[1]
                values = [row["value"] for row in found[0]]
                assert values == expected[isolation][-len(values) :]
                assert start or values == expected[isolation]
    finally:
        one.close()
        other.close()


def test_messages_of_old_formats(own_broker: Made, new_name: Callable[..., str]) -> None:
    """A partition that has been there since before Kafka 0.11: both ways, and the client."""
    broker = own_broker()
    create_topic(broker, "t", retention_ms=-1, **SMALL)
    fill(broker, "t", 1)
    broker.stop()
    (log,) = data_of(broker).glob("t-0/*.log")
    for path in log.parent.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()
    log.write_bytes(b"".join(mixed()[:5]))
    for path in data_of(broker).glob("*clean*"):
        path.unlink()
    broker.start()
    fill(broker, "t", 20)
    whole = planned(broker, "t")
    assert whole.end == 45
    wire, files = (rows(whole, broker, segments=way) for way in WAYS)
    assert wire == files
    assert [row["offset"] for row in wire] == list(range(45))
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("t", 0)])
        records: list[Any] = []
        while len(records) < 45:
            records += consumer.poll(1000)
        consumer.seek(TopicPartition("t", 0), 3)
        table = consumer.poll_arrow(1000)
        while table.column("offset").to_pylist()[-1] < 44:
            table = pa.concat_tables([table, consumer.poll_arrow(1000)])
    assert [(each.offset, each.key, each.value) for each in records] == [
        (row["offset"], row["key"], row["value"]) for row in wire
    ]
    assert [record.value for record in records[:25]] == [b"value %d" % n for n in range(25)]
    times = [record.timestamp for record in records[:25]]
    assert times == [timestamp_of(n) for n in range(25)]
    assert [record.timestamp_type for record in records[:26]] == [-1] * 10 + [0] * 10 + [1] * 5 + [0]
    assert [round(row["timestamp"].timestamp() * 1000) for row in wire[:25]] == times
    assert [row["timestampType"] for row in wire[:26]] == [0] * 20 + [1] * 5 + [0]
    assert table.column("value").to_pylist() == [record.value for record in records[3:]]
    assert table.column("timestampType").to_pylist()[:23] == [-1] * 7 + [0] * 10 + [1] * 5 + [0]
    for start in (4, 7, 12, 17, 24):
        part = OffsetRange("t", whole.topic_id, 0, start, start + 9, segments=whole.segments)
        for way in WAYS:
            assert rows(part, broker, segments=way, fetch_bytes=100) == wire[start : start + 9]


def test_nobody_there() -> None:
    with pytest.raises(ReadError, match=r"t-0: no bootstrap server answered as a broker.*refused") as caught:
        list(
            read(
                OffsetRange("t", "", 0, 0, 1),
                ReadSettings("127.0.0.1:1", {"request.timeout.ms": "300"}, segments="auto"),
            )
        )
    assert "\n" not in str(caught.value)
