from typing_extensions import Buffer

INTERFACE: int

def plain(data: Buffer, start: int, magic: int, first_offset: int, /) -> tuple[bytes, int]: ...
def body(
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
def records(
    data: Buffer, magic: int, refused: int, /
) -> tuple[bytearray, int, int, int, int, int] | None: ...
