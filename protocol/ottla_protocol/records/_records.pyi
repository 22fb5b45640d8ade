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
