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
