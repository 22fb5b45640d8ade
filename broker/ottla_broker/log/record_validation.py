"""A leader's checks of the records in a producer's batch before it appends it, as Kafka's LogValidator does.

Every record must be readable, the records must be as many as the header says, and nothing may follow them. A compacted
topic takes no record without a key, and timestamps lie within the topic's limits. A largest timestamp that is wrong is
put right in the header. Offset deltas other than 0, 1, 2 … are replaced, as Kafka does in compressed batches, and a
topic with its own compression gets its batches in that.

No record becomes an object: see :mod:`ottla_protocol.records.scan`. Compressed batches are scanned while they are
decompressed, and written again in pieces: the records of none are ever in memory as a whole.

A :class:`Budget` keeps the work on the event loop to some milliseconds a request: where it doesn't suffice,
:class:`SlowRecordsError` is raised before anything was changed. :func:`validate` touches only its arguments, so it may
run on another thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla_broker.log.config import NO_LIMIT, LogConfig
from ottla_broker.log.validator import RecordsRefused, check_batch, check_client_batch
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    BatchHeader,
    CorruptRecordError,
    set_max_timestamp,
)
from ottla_protocol.records.scan import (
    FINE,
    INT64_MAX,
    INT64_MIN,
    IS_COMPILED,
    NO_KEY,
    REASONS,
    TRAILING,
    Scan,
    scan,
)

MOST_DECOMPRESSED: Final = 256 * 1024 * 1024
"""A batch that decompresses to more is refused, as clients would refuse it."""
QUICK_BYTES: Final = 8 * 1024 * 1024 if IS_COMPILED else 64 * 1024
"""Bytes of records, uncompressed, that are checked on the event loop: about ten milliseconds at most. A member, block
or frame of a compressed batch counts even if it is empty."""
_DECOMPRESSION: Final = 2
_COMPRESSION: Final = 128 if IS_COMPILED else 2
"""How many bytes could be checked in the time that one takes to decompress, or to compress."""

_CODECS: Final = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_SHOWN: Final = 3


class SlowRecordsError(Exception):
    """The records take too long for the event loop: validate them on a thread."""


class Budget:
    """The number of bytes that may still be checked on the event loop."""

    __slots__ = ("left",)

    def __init__(self, size: int = QUICK_BYTES) -> None:
        self.left = size

    def take(self, size: int) -> None:
        """Raises SlowRecordsError: too few are left."""
        self.left -= size
        if self.left < 0:
            raise SlowRecordsError


class Validated(NamedTuple):
    """A batch that may be appended: the producer's bytes, or others in their place."""

    batch: memoryview
    header: BatchHeader


def validate(
    view: memoryview,
    config: LogConfig,
    name: str,
    now_ms: int,
    *,
    budget: Budget | None = None,
    pause: Callable[[], object] | None = None,
) -> Validated:
    """Check a producer's batch, which fills ``view``, and put right what Kafka puts right.

    ``pause`` is called now and then, for a thread to let others run. Raises KafkaError: CORRUPT_MESSAGE,
    INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE; RecordsRefused because of single records; SlowRecordsError
    only with a ``budget``.
    """
    if budget is not None:
        budget.take(len(view))
    header = check_batch(view, 0, config, name)
    check_client_batch(view, header, name)
    earliest, latest = INT64_MIN, INT64_MAX
    if not config.log_append_time:
        if config.message_timestamp_before_max_ms != NO_LIMIT:
            earliest = now_ms - config.message_timestamp_before_max_ms
        if config.message_timestamp_after_max_ms != NO_LIMIT:
            latest = min(INT64_MAX, now_ms + config.message_timestamp_after_max_ms)
    codec = header.attributes & CODEC_MASK
    if codec:
        found = _scan_compressed(view, header, config, name, earliest, latest, budget, pause)
    else:
        found = scan(
            view,
            HEADER_SIZE,
            len(view),
            header.record_count,
            header.base_timestamp,
            earliest=earliest,
            latest=latest,
            keys=config.compact,
            pause=pause,
        )
    if found.reason != FINE:
        raise _unreadable(found, header, name)
    if found.refused:
        raise _refused(found, name, earliest, latest)
    wanted = codec if config.compression_type == "producer" else _CODECS[config.compression_type]
    if found.renumber or wanted != codec:
        return _repack(view, header, found, wanted, config, name, budget, pause)
    if header.max_timestamp != found.max_timestamp and not config.log_append_time:
        header = set_max_timestamp(view, 0, header, found.max_timestamp)
    return Validated(view, header)


def _scan_compressed(
    view: memoryview,
    header: BatchHeader,
    config: LogConfig,
    name: str,
    earliest: int,
    latest: int,
    budget: Budget | None,
    pause: Callable[[], object] | None,
) -> Scan:
    from ottla_protocol.records.compression import DecompressedTooLargeError
    from ottla_protocol.records.walk import scan_compressed

    limit = MOST_DECOMPRESSED if budget is None else budget.left // _DECOMPRESSION
    try:
        return scan_compressed(
            view,
            header,
            max_bytes=limit,
            charge=None if budget is None else lambda cost: budget.take(_DECOMPRESSION * cost),
            earliest=earliest,
            latest=latest,
            keys=config.compact,
            pause=pause,
        )
    except DecompressedTooLargeError as error:
        if budget is not None:
            raise SlowRecordsError from None
        raise _invalid(name, str(error)) from None
    except CorruptRecordError as error:
        raise _invalid(name, str(error)) from None


def _invalid(name: str, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{name}: {what}")


def _unreadable(found: Scan, header: BatchHeader, name: str) -> KafkaError:
    why = REASONS[found.reason]
    if found.reason == TRAILING:
        return _invalid(name, f"the batch counts {header.record_count} records, but {why}")
    return _invalid(name, f"record {found.record} of {header.record_count} can't be read: {why}")


def _refused(found: Scan, name: str, earliest: int, latest: int) -> RecordsRefused:
    """The error because of single records, which Kafka's processRecordErrors makes."""
    within = f"timestamps have to lie within [{earliest}, {latest}]"
    keyless = "a compacted topic takes no record without a key"
    records = [
        (record, keyless if why == NO_KEY else f"timestamp {timestamp}: {within}")
        for record, timestamp, why in found.refused
    ]
    shown = "; ".join(f"record {record}: {what}" for record, what in records[:_SHOWN])
    return RecordsRefused(
        ErrorCode.INVALID_TIMESTAMP if found.out_of_range else ErrorCode.INVALID_RECORD,
        f"{name}: {found.without_key + found.out_of_range} records are refused: {shown}",
        records,
    )


def _repack(
    view: memoryview,
    header: BatchHeader,
    found: Scan,
    codec: int,
    config: LogConfig,
    name: str,
    budget: Budget | None,
    pause: Callable[[], object] | None,
) -> Validated:
    """Write the batch again. Raises KafkaError: INVALID_RECORD, MESSAGE_TOO_LARGE; SlowRecordsError."""
    from ottla_protocol.records.compression import DecompressedTooLargeError
    from ottla_protocol.records.repack import RepackedTooLargeError, repack

    levels = {
        1: config.compression_gzip_level,
        3: config.compression_lz4_level,
        4: config.compression_zstd_level,
    }
    try:
        batch, header = repack(
            view,
            header,
            codec,
            levels.get(codec),
            renumber=bool(found.renumber),
            max_timestamp=found.max_timestamp,
            max_bytes=config.max_message_bytes,
            max_body_bytes=MOST_DECOMPRESSED if budget is None else budget.left // _COMPRESSION,
            charge=None if budget is None else lambda cost: budget.take(_COMPRESSION * cost),
            pause=pause,
        )
    except DecompressedTooLargeError as error:
        if budget is not None:
            raise SlowRecordsError from None
        raise _invalid(name, str(error)) from None
    except CorruptRecordError as error:
        raise _invalid(name, str(error)) from None
    except RepackedTooLargeError:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{name}: written again for the topic, the batch has more than {config.max_message_bytes} bytes, "
            "which is max.message.bytes",
        ) from None
    return Validated(memoryview(batch), header)


def recompress(view: memoryview, header: BatchHeader, config: LogConfig, name: str) -> Validated:
    """A coordinator's batch in the topic's own compression; markers stay as they are.

    Raises KafkaError: MESSAGE_TOO_LARGE when it has become too large, INVALID_RECORD when it can't be read.
    """
    codec = _CODECS[config.compression_type]
    if codec == header.codec or header.is_control:
        return Validated(view, header)
    found = Scan(FINE, header.record_count, 0, header.max_timestamp, 0, 0, 0, [])
    return _repack(view, header, found, codec, config, name, None, None)
