from typing_extensions import Buffer

INTERFACE: int

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
