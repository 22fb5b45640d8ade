"""Logs whose segments mix messages of formats 0 and 1 with batches of format 2, as folders of an upgraded Kafka do."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.log.batches import batch
from tests.log.conftest import NOW_MS, OpenLog

from ottla_broker.log.dump import dump_log
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.verify import Tally, verify_partition
from ottla_broker.tasks import run_whole
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.compression import GZIP, LZ4, SNAPPY
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.message_set import encode_messages, read_message
from ottla_protocol.records.record import Record

T = NOW_MS


def rows(first: int, count: int, *, at: int = T) -> list[Record]:
    return [Record(n, at + n, b"k%d" % n, b"value %d" % n) for n in range(first, first + count)]


def mixed() -> list[bytes]:
    """Offsets 0 to 34 in seven pieces, as an upgraded leader has them."""
    return [
        encode_messages(rows(0, 5), 0),
        encode_messages(rows(5, 5), 0, codec=LZ4),
        encode_messages(rows(10, 5), 1),
        encode_messages(rows(15, 5), 1, codec=GZIP),
        encode_messages(rows(20, 5), 1, codec=SNAPPY, append_time_ms=T + 1000),
        bytes(batch(5, base_offset=25, timestamp=T + 25, leader_epoch=4)),
        bytes(batch(5, base_offset=30, timestamp=T + 30, leader_epoch=5)),
    ]


# The offsets with which a batch, or a message of an old format, ends.
ENDS = [0, 1, 2, 3, 4, 9, 10, 11, 12, 13, 14, 19, 24, 29, 34]


def timestamp_of(offset: int) -> int:
    if offset < 10:
        return -1
    return T + (1000 if 20 <= offset < 25 else offset)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "flights-0"


@pytest.fixture
def filled(open_log: OpenLog) -> Callable[..., Log]:
    def fill(**config: object) -> Log:
        log = open_log(**config)
        for piece in mixed():
            log.append_as_follower(memoryview(bytearray(piece)))
        return log

    return fill


def offsets(log: Log, start: int = 0) -> list[int]:
    found = []
    for run in log.reader.scan_batches(start):
        for position, header in iter_headers(run):
            found += [record.offset for record in decode_any(run, position, header)]
    return found


SMALL = {"segment_bytes": 300, "index_interval_bytes": 40}


@pytest.mark.parametrize("config", [{}, SMALL, {"index_interval_bytes": 0}], ids=["one", "many", "indexed"])
def test_what_a_leader_has_is_copied_as_it_is(
    filled: Callable[..., Log], folder: Path, config: dict[str, int]
) -> None:
    log = filled(**config)
    assert log.log_end_offset == 35
    assert offsets(log) == list(range(35))
    log.close()
    assert b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) == b"".join(mixed())
    # A segment begins where the one before it ends, although a wrapper says only where it ends itself.
    bases = [int(path.stem) for path in sorted(folder.glob("*.log"))]
    assert {base - 1 for base in bases[1:]} <= set(ENDS)
    assert (len(bases) > 2) == (config is SMALL)


@pytest.mark.parametrize("config", [{}, SMALL], ids=["one", "many"])
def test_every_offset_is_found(filled: Callable[..., Log], config: dict[str, int]) -> None:
    log = filled(**config)
    for _ in range(2):  # the second time by the positions of the first
        for offset in range(35):
            found = log.reader.read(offset, 1, max_offset=35, min_one=True)
            assert found is not None
            data = found.read()
            _, header = next(iter_headers(data))
            assert header.last_offset == next(end for end in ENDS if end >= offset)
            assert any(record.offset == offset for record in decode_any(data, 0, header))
    assert log.reader.read(35, 1000, max_offset=35, min_one=True) is None


def test_a_read_ends_before_the_high_watermark(filled: Callable[..., Log]) -> None:
    log = filled()
    for end in range(1, 36):
        found = log.reader.read(0, 100_000, max_offset=end, min_one=True)
        last = [header.last_offset for _, header in iter_headers(found.read())][-1] if found else -1
        assert last == max((each for each in ENDS if each < end), default=-1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("config", [{}, SMALL], ids=["one", "many"])
@pytest.mark.parametrize("lost", [(), (".index",), (".timeindex",), (".index", ".timeindex")], ids=str)
def test_a_folder_is_opened_again(
    filled: Callable[..., Log],
    open_log: OpenLog,
    folder: Path,
    clean: bool,
    config: dict[str, int],
    lost: tuple[str, ...],
) -> None:
    log = filled(**config)
    log.close()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for kind in lost:
        for path in folder.glob(f"*{kind}"):
            path.unlink()
    again = open_log(clean=clean, recovery_point=35 if clean else 0, **config)
    assert again.log_end_offset == 35
    assert offsets(again) == list(range(35))
    assert again.epochs.epochs == [4, 5]
    assert again.epochs.starts == [25, 30]
    assert run_whole(again.reader.find_max_timestamp()) == (20, T + 1000, -1)
    again.close()
    if clean and not lost:
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    for name, data in before.items():
        if name.endswith(".log"):
            assert (folder / name).read_bytes() == data


@pytest.mark.parametrize("at", range(7))
@pytest.mark.parametrize("kind", ["cut", "crc", "size", "magic", "zeros"])
def test_recovery_truncates_at_the_first_damage(
    filled: Callable[..., Log], open_log: OpenLog, folder: Path, at: int, kind: str
) -> None:
    filled().close()
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    position = sum(map(len, mixed()[:at]))
    size = next(iter_headers(bytes(data[position:])))[1].size
    if kind == "cut":
        del data[position + size - 1 :]
    elif kind == "crc":
        data[position + size - 1] ^= 1
    elif kind == "size":
        data[position + 8 : position + 12] = b"\0\0\0\x07"
    elif kind == "magic":
        data[position + 16] = 3
    else:
        data[position:] = bytes(len(data) - position)
    path.write_bytes(data)
    log = open_log(clean=False)
    assert log.log_end_offset == [0, 5, 10, 15, 20, 25, 30][at]
    assert path.stat().st_size == position
    assert offsets(log) == list(range(log.log_end_offset))


@pytest.mark.parametrize("offset", range(36))
def test_truncation(filled: Callable[..., Log], open_log: OpenLog, offset: int) -> None:
    log = filled(**SMALL)
    log.truncate_to(offset)
    assert log.log_end_offset == offset
    # A wrapper with the offset goes as a whole, with what it has before it.
    kept = max((end for end in ENDS if end < offset), default=-1)
    assert offsets(log) == list(range(kept + 1))
    if kept + 1 == offset:
        log.append_as_follower(memoryview(bytearray(batch(2, base_offset=offset, leader_epoch=6))))
        assert offsets(log) == list(range(offset + 2))


def test_offsets_by_timestamp(filled: Callable[..., Log]) -> None:
    for config in ({}, SMALL):
        log = filled(**config)
        # Format 0 has no timestamps.
        assert log.reader.offset_for_timestamp(0) == (10, T + 10, -1)
        assert log.reader.offset_for_timestamp(T + 12) == (12, T + 12, -1)
        assert log.reader.offset_for_timestamp(T + 17) == (17, T + 17, -1)
        assert log.reader.offset_for_timestamp(T + 20) == (20, T + 1000, -1)
        assert log.reader.offset_for_timestamp(T + 1001) is None
        assert run_whole(log.reader.find_max_timestamp()) == (20, T + 1000, -1)
        log.truncate_to(20)
        assert run_whole(log.reader.find_max_timestamp()) == (19, T + 19, -1)
        log.truncate_to(10)
        assert run_whole(log.reader.find_max_timestamp()) is None
        assert log.reader.offset_for_timestamp(0) is None
        log.truncate_fully_and_start_at(0)


def test_a_log_of_one_short_message(open_log: OpenLog) -> None:
    log = open_log()
    message = encode_messages([Record(7, -1, None, None)], 0)
    assert len(message) == 26
    log.append_as_follower(memoryview(bytearray(message)))
    log.close()
    for clean in (True, False):
        log = open_log(clean=clean, recovery_point=8)
        assert log.log_end_offset == 8
        assert offsets(log) == [7]
        assert log.active.first_timestamp == -1
        log.close()


def test_a_partial_message_at_the_end_is_left_out(open_log: OpenLog) -> None:
    log = open_log()
    data = encode_messages(rows(0, 3), 1)
    log.append_as_follower(memoryview(bytearray(data[:-1])))
    assert offsets(log) == [0, 1]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ((-1, b"?"), ErrorCode.CORRUPT_MESSAGE),
        ((13, b"?"), ErrorCode.CORRUPT_MESSAGE),
        ((16, b"\x00"), ErrorCode.CORRUPT_MESSAGE),
        ((8, b"\0\0\0\x0e"), ErrorCode.CORRUPT_MESSAGE),
        ((7, b"\x04"), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
def test_what_a_follower_refuses(open_log: OpenLog, change: tuple[int, bytes], code: ErrorCode) -> None:
    log = open_log()
    log.append_as_follower(memoryview(bytearray(encode_messages(rows(0, 5), 1))))
    data = bytearray(encode_messages(rows(5, 1), 1))
    at = change[0] % len(data)
    data[at : at + len(change[1])] = change[1]
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(memoryview(data))
    assert caught.value.code is code
    assert offsets(log) == [0, 1, 2, 3, 4]


def test_old_formats_after_epochs_forget_them(open_log: OpenLog) -> None:
    log = open_log()
    log.append_as_follower(memoryview(bytearray(batch(1, leader_epoch=3))))
    assert log.epochs.latest == 3
    log.append_as_follower(memoryview(bytearray(encode_messages(rows(1, 1), 1))))
    assert log.epochs.latest == -1
    log.append_as_follower(memoryview(bytearray(batch(1, base_offset=2, leader_epoch=4))))
    assert (log.epochs.epochs, log.epochs.starts) == ([4], [2])


def test_a_producer_s_batches_follow(filled: Callable[..., Log]) -> None:
    log = filled()
    info = log.append(memoryview(batch(2)), leader_epoch=7, now_ms=NOW_MS, from_client=True)
    assert (info.first_offset, info.last_offset) == (35, 36)


def test_the_tools_read_them(filled: Callable[..., Log], folder: Path) -> None:
    filled(**SMALL).close()
    files = Files(8, read_only=True)
    tally = Tally()
    assert list(verify_partition(files, str(folder), tally)) == []
    assert (tally.batches, tally.records) == (len(ENDS), 35)
    entries = [
        entry for path in sorted(folder.glob("*.log")) for entry in dump_log(files, str(path), records=True)
    ]
    found = [entry for entry in entries if entry["kind"] == "batch"]
    assert [entry.get("lastOffset", entry.get("offset")) for entry in found] == ENDS
    assert [entry["magic"] for entry in found] == [0] * 6 + [1] * 7 + [2] * 2
    assert all(entry["isvalid"] for entry in found)
    assert found[0]["NoTimestampType"] == -1
    assert found[12]["LogAppendTime"] == T + 1000
    records = [entry for entry in entries if entry["kind"] == "record"]
    assert [entry["offset"] for entry in records] == list(range(35))
    assert records[7] == {
        "kind": "record",
        "offset": 7,
        "NoTimestampType": -1,
        "keySize": 2,
        "valueSize": 7,
        "key": "k7",
        "payload": "value 7",
    }


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_the_tools_find_damage(filled: Callable[..., Log], folder: Path, at: int) -> None:
    filled().close()
    path = folder / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    position = sum(map(len, mixed()[:at]))
    size = read_message(data, position).size
    data[position + size - 1] ^= 1
    path.write_bytes(data)
    files = Files(8, read_only=True)
    problems = [finding.problem for finding in verify_partition(files, str(folder), Tally())]
    assert len(problems) == 1
    assert "checksum" in problems[0]
    assert [entry["isvalid"] for entry in dump_log(files, str(path))].count(False) == 1
    data[position + 8 : position + 12] = b"\0\0\0\x05"
    path.write_bytes(data)
    assert "least" in deque(dump_log(files, str(path)), maxlen=1)[0]["problem"]
