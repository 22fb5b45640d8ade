from typing import final

from typing_extensions import Buffer

INTERFACE: int

def scan(
    data: Buffer,
    start: int,
    end: int,
    first: int,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    keys: bool,
    /,
) -> tuple[int, int, int, int, int, int, int, list[tuple[int, int, int]]]: ...
def list_batches(
    data: Buffer, at: int, stop: int, expected: int, until: int, table: Buffer, /
) -> tuple[int, int, int, int]:
    """Write the headers of batches from ``at`` on to ``table``, 11 numbers each, up to the one that reaches ``until``.

    ``expected`` is the least offset that the next batch may begin with. Returns the number of rows, the place and the
    expected offset after them, and 0 if a batch is cut off or the table is full, 1 for bytes that can't be a batch, 2
    for offsets that go back.
    """

def decode(
    data: Buffer,
    pieces: Buffer,
    first: int,
    until: int,
    max_headers: int,
    numbers: Buffer,
    keys: tuple[Buffer, Buffer, Buffer],
    values: tuple[Buffer, Buffer, Buffer],
    /,
) -> tuple[int, int, int, int] | None:
    """Decode the records with offsets from ``first`` to ``until`` (exclusive).

    ``pieces`` has 6 numbers a batch: from, to, number of records, base offset, base timestamp, and whether that is the
    append time of all. ``numbers`` has 3 columns with room for all records: offset, timestamp, place of the headers or
    -1. Keys and values are as for ``gather``; without edges they aren't decoded. Returns the number of rows, of keys
    and of values that are null, and of headers; None if a record is unusual or wrong.
    """

def headers(data: Buffer, places: Buffer, edges: Buffer, pairs: Buffer, /) -> None:
    """Find the headers at the places that ``decode`` found: ``edges`` gets where a row's begin, as int32.

    ``pairs`` has 4 columns, with room for exactly all headers: place and size of name and value.
    """

def gather(data: Buffer, starts: Buffer, sizes: Buffer, edges: Buffer, out: Buffer, valid: Buffer, /) -> int:
    """Copy fields side by side to ``out``, as Arrow has them, with ``edges`` as int32 and bits of those not null.

    Returns how many are null. Raises ValueError if they have more than 2 GiB.
    """

def hash_fields(data: Buffer, edges: Buffer, hashes: Buffer, /) -> None:
    """The hash of each field between two edges, as in the pipeline's ``hashing``."""

def plain_batches(data: Buffer, start: int, magic: int, first_offset: int, /) -> tuple[bytes, int]: ...
def body_as_messages(
    data: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int,
    is_append_time: bool,
    magic: int,
    is_relative: bool,
    /,
) -> tuple[bytes, int, int] | None: ...
def messages_as_records(
    data: Buffer, magic: int, refused: int, /
) -> tuple[bytearray, int, int, int, int, int] | None: ...
def scan_segment(
    data: Buffer,
    start: int,
    position: int,
    next_offset: int,
    highest: int,
    interval: int,
    indexed: int,
    max_timestamp: int,
    max_timestamp_offset: int,
    epoch: int,
    /,
) -> tuple[int, int, int, int, int, int, bytes, bytes]: ...

@final
class Walk:
    def __new__(
        cls,
        first: int,
        count: int,
        base_timestamp: int,
        earliest: int,
        latest: int,
        keys: bool,
        finds: bool,
        since_delta: int,
        since_timestamp: int,
        /,
    ) -> Walk: ...
    def feed(self, data: Buffer, start: int, end: int, /) -> bool: ...
    def result(self) -> tuple[int, int, int, int, int, int, int, list[tuple[int, int, int]]]: ...
    def found(self) -> tuple[int, int] | None: ...
    def newest(self) -> tuple[int, int] | None: ...

@final
class Renumber:
    def __new__(cls) -> Renumber: ...
    def feed(self, data: Buffer, start: int, end: int, /) -> bytes: ...

class OffsetMap:
    latest_offset: int
    slots: int

    def __init__(self, most_slots: int, slots: int, load_factor: float, secret: bytes, /) -> None: ...
    def put(self, key: bytes, offset: int, /) -> bool: ...
    def get(self, key: bytes, /) -> int: ...
    def hash(self, key: bytes, /) -> tuple[int, int]: ...
    def seen_up_to(self, offset: int, /) -> None: ...
    def read_keys(self, data: Buffer, start: int, first_dirty: int, /) -> tuple[int, int]: ...
    def read_body(self, body: Buffer, count: int, base_offset: int, first_dirty: int, /) -> int: ...
    def filter(
        self,
        data: Buffer,
        start: int,
        now_ms: int,
        delete_retention_ms: int,
        round_end: int,
        interval: int,
        last_offsets: Buffer,
        /,
    ) -> tuple[int, int, int, int, int, bytes, bytes | None]: ...
    def filter_body(
        self,
        body: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        tombstones_go: bool,
        horizon: int,
        /,
    ) -> tuple[int, int, int, bool, bytes] | None: ...
    def __len__(self) -> int: ...
