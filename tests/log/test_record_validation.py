"""What a leader refuses, corrects and stores of a producer's batch, for nearly right batches of all kinds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.support import bad_batches, depth
from tests.support.bad_batches import TIME

from ottla_broker.log import record_validation
from ottla_broker.log.config import NO_LIMIT, LogConfig
from ottla_broker.log.record_validation import Budget, SlowRecordsError, Validated, validate
from ottla_broker.log.validator import RecordsRefused
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records import scan as scan_module
from ottla_protocol.records.batch import BatchHeader, crc_is_valid, read_header
from ottla_protocol.records.compression import compress
from ottla_protocol.records.record import decode_records, encode_batch, encode_varint

CONFIGS = (
    LogConfig(),
    LogConfig(compact=True),
    LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000),
    LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0),
    LogConfig(compression_type="lz4", max_message_bytes=2000),
)
ERRORS = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
}


def check(data: bytearray, config: LogConfig) -> ErrorCode:
    """Validate a batch: it is refused and unchanged, or can be read, with a header that agrees with its records."""
    before = bytes(data)
    try:
        batch, header = validate(memoryview(data), config, "flights-0", TIME)
    except KafkaError as error:
        refusal = error
    else:
        check_accepted(before, batch, header, config)
        return ErrorCode.NONE
    assert refusal.code in ERRORS
    assert refusal.message.startswith("flights-0: ")
    assert bytes(data) == before
    return refusal.code


def check_accepted(before: bytes, batch: memoryview, header: BatchHeader, config: LogConfig) -> None:
    assert len(batch) == header.size <= config.max_message_bytes
    assert crc_is_valid(batch, 0, header)
    assert read_header(batch) == header
    records = decode_records(batch)
    assert [record.offset for record in records] == list(range(header.last_offset_delta + 1))
    if not config.log_append_time:
        assert header.max_timestamp == max(-1, *(record.timestamp for record in records), -1)
        if config.message_timestamp_before_max_ms != NO_LIMIT:
            assert all(record.timestamp == -1 or abs(record.timestamp - TIME) <= 1000 for record in records)
    assert not config.compact or all(record.key is not None for record in records)
    if config.compression_type == "lz4":
        assert header.codec == 3
    elif len(batch) == len(before):
        # Nothing but the largest timestamp and the checksum may differ.
        unchanged = bytearray(before)
        unchanged[17:21] = batch[17:21]
        unchanged[35:43] = batch[35:43]
        if unchanged[61:] == batch[61:]:
            assert unchanged == batch


def test_batches_with_any_field_wrong() -> None:
    results: Counter[ErrorCode] = Counter()
    count = depth.inputs()
    for number, data in enumerate(bad_batches.batches(2026, count)):
        results[check(data, CONFIGS[number % len(CONFIGS)])] += 1
    assert results[ErrorCode.NONE] > count // 10
    assert results[ErrorCode.INVALID_RECORD] > count // 5
    for code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP):
        assert results[code] > count // 1000


def test_batches_with_one_field_wrong() -> None:
    expected = {
        "base_offset": ErrorCode.INVALID_RECORD,
        "crc": ErrorCode.CORRUPT_MESSAGE,
        "last_offset_delta": ErrorCode.INVALID_RECORD,
        "record_count": ErrorCode.INVALID_RECORD,
        "leader_epoch": ErrorCode.NONE,
        "max_timestamp": ErrorCode.NONE,
    }
    for what, data in bad_batches.one_field_at_a_time():
        code = check(data, LogConfig())
        name = what.partition("=")[0]
        assert code == expected.get(name, code), what


def test_without_the_compiled_module(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(data: bytearray, config: LogConfig) -> tuple[Any, ...]:
        try:
            found = validate(memoryview(data), config, "flights-0", TIME)
        except RecordsRefused as error:
            return error.code, str(error), error.records
        except KafkaError as error:
            return error.code, str(error)
        return bytes(found.batch), found.header

    inputs = list(bad_batches.batches(11, depth.inputs() // 20))
    configs = [CONFIGS[number % len(CONFIGS)] for number in range(len(inputs))]
    first = [verdict(bytearray(data), config) for data, config in zip(inputs, configs, strict=True)]
    monkeypatch.setattr(scan_module, "_compiled", None)
    assert [verdict(bytearray(data), config) for data, config in zip(inputs, configs, strict=True)] == first


def refused(data: bytearray, config: LogConfig | None = None, **options: bool) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        validate(memoryview(data), config or LogConfig(), "flights-0", TIME, **options)
    return caught.value


def test_errors_say_what_is_wrong_and_where() -> None:
    rows = [(TIME + number, b"k", b"v", ()) for number in range(3)]
    data = encode_batch(rows)
    data[-1] = 2
    data = _with_crc(data)
    assert str(refused(data)).endswith("record 2 of 3 can't be read: it claims more headers than fit")
    error = refused(encode_batch(rows), LogConfig(message_timestamp_after_max_ms=1))
    assert str(error).endswith(
        f"1 records are refused: record 2: timestamp {TIME + 2}: "
        f"timestamps have to lie within [{-(2**63)}, {TIME + 1}]"
    )


def _with_crc(data: bytearray) -> bytearray:
    from ottla_protocol.records.batch import write_crc

    write_crc(data, 0, len(data))
    return data


def test_a_compressed_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_validation, "MOST_DECOMPRESSED", 5_000_000)
    for codec in range(1, 5):
        data = encode_batch([(TIME, b"k", bytes(20_000_000), ())], codec=codec)
        assert len(data) < LogConfig().max_message_bytes
        assert "more than 5000000 bytes" in str(refused(data))


def test_what_takes_long_is_not_for_the_event_loop() -> None:
    row = (TIME, b"k", bytes(2000), ())
    gzip = LogConfig(compression_type="gzip")
    cases: list[tuple[str, bytearray, LogConfig, int]] = [
        ("many bytes", encode_batch([row]), LogConfig(), 1000)
    ]
    cases += [("a large body", encode_batch([row], codec=codec), LogConfig(), 2000) for codec in range(1, 5)]
    cases += [("written again", encode_batch([row], codec=codec), gzip, 6500) for codec in (0, 2)]
    for what, data, config, size in cases:
        before = bytes(data)
        with pytest.raises(SlowRecordsError):
            validate(memoryview(data), config, "flights-0", TIME, budget=Budget(size))
        assert bytes(data) == before, what
        assert isinstance(validate(memoryview(data), config, "flights-0", TIME), Validated)
    budget = Budget(100_000)
    good = encode_batch([(TIME, b"k", bytes(20_000), ())], codec=1)
    assert validate(memoryview(good), LogConfig(), "flights-0", TIME, budget=budget).batch == good
    assert 40_000 < 100_000 - budget.left < 42_000


@pytest.mark.parametrize("codec", range(5))
def test_offset_deltas_are_put_right(codec: int) -> None:
    def record(delta: int) -> bytes:
        body = b"\0\0" + encode_varint(delta) + b"\x02k\x02v\0"
        return encode_varint(len(body)) + body

    body = record(7) + record(-1) + record(300_000)
    data = encode_batch([(TIME, b"k", b"v", ())] * 3, producer_id=4, producer_epoch=1, base_sequence=9)[:61]
    data += compress(codec, body)
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[22] = codec
    batch, header = validate(memoryview(_with_crc(data)), LogConfig(), "flights-0", TIME)
    assert [one.offset for one in decode_records(batch)] == [0, 1, 2]
    assert (header.codec, header.producer_id, header.base_sequence) == (codec, 4, 9)
    assert crc_is_valid(batch, 0, header)
