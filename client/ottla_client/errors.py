"""The client's exceptions. Every message names the request, the broker, and what to do.

ClientError
  ConfigurationError          an invalid option; nothing was sent
  ClosedError                 a call on a closed producer, consumer or admin
  RequestTimeoutError         a deadline passed; also a TimeoutError
    DeliveryTimeoutError        a record's deadline passed; it may have arrived
  ConnectError                a broker can't be reached
    AuthenticationError         a broker refuses the login
    BootstrapError              none of the bootstrap servers can be reached
  ConnectionLostError         a connection broke with requests in flight
  NotABrokerError             the other side doesn't speak Kafka's protocol
  UnsupportedApiError         the broker is too old, or too new, for a request
  BrokerError                 the broker refused; ``code`` says why
    UnknownTopicError
    GroupError                  a consumer group's coordinator refused
      CommitFailedError           the group has moved on: the partitions belong to others now
      FencedInstanceError         another process uses the same group_instance_id
  SerializationError          a serializer raised; nothing was sent
  DeserializationError        a deserializer raised; the record is still there
  RecordTooLargeError
  BufferFullError             no room in the producer's buffer within max_block_ms
  ProducerFencedError         another producer has taken over, or sequence numbers are lost for good
  TransactionAbortedError     the transaction failed, and none of its records and offsets counts
  TransactionStateError       a call that the state of the transaction doesn't allow
  AcknowledgementError        a record of a share group that can't be acknowledged now, or has to be
  OffsetOutOfRangeError       a position that the log doesn't have, and no reset policy
  LogTruncatedError           records that were read have gone from the log (KIP-320)
  CorruptBatchError           a batch whose checksum is wrong or that can't be decoded
  PollIntervalExceededError   the consumer stalled past max_poll_interval_ms and lost its partitions
  ZooKeeperError              ZooKeeper can't be reached, or refuses a request
    BadNodeError                a node in ZooKeeper that can't be read
  RebalanceFailedError        a ZooKeeper consumer can't take its partitions
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.errors import RETRIABLE, ErrorCode

if TYPE_CHECKING:
    from .types import TopicPartition


class ClientError(Exception):
    """The base class of this package's exceptions."""

    retriable = False
    """Whether the same call may succeed later without a change."""


KafkaError = ClientError
"""The name that kafka-python and aiokafka have for their base class."""


class ConfigurationError(ClientError, ValueError):
    """An invalid option or argument; the message says what is allowed."""


class ClosedError(ClientError):
    """The object has been closed, or was never started."""


class RequestTimeoutError(ClientError, TimeoutError):
    """A call didn't finish before its deadline."""

    retriable = True


class DeliveryTimeoutError(RequestTimeoutError):
    """A record was not acknowledged within delivery_timeout_ms. The broker may still have written it."""

    retriable = False


class ConnectError(ClientError, ConnectionError):
    """A broker can't be reached: refused, unknown host, no answer, TLS failed."""

    retriable = True


class AuthenticationError(ConnectError):
    """A broker refuses the login: wrong user, password or mechanism."""

    retriable = False


class BootstrapError(ConnectError):
    """None of the bootstrap servers answered as a broker; the message has the outcome for each."""

    retriable = False


class ConnectionLostError(ClientError, ConnectionError):
    """The connection broke with requests in flight; they may or may not have been carried out."""

    retriable = True


class NotABrokerError(ClientError):
    """The response isn't a broker's: perhaps a web server's, or that of a TLS port addressed in plain text."""


class UnsupportedApiError(ClientError):
    """The broker doesn't support the request, or none of the client's versions of it."""


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
    """Offsets were not committed, because the group has assigned the partitions to other members."""


class FencedInstanceError(GroupError):
    """Another member with the same group_instance_id has replaced this one."""


class SerializationError(ClientError):
    """A serializer raised; the record was not sent. The cause is ``__cause__``."""


class DeserializationError(ClientError):
    """A deserializer raised. The position stays before the record: ``seek`` past it, or fix the deserializer.

    ``key`` and ``value`` are the record's bytes; the cause is ``__cause__``.
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
    """A record is larger than max_request_size, or than the topic's max.message.bytes."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.MESSAGE_TOO_LARGE, message)


class BufferFullError(ClientError):
    """The producer's buffer stayed full for max_block_ms: records are produced faster than they are sent."""

    retriable = True


class ProducerFencedError(BrokerError):
    """This producer can't continue; create a new one."""


class TransactionAbortedError(ClientError):
    """The transaction failed: none of its records and offsets counts. Run it again; the reason is ``__cause__``."""


class TransactionStateError(ClientError):
    """The call doesn't fit the transaction's state, such as a ``send`` outside of a transaction."""


class AcknowledgementError(ClientError):
    """A record of a share group that can't be acknowledged now, or that has to be before the next poll."""


class OffsetOutOfRangeError(ClientError):
    """The log doesn't have the position, and auto_offset_reset is "none". ``offsets`` has the positions."""

    def __init__(self, message: str, offsets: dict[TopicPartition, int]) -> None:
        super().__init__(message)
        self.offsets = offsets


class LogTruncatedError(OffsetOutOfRangeError):
    """Records before the position are gone: an unclean election brought back an older log."""


class CorruptBatchError(ClientError):
    """A record batch is damaged. The position stays before it; ``next_offset`` is the one after it, if known."""

    def __init__(
        self, message: str, partition: TopicPartition, offset: int, next_offset: int | None = None
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class PollIntervalExceededError(ClientError):
    """The application didn't poll for max_poll_interval_ms, so the member left its group."""


class ZooKeeperError(ClientError):
    """ZooKeeper can't be reached, or refuses a request; the message names the path."""

    retriable = True


class BadNodeError(ZooKeeperError):
    """A node in ZooKeeper that this client can't read; the message names its path."""

    retriable = False


class RebalanceFailedError(ClientError):
    """A ZooKeeper consumer can't take its partitions, usually because another one doesn't release them.

    It keeps trying, and goes on reading the partitions that it has.
    """

    retriable = True


def is_retriable(error: BaseException) -> bool:
    """Whether a retry may help: after lost connections, timeouts, and the codes that Kafka calls retriable."""
    return isinstance(error, ClientError) and error.retriable
