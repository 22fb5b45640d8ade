"""Compressed records in every frame: what no Java client can read is refused, what Kafka stores and reads is stored."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest
from tests.support import frames
from tests.support.frames import READ, TIME, Case

from ottla_broker.log.config import LogConfig
from ottla_broker.log.record_validation import Budget, SlowRecordsError, validate
from ottla_broker.log.up_conversion import to_batch
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records import scan as scan_module
from ottla_protocol.records.batch import write_crc
from ottla_protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from ottla_protocol.records.record import decode_records, encode_batch, encode_varint

CONFIG = LogConfig(max_message_bytes=10**7)
# Java reads these by chance: it loses its place, and finds it again if a read ended within the chunk before; or a frame
# with too large a window lies within one of its reads, of 128 KiB, and expands to 16 KiB at most.
BY_CHANCE = {
    "snappy: two streams, the second's header broken",
    "snappy: a stream with a broken header last",
    "lz4: an empty block amid, compressed",
    "lz4: an empty block amid, compressed, odd",
    "zstd: windows of 2^28 and sizes of 1000",
}


def stored(case: Case) -> bytes | ErrorCode:
    """The batch that Ottla stores, or its error."""
    try:
        data = bytearray(case.data)
        if case.name[0] != "2":
            data = to_batch(memoryview(data), CONFIG, "frames-0") or bytearray()
        return bytes(validate(memoryview(data), CONFIG, "frames-0", TIME).batch)
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize("compiled", [True, False])
def test_frames_are_stored_that_a_java_client_reads(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(scan_module, "_compiled", None)
    verdicts = frames.verdicts()
    names = []
    for case in frames.cases():
        names.append(case.name)
        found = stored(case)
        read = None if isinstance(found, ErrorCode) else [record.value for record in decode_records(found)]
        readable = READ in verdicts[case.name] and case.name[2:] not in BY_CHANCE
        if readable:
            assert read == frames.values(), case.name
        elif case.name[0] == "2":
            assert found == ErrorCode.INVALID_RECORD, case.name
        elif read is not None:
            # A set is stored in another frame, so that more can be read. Without a count Kafka stores what it finds.
            assert (
                read == frames.values()
                or "stored differs" in verdicts[case.name]
                or case.name[2:] in BY_CHANCE
            ), case.name
    assert names == list(verdicts)


def parts_without_end() -> Iterator[tuple[int, bytes]]:
    """Streams of a megabyte, of very many parts with few bytes or none."""
    for codec in (GZIP, ZSTD, SNAPPY):
        empty = compress(codec, b"")
        if codec == SNAPPY:
            empty = empty[16:] or struct.pack(">i", 1) + b"\0"
            yield codec, compress(codec, b"") + empty * (1_000_000 // len(empty))
        else:
            yield codec, empty * (1_000_000 // len(empty))
    head = compress(LZ4, b"")[:7]
    block = struct.pack("<I", 1 | 1 << 31) + b"x"
    odd = struct.pack("<I", 4 | 1 << 31) + b"\0\0\0\x80"
    body = b"\0\0\0\x01" + encode_varint(200_000) + b"x" * 200_000 + b"\0"
    begin = encode_varint(len(body)) + body[:7]
    begin = struct.pack("<I", len(begin) | 1 << 31) + begin
    yield LZ4, head + begin + block * 200_000 + odd + bytes(4)


def test_many_parts_are_not_read_on_the_event_loop() -> None:
    plain = bytes(encode_batch([(TIME, None, b"value", ())])[:61])
    for codec, data in parts_without_end():
        batch = bytearray(plain + data)
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">h", batch, 21, codec)
        write_crc(batch, 0, len(batch))
        with pytest.raises(SlowRecordsError):
            validate(memoryview(batch), CONFIG, "frames-0", TIME, budget=Budget())
