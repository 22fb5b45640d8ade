"""What the client raises. Every message says what was asked, of whom, and what to do about it.

ClientError
  ConfigurationError          an option that is wrong, before anything is sent
  ClosedError                 a call on a producer, consumer or admin that is closed
  RequestTimeoutError         a deadline passed; also a TimeoutError
    DeliveryTimeoutError        for a record: whether the broker has it may be unknown
  ConnectError                a broker can't be reached
    BootstrapError              none of the bootstrap servers can
  ConnectionLostError         a connection broke with requests on the way
  NotABrokerError             whatever answered doesn't speak Kafka's protocol
  UnsupportedApiError         the broker is too old, or too new, for what was asked
  BrokerError                 the broker refused; ``code`` says why
    UnknownTopicError
    GroupError                  what concerns a consumer group; see below
      CommitFailedError           the group has moved on: the partitions belong to others now
      FencedInstanceError         another process uses the same group_instance_id
  SerializationError          a serializer raised; nothing was sent
  DeserializationError        a deserializer raised; the record is still there
  RecordTooLargeError
  BufferFullError             no room in the producer's buffer within max_block_ms
  ProducerFencedError         another producer has taken over, or sequence numbers are lost for good
  OffsetOutOfRangeError       a position that the log doesn't have, and no reset policy
  LogTruncatedError           records that were read have gone from the log (KIP-320)
  CorruptBatchError           a batch whose checksum is wrong or that can't be decoded
  PollIntervalExceededError   the consumer stalled past max_poll_interval_ms and lost its partitions
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.errors import RETRIABLE, ErrorCode

if TYPE_CHECKING:
    from .types import TopicPartition


class ClientError(Exception):
    """The base of everything that this package raises on its own account."""

    retriable = False
    """Whether the same call may succeed later without anything being changed."""


KafkaError = ClientError
"""The name that kafka-python and aiokafka have for their base class."""


class ConfigurationError(ClientError, ValueError):
    """An option or argument that can't be right; says which, and what is allowed."""


class ClosedError(ClientError):
    """The object has been closed, or was never started."""


class RequestTimeoutError(ClientError, TimeoutError):
    """Nothing came of it within its time."""

    retriable = True


class DeliveryTimeoutError(RequestTimeoutError):
    """A record was not acknowledged within delivery_timeout_ms.

    If it had been sent, the broker may have it nevertheless.
    """

    retriable = False


class ConnectError(ClientError, ConnectionError):
    """A broker can't be reached: refused, unknown host, no answer, TLS failed."""

    retriable = True


class BootstrapError(ConnectError):
    """None of the bootstrap servers answered as a broker; says what each one did."""

    retriable = False


class ConnectionLostError(ClientError, ConnectionError):
    """The connection broke while requests were on the way; whether they were carried out is unknown."""

    retriable = True


class NotABrokerError(ClientError):
    """Bytes came back that no broker sends: perhaps a web server, or a TLS port spoken to in plain text."""


class UnsupportedApiError(ClientError):
    """The broker doesn't have the request, or no version of it that the client has."""


class BrokerError(ClientError):
    """A broker answered with an error code; ``code`` is Kafka's."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        return self.code in RETRIABLE


class UnknownTopicError(BrokerError):
    """A topic or partition that doesn't exist, or that this user may not see."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        super().__init__(code, message)


class GroupError(BrokerError):
    """The group's coordinator refused."""


class CommitFailedError(GroupError):
    """Offsets could not be committed because the group has given the partitions to others."""


class FencedInstanceError(GroupError):
    """Another member with the same group_instance_id has taken this one's place."""


class SerializationError(ClientError):
    """A serializer raised; the record was not sent. The cause is ``__cause__``."""


class DeserializationError(ClientError):
    """A deserializer raised. The position stays before the record: ``seek`` past it, or mend the deserializer.

    ``key`` and ``value`` are the bytes as they came; the cause is ``__cause__``.
    """

    def __init__(
        self, message: str, partition: TopicPartition, offset: int, key: bytes | None, value: bytes | None
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value


class RecordTooLargeError(BrokerError):
    """A record beyond max_request_size, or beyond what the topic takes (max.message.bytes)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferFullError(ClientError):
    """The producer's buffer stayed full for max_block_ms: records are made faster than they are sent."""

    retriable = True


class ProducerFencedError(BrokerError):
    """This producer may not go on; make a new one."""


class OffsetOutOfRangeError(ClientError):
    """The log doesn't have the position, and auto_offset_reset is "none". ``offsets`` has the positions."""

    def __init__(self, message: str, offsets: dict[TopicPartition, int]) -> None:
        super().__init__(message)
        self.offsets = offsets


class LogTruncatedError(OffsetOutOfRangeError):
    """Records up to the position are gone: an unclean election brought back an older log."""


class CorruptBatchError(ClientError):
    """A record batch is damaged. The position stays before it; ``next_offset`` is behind it, where known."""

    def __init__(
        self, message: str, partition: TopicPartition, offset: int, next_offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class PollIntervalExceededError(ClientError):
    """No poll for max_poll_interval_ms: the member left its group, and its partitions went to others."""


def is_retriable(error: BaseException) -> bool:
    """Whether trying again may help: lost connections, timeouts, and the codes that Kafka calls retriable."""
    return isinstance(error, ClientError) and error.retriable
