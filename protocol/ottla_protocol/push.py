"""The messages of the consumer coordinator that Kafka's developers designed in 2012, and their framing.

The coordinator assigns partitions to consumers and pushes its requests on the connection by which a consumer has
registered. Each message is a frame::

    size: int32              the bytes that follow
    request_type_id: int16   missing in ClusterMetadataResponse and RegisterConsumerResponse
    ...                      the fields below, in order

A string is its length in bytes as int16, then UTF-8; a boolean is one byte, 0 or 1; a list follows its int16 count. The
document gives no numbers for the request types: they continue those of Kafka 0.7, whose last was 4
(docs/decisions/0021). After the error code of a refusal comes a text, which the document doesn't have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import ClassVar, Final, NamedTuple, TypeAlias, TypeVar

from .errors import LocalProtocolError, ProtocolError
from .primitives import MAX_STRING, Buffer

MAX_NAME: Final = 249
"""The most bytes of a group's or a consumer's id, as of a topic's name."""
MAX_REGISTRATION: Final = MAX_STRING + 2 * MAX_NAME + 64
"""The largest request of a consumer that has no partitions yet, in bytes without the size."""
MAX_PUSH: Final = 32 << 20
"""The largest message of a coordinator that a consumer accepts."""
SMALLEST: Final = -2
"""In place of an offset: start with the first record (0.7's ``OffsetRequest.EarliestTime``)."""
LARGEST: Final = -1
"""In place of an offset: start behind the last record (``OffsetRequest.LatestTime``)."""
CONFIRMATION: Final = -1
"""In place of a ping's number of retries: all offsets that the consumer has sent are stored."""

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_unpack_int16: Final = _INT16.unpack_from
_unpack_int32: Final = _INT32.unpack_from
_unpack_int64: Final = _INT64.unpack_from
_MOST: Final = 32767
_OFFSET_BYTES: Final = 2 + MAX_NAME + 2 + 10 + 8
_T = TypeVar("_T")


class RequestType(IntEnum):
    """``request_type_id``."""

    CLUSTER_METADATA = 5
    REGISTER_CONSUMER = 6
    PING = 7
    STOP_FETCHER = 8
    START_FETCHER = 9


_TYPES: Final = {kind.value: kind for kind in RequestType}


class Broker(NamedTuple):
    """``broker_struct``: ``id: int32, host: string, port: int32``."""

    id: int
    host: str
    port: int


class PartitionOffset(NamedTuple):
    """``offset_struct`` and ``partition_struct``: ``topic: string, partition: string, offset: int64``.

    The partition is its number in decimal digits: since 0.8 it has no broker's id.
    """

    topic: str
    partition: int
    offset: int


class Ownership(NamedTuple):
    """``ownership_struct``: ``consumer_thread_id: string, num_partitions: int16, [partition_struct]``."""

    thread_id: str
    partitions: tuple[PartitionOffset, ...]


@dataclass(frozen=True, slots=True)
class ClusterMetadataRequest:
    """Asks any broker which one is the coordinator. ``request_type_id: int16`` alone."""

    type: ClassVar[RequestType] = RequestType.CLUSTER_METADATA

    def encode(self) -> bytes:
        return _Writer(self.type).frame()


@dataclass(frozen=True, slots=True)
class ClusterMetadataResponse:
    """``error_code: int16, coordinator_id: int32, num_brokers: int16, [broker_struct]``.

    ``coordinator_id`` is -1 while there is none. The brokers are those with a coordinator's listener, by its address.
    """

    error_code: int
    coordinator_id: int
    brokers: tuple[Broker, ...] = ()

    def encode(self) -> bytes:
        writer = _Writer()
        writer.int16(self.error_code)
        writer.int32(self.coordinator_id)
        writer.brokers(self.brokers)
        return writer.frame()

    @classmethod
    def decode(cls, frame: Buffer) -> ClusterMetadataResponse:
        """Raises ProtocolError."""
        reader = _Reader(frame)
        return reader.ended(cls(reader.int16(), reader.int32(), reader.brokers()))


@dataclass(frozen=True, slots=True)
class RegisterConsumerRequest:
    """Makes the sender a member of a group.

    ``group_id: string, consumer_id: string, topic_count: string, auto_commit: boolean, auto_offset_reset: string,
    session_timeout_ms: int32``.
    """

    type: ClassVar[RequestType] = RequestType.REGISTER_CONSUMER

    group_id: str
    consumer_id: str
    topic_count: str
    auto_commit: bool
    auto_offset_reset: str
    session_timeout_ms: int

    def encode(self) -> bytes:
        writer = _Writer(self.type)
        for text in (self.group_id, self.consumer_id, self.topic_count):
            writer.string(text)
        writer.data.append(self.auto_commit)
        writer.string(self.auto_offset_reset)
        writer.int32(self.session_timeout_ms)
        return writer.frame()


@dataclass(frozen=True, slots=True)
class RegisterConsumerResponse:
    """``error_code: int16``, and after another code than 0 ``error_message: string``."""

    error_code: int
    error_message: str = ""

    def encode(self) -> bytes:
        writer = _Writer()
        writer.int16(self.error_code)
        if self.error_code:
            writer.string(self.error_message[:1000])
        return writer.frame()

    @classmethod
    def decode(cls, frame: Buffer) -> RegisterConsumerResponse:
        """Raises ProtocolError."""
        reader = _Reader(frame)
        code = reader.int16()
        return reader.ended(cls(code, reader.string() if reader.left() else ""))


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Asks whether a consumer is alive. ``consumer_id: string, num_retries: int32``."""

    type: ClassVar[RequestType] = RequestType.PING

    consumer_id: str
    num_retries: int = 0

    def encode(self) -> bytes:
        writer = _Writer(self.type)
        writer.string(self.consumer_id)
        writer.int32(self.num_retries)
        return writer.frame()


@dataclass(frozen=True, slots=True)
class StopFetcherRequest:
    """Tells a consumer to stop its fetchers. ``consumer_id: string``."""

    type: ClassVar[RequestType] = RequestType.STOP_FETCHER

    consumer_id: str

    def encode(self) -> bytes:
        writer = _Writer(self.type)
        writer.string(self.consumer_id)
        return writer.frame()


@dataclass(frozen=True, slots=True)
class StartFetcherRequest:
    """Gives a consumer its partitions.

    ``consumer_id: string, num_threads: int16, [ownership_struct], num_brokers: int16, [broker_struct]``. The brokers
    are those to fetch from.
    """

    type: ClassVar[RequestType] = RequestType.START_FETCHER

    consumer_id: str
    ownership: tuple[Ownership, ...]
    brokers: tuple[Broker, ...]

    def encode(self) -> bytes:
        writer = _Writer(self.type)
        writer.string(self.consumer_id)
        writer.count(self.ownership)
        for thread_id, partitions in self.ownership:
            writer.string(thread_id)
            writer.offsets(partitions)
        writer.brokers(self.brokers)
        return writer.frame()


@dataclass(frozen=True, slots=True)
class _Response:
    """``error_code: int16, consumer_id: string, num_partition: int16, [offset_struct]``.

    ``offsets`` None: the consumer doesn't commit, and the last two fields are missing.
    """

    type: ClassVar[RequestType]

    error_code: int
    consumer_id: str
    offsets: tuple[PartitionOffset, ...] | None = None

    def encode(self) -> bytes:
        writer = _Writer(self.type)
        writer.int16(self.error_code)
        writer.string(self.consumer_id)
        if self.offsets is not None:
            writer.offsets(self.offsets)
        return writer.frame()


class PingResponse(_Response):
    """A consumer may send it without a request, to commit; the coordinator then confirms by a ping."""

    __slots__ = ()
    type = RequestType.PING


class StopFetcherResponse(_Response):
    __slots__ = ()
    type = RequestType.STOP_FETCHER


class StartFetcherResponse(_Response):
    """Without offsets."""

    __slots__ = ()
    type = RequestType.START_FETCHER


FromConsumer: TypeAlias = (
    ClusterMetadataRequest
    | RegisterConsumerRequest
    | PingResponse
    | StopFetcherResponse
    | StartFetcherResponse
)
FromCoordinator: TypeAlias = PingRequest | StopFetcherRequest | StartFetcherRequest


def decode_from_consumer(frame: Buffer) -> FromConsumer:
    """A message that a coordinator receives. Raises ProtocolError."""
    reader = _Reader(frame)
    kind = reader.type()
    if kind is RequestType.CLUSTER_METADATA:
        return reader.ended(ClusterMetadataRequest())
    if kind is RequestType.REGISTER_CONSUMER:
        return reader.ended(
            RegisterConsumerRequest(
                reader.string(),
                reader.string(),
                reader.string(),
                reader.boolean(),
                reader.string(),
                reader.int32(),
            )
        )
    code, consumer_id = reader.int16(), reader.string()
    if kind is RequestType.START_FETCHER:
        return reader.ended(StartFetcherResponse(code, consumer_id))
    offsets = reader.offsets() if reader.left() else None
    response = PingResponse if kind is RequestType.PING else StopFetcherResponse
    return reader.ended(response(code, consumer_id, offsets))


def decode_push(frame: Buffer) -> FromCoordinator:
    """A request that a coordinator pushes to a registered consumer. Raises ProtocolError."""
    reader = _Reader(frame)
    kind = reader.type()
    if kind is RequestType.PING:
        return reader.ended(PingRequest(reader.string(), reader.int32()))
    if kind is RequestType.STOP_FETCHER:
        return reader.ended(StopFetcherRequest(reader.string()))
    if kind is RequestType.START_FETCHER:
        consumer_id = reader.string()
        ownership = tuple(Ownership(reader.string(), reader.offsets()) for _ in range(reader.count()))
        return reader.ended(StartFetcherRequest(consumer_id, ownership, reader.brokers()))
    raise ProtocolError(f"{kind.name} is a consumer's request, and the coordinator has sent it")


def answer_limit(partitions: int) -> int:
    """The most bytes of a message of a consumer that was given so many partitions."""
    return max(MAX_REGISTRATION, 64 + MAX_NAME + partitions * _OFFSET_BYTES)


class FrameReader:
    """Takes frames out of the bytes of a connection. It holds the bytes of one incomplete frame at most.

    Attributes:
        limit: the largest size that a frame may have.
    """

    __slots__ = ("_buffer", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """The number of bytes of an incomplete frame that have arrived."""
        return len(self._buffer)

    def feed(self, data: Buffer) -> list[bytes]:
        """The frames that are complete now, without their sizes. Raises ProtocolError for a size beyond the limit."""
        buffer = self._buffer
        buffer += data
        frames = []
        start = 0
        while len(buffer) - start >= 4:
            (size,) = _INT32.unpack_from(buffer, start)
            if not 2 <= size <= self.limit:
                raise ProtocolError(f"the frame's size is {size} bytes; 2 to {self.limit} are allowed here")
            end = start + 4 + size
            if len(buffer) < end:
                break
            frames.append(bytes(buffer[start + 4 : end]))
            start = end
        del buffer[:start]
        return frames


class _Writer:
    """Builds one frame. Every method raises LocalProtocolError for a value that has no place in its field."""

    __slots__ = ("data",)

    def __init__(self, kind: RequestType | None = None) -> None:
        self.data = bytearray(4)
        if kind is not None:
            self.int16(kind)

    def int16(self, value: int) -> None:
        self._number(_INT16, value)

    def int32(self, value: int) -> None:
        self._number(_INT32, value)

    def _number(self, packer: Struct, value: int) -> None:
        try:
            self.data += packer.pack(value)
        except StructError as error:
            raise LocalProtocolError(f"{value} doesn't fit into {packer.size} bytes") from error

    def string(self, text: str) -> None:
        encoded = text.encode("utf-8", "replace")
        if len(encoded) > MAX_STRING:
            raise LocalProtocolError(f"a string has {len(encoded)} bytes; {MAX_STRING} are allowed")
        self.data += _INT16.pack(len(encoded))
        self.data += encoded

    def count(self, values: Sequence[object]) -> None:
        if len(values) > _MOST:
            raise LocalProtocolError(f"a list has {len(values)} entries; {_MOST} are allowed")
        self.data += _INT16.pack(len(values))

    def offsets(self, offsets: Sequence[PartitionOffset]) -> None:
        self.count(offsets)
        for topic, partition, offset in offsets:
            self.string(topic)
            self.string(str(partition))
            self._number(_INT64, offset)

    def brokers(self, brokers: Sequence[Broker]) -> None:
        self.count(brokers)
        for id_, host, port in brokers:
            self.int32(id_)
            self.string(host)
            self.int32(port)

    def frame(self) -> bytes:
        _INT32.pack_into(self.data, 0, len(self.data) - 4)
        return bytes(self.data)


class _Reader:
    """Reads one frame. Every method raises ProtocolError, which names the byte."""

    __slots__ = ("_data", "_end", "_position")

    def __init__(self, frame: Buffer) -> None:
        self._data = frame
        self._end = len(frame)
        self._position = 0

    def left(self) -> int:
        return self._end - self._position

    def _pass(self, size: int) -> int:
        """Go to the end of a field; returns where it begins."""
        start = self._position
        if start + size > self._end:
            raise ProtocolError(
                f"the message ends at byte {self._end}, within a field of {size} bytes from {start}"
            )
        self._position = start + size
        return start

    def type(self) -> RequestType:
        number = self.int16()
        kind = _TYPES.get(number)
        if kind is None:
            known = ", ".join(f"{kind.value} {kind.name}" for kind in RequestType)
            raise ProtocolError(f"{number} is no request type; there are {known}")
        return kind

    def int16(self) -> int:
        value: int = _unpack_int16(self._data, self._pass(2))[0]
        return value

    def int32(self) -> int:
        value: int = _unpack_int32(self._data, self._pass(4))[0]
        return value

    def int64(self) -> int:
        value: int = _unpack_int64(self._data, self._pass(8))[0]
        return value

    def boolean(self) -> bool:
        value = self._data[self._pass(1)]
        if value > 1:
            raise ProtocolError(f"byte {self._position - 1} is {value}; a boolean is 0 or 1")
        return value == 1

    def string(self) -> str:
        start = self._position
        size = self.int16()
        if size < 0:
            raise ProtocolError(f"the string at byte {start} has {size} bytes")
        try:
            return str(self._data[self._pass(size) : self._position], "utf-8")
        except UnicodeDecodeError as error:
            raise ProtocolError(f"the string at byte {start} is not UTF-8") from error

    def count(self) -> int:
        start = self._position
        count = self.int16()
        if count < 0:
            raise ProtocolError(f"the list at byte {start} has {count} entries")
        return count

    def offsets(self) -> tuple[PartitionOffset, ...]:
        return tuple(
            PartitionOffset(self.string(), self._partition(), self.int64()) for _ in range(self.count())
        )

    def _partition(self) -> int:
        start = self._position
        text = self.string()
        if not (text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31):
            raise ProtocolError(f"the partition at byte {start} is {text[:40]!r}; digits are needed")
        return int(text)

    def brokers(self) -> tuple[Broker, ...]:
        return tuple(Broker(self.int32(), self.string(), self.int32()) for _ in range(self.count()))

    def ended(self, message: _T) -> _T:
        if self.left():
            raise ProtocolError(
                f"{self.left()} bytes follow the {type(message).__name__}, which ends at byte {self._position}"
            )
        return message
