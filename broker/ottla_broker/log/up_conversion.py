"""Message sets of producers older than Kafka 0.11, made into the batch that the log stores.

Kafka's ``UnifiedLog.analyzeAndValidateRecords`` and ``LogValidator``, as far as they concern the formats 0 and 1. What
holds for records of any format (timestamps, keys, sizes) is checked when the batch is appended.

Pure functions: they may run on any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from ottla_broker.log.config import LogConfig
from ottla_broker.log.validator import RecordsRefused
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecordError,
    crc_is_valid,
)
from ottla_protocol.records.columns import encode_columns
from ottla_protocol.records.compiled_messages import IS_COMPILED, MessagesAsRecords, messages_as_records
from ottla_protocol.records.compression import CODEC_NAMES, GZIP, LZ4, NONE, ZSTD, DecompressedTooLargeError
from ottla_protocol.records.formats import read_any_header
from ottla_protocol.records.message_set import (
    MIN_SIZE_FIELD,
    OVERHEAD,
    STEP,
    InvalidMessageError,
    Messages,
    decode_messages,
    decode_plain,
    decompress_set,
    message_crc_is_valid,
    read_message,
    wrapper_value,
)
from ottla_protocol.records.record import finish_batch

_CRC_AT: Final = 12
_ATTRIBUTES_AT: Final = 17
_LEAST_RECORD: Final = 7
"""Bytes of the smallest record of format 2."""

LARGEST_SET: Final = 32 * 1024 * 1024
"""The most bytes of a message set, uncompressed, that are converted. Kafka has no such limit. Producers of these
formats send some megabytes at most, but a few kilobytes can decompress to any size."""


def is_message_set(records: memoryview) -> bool:
    """Whether the bytes begin with a message of format 0 or 1, maybe one that is cut off."""
    return len(records) <= MAGIC_AT or records[MAGIC_AT] < MAGIC


def to_batch(
    records: memoryview,
    config: LogConfig,
    name: str,
    *,
    limit: int = LARGEST_SET,
    pause: Callable[[], object] | None = None,
) -> bytearray | None:
    """The messages in one batch of format 2, from offset 0; None if there is no whole message.

    The batch has the topic's compression, or the messages'. ``limit`` bounds the uncompressed size; ``pause`` is called
    after every few hundred messages, for a thread to let others run.

    Raises:
        KafkaError: CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, INVALID_RECORD, INVALID_TIMESTAMP, as Kafka's validation.
        DecompressedTooLargeError: ``limit`` is exceeded.
    """
    batch = _convert_usual(records, config, limit)
    if batch is not None:
        return batch
    messages = _decode_usual(records, config, limit, pause)
    codec = NONE
    if messages is None:
        found = _check(records, config, name, pause)
        if found is None:
            return None
        codec = found.codec
        messages = _decode(records, found, config, name, limit, pause)
    if min(messages.timestamps) < NO_TIMESTAMP:
        raise _bad_timestamps(
            name,
            "a timestamp is negative",
            [index for index, each in enumerate(messages.timestamps) if each < NO_TIMESTAMP],
        )
    target = _target(config, codec)
    return encode_columns(
        messages.values,
        keys=messages.keys,
        timestamps=messages.timestamps,
        codec=target,
        level=_level(config, target),
    )


def too_large(name: str, limit: int) -> KafkaError:
    """The answer to a message set that exceeds the limit."""
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{name}: a message set has more than {limit} bytes, uncompressed"
    )


def _convert_usual(records: memoryview, config: LogConfig, limit: int) -> bytearray | None:
    """Convert a set of sound messages in C, also compressed; None for any other set. Raises as :func:`to_batch`."""
    if not IS_COMPILED or len(records) <= _ATTRIBUTES_AT or len(records) > config.max_message_bytes:
        return None
    magic = records[MAGIC_AT]
    codec = records[_ATTRIBUTES_AT] & CODEC_MASK
    if magic >= MAGIC or codec >= ZSTD or records[_ATTRIBUTES_AT] & LOG_APPEND_TIME:
        return None
    if codec == NONE:
        found = (
            messages_as_records(records, magic, CODEC_MASK | LOG_APPEND_TIME)
            if len(records) <= limit
            else None
        )
        if found is not None and found.end != len(records):
            return None
    else:
        found = _unwrap(records, magic, codec, limit)
    if found is None or not found.record_count:
        return None
    target = _target(config, codec)
    header = BatchHeader(
        base_offset=0,
        batch_length=0,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=target,
        last_offset_delta=found.record_count - 1,
        base_timestamp=found.base_timestamp,
        max_timestamp=found.max_timestamp,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=found.record_count,
    )
    return finish_batch(header, found.body, _level(config, target))


def _unwrap(records: memoryview, magic: int, codec: int, limit: int) -> MessagesAsRecords | None:
    """The messages of a sound wrapper, which is all there is. Raises DecompressedTooLargeError."""
    try:
        wrapper = read_message(records)
        if wrapper.size != len(records) or not message_crc_is_valid(records, 0, wrapper):
            return None
        value = wrapper_value(records, wrapper)
        if value is None:
            return None
        found = messages_as_records(decompress_set(codec, value, magic, limit), magic, CODEC_MASK)
    except DecompressedTooLargeError:
        raise
    except CorruptRecordError:
        return None
    if found is not None and magic and 0 != wrapper.base_offset < found.last_offset:
        return None
    return found


def _decode_usual(
    records: memoryview, config: LogConfig, limit: int, pause: Callable[[], object] | None
) -> Messages | None:
    """Decode a set of sound messages without codec, as most are, in one go; None for any other."""
    if len(records) <= _ATTRIBUTES_AT or len(records) > min(config.max_message_bytes, limit):
        return None
    magic = records[MAGIC_AT]
    if magic >= MAGIC or records[_ATTRIBUTES_AT] & (CODEC_MASK | LOG_APPEND_TIME):
        return None
    try:
        messages = decode_plain(bytes(records), magic, pause)
    except CorruptRecordError:
        return None
    return messages if messages.offsets and not _has_append_time(records) else None


def _has_append_time(records: memoryview) -> bool:
    """Whether one of these whole messages says log append time."""
    position = 0
    while position < len(records):
        if records[position + _ATTRIBUTES_AT] & LOG_APPEND_TIME:
            return True
        position += LOG_OVERHEAD + int.from_bytes(records[position + 8 : position + LOG_OVERHEAD], "big")
    return False


@dataclass(slots=True)
class _Checked:
    """A message set whose messages are undamaged: the first one, the codec, and where the last whole one ends."""

    first: BatchHeader
    codec: int
    end: int
    # The messages that say log append time.
    append_times: list[int]


def _check(
    records: memoryview, config: LogConfig, name: str, pause: Callable[[], object] | None
) -> _Checked | None:
    """Check the messages one by one; None if there is no whole one. Raises KafkaError."""
    found: _Checked | None = None
    count = position = 0
    mixed = False
    size = len(records)
    while size - position >= LOG_OVERHEAD:
        length = int.from_bytes(records[position + 8 : position + LOG_OVERHEAD], "big", signed=True)
        if length < MIN_SIZE_FIELD:
            raise _corrupt(name, f"a message has a size of {length}, the least is {MIN_SIZE_FIELD}")
        if size - position <= MAGIC_AT:
            break
        magic = records[position + MAGIC_AT]
        if magic > MAGIC:
            raise _corrupt(name, f"message format (magic) {magic} is unknown")
        end = position + LOG_OVERHEAD + length
        if end > size:
            break
        if end - position > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{name}: a message has {end - position} bytes, max.message.bytes is {config.max_message_bytes}",
            )
        crc = int.from_bytes(records[position + _CRC_AT : position + MAGIC_AT], "big")
        if magic == MAGIC:
            intact = crc_is_valid(records, position, _header(records, position, name))
        else:
            intact = crc32(records[position + MAGIC_AT : end]) == crc
        if not intact:
            raise _corrupt(name, f"a message's CRC does not match (stored {crc})")
        if found is None:
            found = _Checked(_header(records, position, name), NONE, end, [])
        mixed = mixed or magic != found.first.magic
        attributes = records[position + _ATTRIBUTES_AT]
        found.codec = attributes & CODEC_MASK or found.codec
        if attributes & LOG_APPEND_TIME:
            found.append_times.append(count)
        count += 1
        if pause is not None and not count % STEP:
            pause()
        position = found.end = end
    if found is not None:
        if mixed:
            raise _invalid(
                name, f"messages of several formats are in one set, the first has {found.first.magic}"
            )
        if found.codec >= ZSTD:
            raise _invalid(name, f"a message of format {magic} is compressed with codec {found.codec}")
        if found.codec and count > 1:
            raise _invalid(name, "a compressed message set has other messages beside it")
    return found


def _decode(
    records: memoryview,
    found: _Checked,
    config: LogConfig,
    name: str,
    limit: int,
    pause: Callable[[], object] | None,
) -> Messages:
    """Decode messages that were checked. Raises KafkaError, DecompressedTooLargeError."""
    first, end = found.first, found.end
    try:
        if found.codec == NONE:
            if config.compression_type in ("producer", "uncompressed") and (
                end * _LEAST_RECORD > config.max_message_bytes * OVERHEAD[1]
            ):
                raise KafkaError(
                    ErrorCode.MESSAGE_TOO_LARGE,
                    f"{name}: a message set is stored as one batch, and {end} bytes don't fit into one of"
                    f" {config.max_message_bytes} (max.message.bytes)",
                )
            if end > limit:
                raise DecompressedTooLargeError(limit)
            messages = decode_plain(bytes(records[:end]), first.magic, pause)
        else:
            messages = decode_messages(records, 0, first, max_bytes=limit, strict=True, pause=pause)
    except DecompressedTooLargeError:
        raise
    except InvalidMessageError as error:
        raise _invalid(name, str(error)) from None
    except CorruptRecordError as error:
        raise _corrupt(name, str(error)) from None
    if first.magic and found.append_times:
        # As in Kafka, a producer's timestamp type doesn't matter where its timestamp counts.
        said = range(len(messages.timestamps)) if found.codec else found.append_times
        bad = [at for at in said if config.log_append_time or messages.timestamps[at] == NO_TIMESTAMP]
        if bad:
            raise _bad_timestamps(name, "a producer may not set the timestamp type LogAppendTime", bad)
    return messages


def _header(records: memoryview, position: int, name: str) -> BatchHeader:
    try:
        return read_any_header(records, position)
    except CorruptRecordError as error:
        raise _corrupt(name, str(error)) from None


def _corrupt(name: str, what: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {what}")


def _invalid(name: str, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{name}: {what}")


def _bad_timestamps(name: str, what: str, indexes: list[int]) -> RecordsRefused:
    return RecordsRefused(
        ErrorCode.INVALID_TIMESTAMP, f"{name}: {what}", [(index, what) for index in indexes]
    )


def _target(config: LogConfig, codec: int) -> int:
    kind = config.compression_type
    if kind == "producer":
        return codec
    return NONE if kind == "uncompressed" else CODEC_NAMES.index(kind)


def _level(config: LogConfig, codec: int) -> int | None:
    return {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }.get(codec)
