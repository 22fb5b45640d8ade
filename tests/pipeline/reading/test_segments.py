"""Reading segment files: intact ones, ones that are deleted meanwhile, and untrusted ones."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.pipeline.reading.logs import LogFolder, batch
from tests.pipeline.reading.logs import settings as options
from tests.support.depth import examples

from ottla_pipeline.reading import CorruptData, DataLoss, OffsetRange, ReadError, SegmentPlace, read
from ottla_pipeline.reading import segments as module
from ottla_pipeline.reading.folder import Folder, Unsure
from ottla_pipeline.reading.segments import read_segments
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.record import decode_records, rebuild_batch


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path / "data")


def offsets(range: OffsetRange, **given: Any) -> list[int]:
    wanted = options(segments="always", **given)
    return [each for made in read(range, wanted) for each in made.column("offset").to_pylist()]


def take(reading: Iterator[Any], seen: list[int]) -> None:
    """Add the offsets of all that is read."""
    for made in reading:
        seen += made.column("offset").to_pylist()


def compacted(first: int, count: int, kept: set[int]) -> bytearray:
    whole = batch(first, count)
    return rebuild_batch(read_header(whole), [each for each in decode_records(whole) if each.offset in kept])


def three(log: LogFolder) -> None:
    """Three segments of offsets 0 to 99, 100 to 199, 200 to 299."""
    for base in (0, 100, 200):
        log.segment(base, [batch(at, 10) for at in range(base, base + 100, 10)])


@given(st.integers(0, 299), st.integers(0, 300), st.sampled_from((1, 200, 700, 1 << 20)), st.booleans())
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_range(log: LogFolder, start: int, length: int, window: int, index: bool) -> None:
    if not any(log.path.glob("*.log")):
        three(log)
    for path in log.path.glob("*.index"):
        path.rename(path.with_suffix(".index" if index else ".none"))
    for path in log.path.glob("*.none") if index else ():
        path.rename(path.with_suffix(".index"))
    end = min(start + length, 300)
    assert offsets(log.range(start, end), fetch_bytes=window) == list(range(start, end))


def test_compaction_leaves_gaps(log: LogFolder) -> None:
    log.segment(0, [compacted(0, 10, {3}), compacted(10, 10, set()), compacted(30, 10, {31, 39})])
    log.segment(100, [])
    log.segment(150, [compacted(170, 10, {179})])
    log.segment(200, [batch(200, 5)])
    assert offsets(log.range(0, 205)) == [3, 31, 39, 179, 200, 201, 202, 203, 204]
    assert offsets(log.range(32, 150)) == [39]
    assert offsets(log.range(40, 100)) == []
    assert offsets(log.range(110, 180)) == [179]


def test_the_last_records_may_be_compacted_away(log: LogFolder) -> None:
    log.segment(0, [batch(0, 5)])
    log.segment(10, [])
    assert offsets(log.range(0, 10)) == [0, 1, 2, 3, 4]
    with pytest.raises(DataLoss, match=r"offsets 10 to 11 are lost \(truncation\)"):
        offsets(log.range(0, 12))


def test_compressed_and_large_batches(log: LogFolder) -> None:
    sizes = (10, 5000, 100, 20_000)
    log.segment(0, [batch(codec * 10, 10, codec=codec, size=size) for codec, size in enumerate(sizes)])
    assert offsets(log.range(0, 40), fetch_bytes=1000) == list(range(40))


def test_what_is_behind_the_range_is_not_looked_at(log: LogFolder) -> None:
    """A broker may be writing there."""
    log.segment(0, [batch(0, 10), batch(10, 10)[:30]])
    assert offsets(log.range(0, 10)) == list(range(10))
    with log.segment(0, [batch(0, 10)]).open("ab") as file:
        file.write(bytes(4096))
    assert offsets(log.range(0, 10)) == list(range(10))


def test_a_file_made_larger_than_needed(log: LogFolder) -> None:
    with log.segment(0, [batch(0, 10)]).open("ab") as file:
        file.write(bytes(4096))
    log.segment(10, [batch(10, 10)])
    assert offsets(log.range(5, 20)) == list(range(5, 20))
    remove(log, 10)
    index = log.path / f"{0:020d}.index"
    three(log)
    index.write_bytes(index.read_bytes() + bytes(800))
    assert offsets(log.range(55, 60)) == list(range(55, 60))


@pytest.mark.parametrize(
    "junk", [b"", b"\1", b"\0\0\0\1\x7f\xff\xff\xff", b"\0\0\0\1\0\0\0\7", bytes(range(160, 240))]
)
def test_an_index_that_is_wrong(log: LogFolder, junk: bytes) -> None:
    three(log)
    for path in log.path.glob("*.index"):
        path.write_bytes(junk)
    assert offsets(log.range(155, 250)) == list(range(155, 250))


def test_an_index_of_the_file_before(log: LogFolder) -> None:
    """Compaction has replaced the segment and not yet its index: positions may be those of later batches."""
    three(log)
    index = (log.path / f"{100:020d}.index").read_bytes()
    log.segment(100, [compacted(at, 10, {at}) for at in range(100, 200, 10)])
    (log.path / f"{100:020d}.index").write_bytes(index)
    assert offsets(log.range(155, 200)) == [160, 170, 180, 190]


def test_not_here(log: LogFolder, tmp_path: Path) -> None:
    three(log)
    good = log.range(0, 10)
    place = good.segments
    assert place is not None
    for other, why in (
        (None, "no broker reported"),
        (SegmentPlace(str(tmp_path / "no"), "here", 1), "can't be read on this machine"),
        (SegmentPlace(place.folder, "there", 1), "of another cluster"),
        (SegmentPlace(place.folder, "here", 2), "of another broker"),
    ):
        with pytest.raises(ReadError, match=f"t-0: segment files can't be read at offset 0: .*{why}"):
            offsets(OffsetRange("t", good.topic_id, 0, 0, 10, segments=other))
    with pytest.raises(ReadError, match="topic's id isn't known"):
        offsets(OffsetRange("t", "", 0, 0, 10, segments=place))
    with pytest.raises(ReadError, match="is of another topic by that name"):
        offsets(OffsetRange("t", str(uuid4()), 0, 0, 10, segments=place))
    with pytest.raises(ReadError, match="t-1 can't be opened on this machine: No such file"):
        offsets(OffsetRange("t", good.topic_id, 1, 0, 10, segments=place))
    (log.path / "partition.metadata").unlink()
    with pytest.raises(ReadError, match=r"partition.metadata can't be read"):
        offsets(good)


def test_a_folder_without_permission(log: LogFolder) -> None:
    if os.getuid() == 0:
        pytest.skip("nothing is forbidden to root")
    three(log)
    log.path.chmod(0)
    try:
        with pytest.raises(ReadError, match="can't be opened on this machine: Permission denied"):
            offsets(log.range(0, 10))
    finally:
        log.path.chmod(0o755)


@pytest.mark.parametrize("at", [8, 16, 17, 30, 61, 100])
def test_corrupt_bytes(log: LogFolder, at: int) -> None:
    path = log.segment(0, [batch(0, 10), batch(10, 10), batch(20, 10)])
    data = bytearray(path.read_bytes())
    data[len(batch(0, 10)) + at] ^= 0x55
    path.write_bytes(data)
    rows: list[int] = []
    reading = read(log.range(0, 30), options(segments="always", batch_rows=10))
    with pytest.raises(CorruptData, match="t-0: the record batch at offset 10 can't be read"):
        take(reading, rows)
    assert rows == list(range(10))


def test_every_byte_that_changes(log: LogFolder) -> None:
    """Damage never gives wrong records, only errors; except in the last batch's offset, which nothing covers."""
    path = log.segment(0, [batch(at, 3) for at in range(0, 12, 3)], index=False)
    good = path.read_bytes()
    last = len(good) // 4 * 3
    for at in range(len(good)):
        for bit in (1, 128) if at % (last // 3) < 61 else (4,):
            data = bytearray(good)
            data[at] ^= bit
            path.write_bytes(data)
            try:
                seen = offsets(log.range(0, 12))
            except (CorruptData, DataLoss):
                continue
            assert seen == list(range(12)) or last <= at < last + 8, (at, bit, seen)


def test_a_batch_of_nearly_all_memory(log: LogFolder) -> None:
    data = batch(0, 10)
    data[8:12] = (2**31 - 1).to_bytes(4, "big")
    log.segment(0, [data])
    with pytest.raises(CorruptData, match="a record batch of 2147483659 bytes is cut off"):
        offsets(log.range(0, 10))


def test_aborted_records_and_markers_are_passed_over(log: LogFolder) -> None:
    aborted = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    marker = {"coordinator_epoch": 0, "producer_id": 7, "producer_epoch": 0, "timestamp_ms": 0}
    data = [
        batch(0, 5),
        batch(5, 5, **aborted),
        batch(10, 5, **{**aborted, "producer_id": 8}),
        encode_transaction_marker(commit=False, base_offset=15, **marker),
        batch(16, 4, **aborted),
        encode_transaction_marker(commit=True, base_offset=20, **marker),
        encode_transaction_marker(commit=True, base_offset=21, **{**marker, "producer_id": 8}),
    ]
    log.segment(0, data[:3])
    log.segment(15, data[3:])
    entry = b"\0\0" + b"".join(number.to_bytes(8, "big") for number in (7, 5, 15, 10))
    (log.path / f"{15:020d}.txnindex").write_bytes(entry)
    assert offsets(log.range(0, 22)) == [*range(15), *range(16, 20)]
    for start in range(21):
        seen = offsets(log.range(start, 22), isolation="read_committed")
        assert seen == [each for each in (*range(5), *range(10, 15), *range(16, 20)) if each >= start]
    assert offsets(log.range(0, 12), isolation="read_committed") == [0, 1, 2, 3, 4, 10, 11]
    (log.path / f"{15:020d}.txnindex").write_bytes(b"\0\1" + entry[2:])
    with pytest.raises(ReadError, match="an entry of version 1"):
        offsets(log.range(0, 22), isolation="read_committed")


def chunks(log: LogFolder, range: OffsetRange, **given: Any) -> Iterator[list[int]]:
    """First offset and the one behind each chunk; a small window makes many."""
    wanted = options(segments=given.pop("segments", "always"), fetch_bytes=500, **given)
    for chunk in read_segments(range, wanted, range.start, lambda *what: None):
        table = chunk.found.table
        yield [int(table[0, 2]), int(table[-1, 3]) + 1]


def remove(log: LogFolder, *bases: int) -> None:
    for base in bases:
        for path in log.path.glob(f"{base:020d}.*"):
            path.unlink()


def test_retention_takes_what_is_being_read(log: LogFolder) -> None:
    three(log)
    reading = read(log.range(0, 300), options(segments="always", batch_rows=10, fetch_bytes=500))
    first = next(reading).column("offset").to_pylist()
    remove(log, 0)
    seen = first + [each for made in reading for each in made.column("offset").to_pylist()]
    assert seen == list(range(300))


def test_retention_goes_ahead(log: LogFolder) -> None:
    three(log)
    reading = read(log.range(0, 300), options(segments="always", batch_rows=10, fetch_bytes=500))
    seen = next(reading).column("offset").to_pylist()
    remove(log, 0, 100)
    with pytest.raises(DataLoss, match=r"t-0: offsets 100 to 199 are lost \(retention\)") as caught:
        take(reading, seen)
    assert seen == list(range(100))
    assert (caught.value.kind, caught.value.first, caught.value.last) == ("retention", 100, 199)


def test_retention_goes_ahead_and_that_is_fine(log: LogFolder, caplog: pytest.LogCaptureFixture) -> None:
    three(log)
    remove(log, 0)
    assert offsets(log.range(50, 300), fail_on_data_loss=False) == list(range(100, 300))
    assert "t-0: offsets 50 to 99 are lost (retention)" in caplog.text
    assert offsets(log.range(50, 80), fail_on_data_loss=False) == []


def test_the_topic_goes(log: LogFolder) -> None:
    three(log)
    reading = read(log.range(0, 300), options(segments="always", batch_rows=10, fetch_bytes=500))
    next(reading)
    gone = log.path.rename(log.path.with_name("t-0.0123456789abcdef0123456789abcdef-delete"))
    next(reading)
    shutil.rmtree(gone)
    with pytest.raises(
        DataLoss, match=r"are lost \(deletion\): the topic was deleted; set failOnDataLoss=false"
    ):
        list(reading)


def test_the_topic_is_made_again(log: LogFolder) -> None:
    three(log)
    reading = read(log.range(0, 300), options(segments="always", batch_rows=10, fetch_bytes=500))
    next(reading)
    shutil.rmtree(log.path)
    again = LogFolder(log.data / "other")
    three(again)
    again.identify(uuid4())
    again.path.rename(log.path)
    with pytest.raises(DataLoss, match=r"are lost \(recreated\)"):
        list(reading)


def test_segments_are_merged(log: LogFolder) -> None:
    """What is open is read to its end; then the merged one is gone on with."""
    three(log)
    reading = read(log.range(0, 300), options(segments="always", batch_rows=10, fetch_bytes=500))
    seen = next(reading).column("offset").to_pylist()
    merged = [compacted(at, 10, {at + 9}) for at in range(0, 200, 10)]
    remove(log, 0, 100)
    log.segment(0, merged)
    for made in reading:
        seen += made.column("offset").to_pylist()
    assert seen == [*range(100), *range(109, 200, 10), *range(200, 300)]
    assert offsets(log.range(0, 300)) == [*range(9, 200, 10), *range(200, 300)]


def test_a_segment_is_replaced_at_this_moment(log: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old one has gone, the new one has not its name yet: that is no gap."""
    three(log)
    monkeypatch.setattr("ottla_pipeline.reading.folder._SWAP_TRIES", 4)
    old = log.path / f"{100:020d}.log"
    swap = old.rename(old.with_suffix(".log.swap"))
    reading = chunks(log, log.range(0, 300))
    with pytest.raises(Unsure, match="are being replaced"):
        list(reading)
    monkeypatch.setattr("ottla_pipeline.reading.folder._SWAP_TRIES", 400)
    timer = threading.Timer(0.1, lambda: swap.rename(old))
    timer.start()
    assert offsets(log.range(0, 300)) == list(range(300))
    timer.join()


def test_a_listing_that_misses_a_file(log: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Renames while a folder is listed may hide an entry: two looks have to agree."""
    three(log)
    listed = os.listdir
    looks = iter(range(1000))

    def missing(fd: int) -> list[str]:
        names = listed(fd)
        return (
            [name for name in names if not name.startswith(f"{100:020d}")] if next(looks) % 3 == 0 else names
        )

    monkeypatch.setattr(os, "listdir", missing)
    assert offsets(log.range(0, 300)) == list(range(300))


def test_a_file_that_is_cut_off(log: LogFolder) -> None:
    path = log.segment(0, [batch(at, 10) for at in range(0, 100, 10)])
    reading = read(log.range(0, 100), options(segments="always", batch_rows=10, fetch_bytes=500))
    seen = next(reading).column("offset").to_pylist()
    os.truncate(path, 1500)
    with pytest.raises(ReadError, match=r"are lost \(truncation\)|is cut off after"):
        take(reading, seen)
    assert seen == list(range(len(seen)))


def test_segments_that_change_all_the_time(log: LogFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    three(log)

    def gone(folder: Folder, base: int) -> None:
        raise FileNotFoundError

    monkeypatch.setattr(module, "Segment", gone)
    with pytest.raises(ReadError, match="change all the time"):
        offsets(log.range(0, 10))


def test_beside_a_broker_nothing_is_decided(log: LogFolder) -> None:
    """Where it can be asked, files that end too early are not taken for lost records."""
    three(log)
    for range, why in ((log.range(0, 400), "ends before offset 300"), (log.range(0, 300), "no segment for")):
        with pytest.raises(Unsure, match=why):
            list(chunks(log, range, segments="auto"))
        remove(log, 0)
    path = log.path / f"{100:020d}.log"
    data = bytearray(path.read_bytes())
    data[16] = 9
    path.write_bytes(data)
    with pytest.raises(Unsure, match="magic"):
        list(chunks(log, log.range(100, 300), segments="auto"))


def test_no_file_stays_open(log: LogFolder) -> None:
    three(log)
    before = len(os.listdir("/proc/self/fd"))
    reading = read(log.range(0, 300), options(segments="always", batch_rows=10, fetch_bytes=500))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    offsets(log.range(0, 300))
    assert len(os.listdir("/proc/self/fd")) == before
