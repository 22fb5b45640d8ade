"""Checks a batch before it is appended, as Kafka's LogValidator and UnifiedLog do.

Here are the checksum and the header; ``record_validation`` checks the records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla_broker.log.config import LogConfig
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    CorruptRecordError,
    UnsupportedMagicError,
    crc_is_valid,
    read_header,
)

_HIGHEST_CODEC: Final = 4
_LEAST_RECORD: Final = 7
"""Length, attributes, timestamp delta, offset delta, key, value and header count take a byte each at least."""


class RecordsRefused(KafkaError):
    """A batch is refused because of some of its records.

    ``records`` has each one's index in the batch and what is wrong with it, so that a producer knows which of its
    records it may send again (KIP-467).
    """

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


@dataclass(slots=True, eq=False)
class AppendInfo:
    """The way in which a batch was stored.

    ``first_offset`` to ``last_offset`` are its records' offsets; ``size`` is the number of bytes written, 0 for a
    repetition. ``log_append_time`` is the timestamp that the records got, -1 if they keep their own; for a repetition
    it is the largest of the first time. With ``duplicate`` the batch was there already, with the offsets of the first
    time. With ``flush_due`` flush.messages asks for an fsync now.
    """

    first_offset: int
    last_offset: int
    log_append_time: int
    log_start_offset: int
    size: int
    duplicate: bool = False
    flush_due: bool = False


def check_batch(
    view: memoryview, position: int, config: LogConfig, name: str, *, any_size: bool = False
) -> BatchHeader:
    """The header of the batch at ``position``, which is whole, undamaged and not too large.

    ``any_size``: the leader has stored it, so its size isn't checked.

    Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD (cut short, or an old format), MESSAGE_TOO_LARGE.
    """
    try:
        header = read_header(view, position)
    except UnsupportedMagicError as error:
        if error.magic in (0, 1):
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{name}: message format v{error.magic} is not accepted here, only v2 record batches are",
            ) from None
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {error}") from None
    except CorruptRecordError as error:
        short = len(view) - position < HEADER_SIZE
        raise KafkaError(
            ErrorCode.INVALID_RECORD if short else ErrorCode.CORRUPT_MESSAGE, f"{name}: {error}"
        ) from None
    size = header.size
    if size > len(view) - position:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"{name}: the batch is cut short, {len(view) - position} of {size} bytes are there",
        )
    if size > config.max_message_bytes and not any_size:
        raise KafkaError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{name}: the batch has {size} bytes, max.message.bytes is {config.max_message_bytes}",
        )
    if not crc_is_valid(view, position, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{name}: the batch's CRC does not match (stored {header.crc})"
        )
    return header


def check_client_batch(view: memoryview, header: BatchHeader, name: str) -> None:
    """Refuse what only a leader or a coordinator may write, and numbers that contradict each other.

    Raises KafkaError: INVALID_RECORD, INVALID_TIMESTAMP.
    """
    count = header.record_count
    if header.size != len(view):
        raise _invalid(name, "a produce request carries exactly one batch for a partition")
    if header.base_offset != 0:
        raise _invalid(name, f"a new batch has base offset 0, not {header.base_offset}")
    attributes = header.attributes
    if attributes:
        _check_attributes(header, name)
    if count <= 0 or header.last_offset_delta != count - 1:
        raise _invalid(
            name,
            f"the batch counts {count} records and has a last offset delta of {header.last_offset_delta}",
        )
    if not attributes & CODEC_MASK and count * _LEAST_RECORD > len(view) - HEADER_SIZE:
        raise _invalid(name, f"{count} records cannot be in {len(view) - HEADER_SIZE} bytes")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise _invalid(
            name,
            f"producer {header.producer_id}: sequence {header.base_sequence}, epoch {header.producer_epoch}",
        )


def _invalid(name: str, what: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"{name}: {what}")


def _check_attributes(header: BatchHeader, name: str) -> None:
    if not header.attributes & ~(CODEC_MASK | TRANSACTIONAL):
        if header.codec > _HIGHEST_CODEC:
            raise _invalid(name, f"compression codec {header.codec} does not exist")
        if header.is_transactional and header.producer_id < 0:
            raise _invalid(name, "a transactional batch needs a producer id")
        return
    if header.is_control:
        raise _invalid(name, "clients may not write control records")
    if header.is_log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, f"{name}: a producer may not set the timestamp type LogAppendTime"
        )
    raise _invalid(name, f"attributes {header.attributes:#06x} have bits set that a producer may not set")


def check_stored_batch(view: memoryview, position: int, config: LogConfig, name: str) -> BatchHeader:
    """The header of the batch or message at ``position``, which a leader has stored: whole, undamaged, of any size.

    A follower copies messages of the formats 0 and 1 as they are.

    Raises KafkaError: CORRUPT_MESSAGE; INVALID_RECORD for a batch that is cut short.
    """
    if len(view) - position <= MAGIC_AT or view[position + MAGIC_AT] >= MAGIC:
        return check_batch(view, position, config, name, any_size=True)
    from ottla_protocol.records.message_set import message_crc_is_valid, read_message

    try:
        header = read_message(view, position)
    except CorruptRecordError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{name}: {error}") from None
    if not message_crc_is_valid(view, position, header):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"{name}: the message's CRC does not match (stored {header.crc})"
        )
    return header
