from typing_extensions import Buffer

INTERFACE: int

def scan(
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
