"""Messages of the formats 0 and 1 on their way into a log as they are: a follower copies what its leader has."""

from __future__ import annotations

from ottla_broker.log.config import LogConfig
from ottla_broker.log.validator import check_batch
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import MAGIC, MAGIC_AT, BatchHeader, CorruptRecordError


def check_stored_batch(view: memoryview, position: int, config: LogConfig, name: str) -> BatchHeader:
    """The header of the batch or message at ``position``, which a leader has stored: whole, undamaged, of any size.

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
