"""A client of a few requests, packed by hand, to measure with where a real client would blur it.

It shares no code with either broker, and speaks versions that both serve, all from before the flexible
encoding: integers big-endian, a string an int16 length and UTF-8, bytes an int32 length, an array an int32
count; length -1 is null.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass

import crc32c

PRODUCE, FETCH, METADATA = (0, 7), (1, 4), (3, 4)
OFFSET_COMMIT, FIND_COORDINATOR = (8, 5), (10, 1)
JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = (11, 5), (12, 3), (13, 1), (14, 3)
CREATE_TOPICS, DELETE_TOPICS = (19, 2), (20, 1)

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER = 5, 6
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79


def string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return struct.pack(">h", len(raw)) + raw


def blob(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else struct.pack(">i", len(data)) + data


def array(items: list[bytes] | None) -> bytes:
    return b"\xff\xff\xff\xff" if items is None else struct.pack(">i", len(items)) + b"".join(items)


class Reader:
    """Takes a response apart from front to back."""

    def __init__(self, data: bytes | bytearray | memoryview, position: int = 0) -> None:
        self._data = data
        self.position = position

    def number(self, kind: str) -> int:
        value: int = struct.unpack_from(">" + kind, self._data, self.position)[0]
        self.position += struct.calcsize(kind)
        return value

    def skip(self, size: int) -> None:
        self.position += size

    def int8(self) -> int:
        return self.number("b")

    def int16(self) -> int:
        return self.number("h")

    def int32(self) -> int:
        return self.number("i")

    def int64(self) -> int:
        return self.number("q")

    def string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        self.position += length
        return bytes(self._data[self.position - length : self.position]).decode()

    def blob(self) -> bytes:
        length = max(self.int32(), 0)
        self.position += length
        return bytes(self._data[self.position - length : self.position])


def frame(api: tuple[int, int], body: bytes, correlation: int = 0, client: str = "bench") -> bytes:
    """A whole request: length, header version 1, body."""
    header = struct.pack(">hhi", api[0], api[1], correlation) + string(client)
    return struct.pack(">i", len(header) + len(body)) + header + body


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def record_batch(values: list[bytes]) -> bytes:
    """A batch of format 2 without keys, uncompressed, stamped with the time of now."""
    now = time.time_ns() // 1_000_000
    records = []
    for delta, value in enumerate(values):
        record = b"\x00\x00" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + b"\x00"
        records.append(_varint(len(record)) + record)
    # From the attributes on, which is what the checksum covers: attributes, last offset delta, first and last
    # timestamp, producer id and epoch, base sequence, count.
    covered = struct.pack(">hiqqqhii", 0, len(values) - 1, now, now, -1, -1, -1, len(values)) + b"".join(
        records
    )
    rest = struct.pack(">ibI", -1, 2, crc32c.crc32c(covered)) + covered
    return struct.pack(">qi", 0, len(rest)) + rest


def produce(topic: str, partition: int, records: bytes, acks: int = -1) -> bytes:
    part = struct.pack(">i", partition) + blob(records)
    return string(None) + struct.pack(">hi", acks, 30_000) + array([string(topic) + array([part])])


def produced(body: Reader) -> tuple[int, int]:
    """The error and base offset of the one partition of a produce response."""
    body.int32(), body.string(), body.int32(), body.int32()
    return body.int16(), body.int64()


def fetch(topic: str, partition: int, offset: int, max_bytes: int) -> bytes:
    part = struct.pack(">iqi", partition, offset, max_bytes)
    return struct.pack(">iiiib", -1, 500, 1, max_bytes, 0) + array([string(topic) + array([part])])


def metadata(topics: list[str] | None, create: bool = True) -> bytes:
    return array(None if topics is None else [string(topic) for topic in topics]) + struct.pack(">?", create)


def leaders(body: Reader) -> dict[str, list[int]]:
    """The leaders of each topic's partitions in a metadata response; -1 where there is none (yet)."""
    body.int32()
    for _ in range(body.int32()):
        body.int32(), body.string(), body.int32(), body.string()
    body.string(), body.int32()
    found: dict[str, list[int]] = {}
    for _ in range(body.int32()):
        error, name = body.int16(), body.string() or ""
        body.int8()
        partitions = []
        for _ in range(body.int32()):
            failed = body.int16()
            body.int32()
            leader = body.int32()
            partitions.append(-1 if failed else leader)
            for _ in range(2):
                body.skip(4 * max(body.int32(), 0))
        found[name] = [] if error else partitions
    return found


def create_topics(topics: dict[str, int], configs: dict[str, str] | None = None) -> bytes:
    pairs = [string(key) + string(value) for key, value in (configs or {}).items()]
    wanted = [
        string(name) + struct.pack(">ih", partitions, 1) + array([]) + array(pairs)
        for name, partitions in topics.items()
    ]
    return array(wanted) + struct.pack(">i?", 120_000, False)


def delete_topics(topics: list[str]) -> bytes:
    return array([string(topic) for topic in topics]) + struct.pack(">i", 120_000)


def topic_errors(body: Reader, messages: bool) -> dict[str, int]:
    """The errors by topic of a CreateTopics (with messages) or DeleteTopics response."""
    body.int32()
    errors = {}
    for _ in range(body.int32()):
        name = body.string() or ""
        errors[name] = body.int16()
        if messages:
            body.string()
    return errors


def find_coordinator(group: str) -> bytes:
    return string(group) + b"\x00"


def coordinator_port(body: Reader) -> int:
    """The port in a FindCoordinator response, after its error."""
    body.string(), body.int32(), body.string()
    return body.int32()


def join_group(group: str, member: str, topic: str, session_ms: int = 30_000) -> bytes:
    subscription = struct.pack(">h", 0) + array([string(topic)]) + blob(None)
    timeouts = struct.pack(">ii", session_ms, 60_000)
    protocols = array([string("range") + blob(subscription)])
    return string(group) + timeouts + string(member) + string(None) + string("consumer") + protocols


@dataclass(slots=True)
class Joined:
    error: int
    generation: int
    leader: str
    member: str
    members: list[str]


def joined(body: Reader) -> Joined:
    body.int32()
    error, generation = body.int16(), body.int32()
    body.string()
    leader, member = body.string() or "", body.string() or ""
    members = []
    for _ in range(body.int32()):
        members.append(body.string() or "")
        body.string(), body.blob()
    return Joined(error, generation, leader, member, members)


def sync_group(group: str, generation: int, member: str, assignments: dict[str, bytes]) -> bytes:
    given = array([string(who) + blob(what) for who, what in assignments.items()])
    return string(group) + struct.pack(">i", generation) + string(member) + string(None) + given


def assignment(topic: str, partitions: list[int]) -> bytes:
    numbers = array([struct.pack(">i", number) for number in partitions])
    return struct.pack(">h", 0) + array([string(topic) + numbers]) + blob(None)


def heartbeat(group: str, generation: int, member: str) -> bytes:
    return string(group) + struct.pack(">i", generation) + string(member) + string(None)


def leave_group(group: str, member: str) -> bytes:
    return string(group) + string(member)


def offset_commit(group: str, generation: int, member: str, topic: str, offsets: dict[int, int]) -> bytes:
    parts = [struct.pack(">iq", number, offset) + string("") for number, offset in offsets.items()]
    return (
        string(group) + struct.pack(">i", generation) + string(member) + array([string(topic) + array(parts)])
    )


def commit_error(body: Reader) -> int:
    """The first error of an OffsetCommit response."""
    body.int32()
    for _ in range(body.int32()):
        body.string()
        for _ in range(body.int32()):
            body.int32()
            error = body.int16()
            if error:
                return error
    return NONE


def throttled_error(body: Reader) -> int:
    """The error of a response that begins with the throttle time and the error."""
    body.int32()
    return body.int16()


class Connection:
    """One blocking connection: a request, then its response."""

    def __init__(self, host: str, port: int, timeout: float = 180.0) -> None:
        self.socket = socket.create_connection((host, port), timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, api: tuple[int, int], body: bytes) -> Reader:
        self.socket.sendall(frame(api, body))
        size = struct.unpack(">i", self.exactly(4))[0]
        return Reader(self.exactly(size), 4)

    def exactly(self, size: int) -> bytearray:
        """The next ``size`` bytes; ConnectionError when the broker closes before."""
        data = bytearray(size)
        self.fill(memoryview(data))
        return data

    def fill(self, view: memoryview) -> None:
        while view:
            count = self.socket.recv_into(view)
            if not count:
                raise ConnectionError("the broker closed the connection")
            view = view[count:]

    def close(self) -> None:
        self.socket.close()

    def create(self, topic: str, partitions: int, configs: dict[str, str] | None = None) -> None:
        """Create a topic and wait until each of its partitions has a leader."""
        self.create_all({topic: partitions}, configs)

    def create_all(self, topics: dict[str, int], configs: dict[str, str] | None = None) -> None:
        errors = topic_errors(self.call(CREATE_TOPICS, create_topics(topics, configs)), messages=True)
        bad = {name: error for name, error in errors.items() if error}
        if bad:
            raise RuntimeError(f"could not create topics: {bad}")
        while not self.led(topics):
            time.sleep(0.02)

    def led(self, topics: dict[str, int]) -> bool:
        """Whether every partition of these topics has a leader by the broker's metadata."""
        found = leaders(self.call(METADATA, metadata(list(topics), create=False)))
        return all(
            len(found.get(name, [])) == count and min(found[name]) >= 0 for name, count in topics.items()
        )

    def delete(self, topic: str) -> None:
        self.call(DELETE_TOPICS, delete_topics([topic]))
