"""A range as Arrow record batches, read the way that the settings and the place allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .errors import ReadError

if TYPE_CHECKING:
    import pyarrow as pa

    from .errors import CorruptBatch
    from .ranges import Range, ReadSettings


def read(
    range: Range, settings: ReadSettings, set_aside: Callable[[CorruptBatch], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of ``range``: none outside of it, and all in it that a reader of this isolation level is to see.

    The columns are ``settings.wanted``, of Spark's types. With ``on_corrupt="deadletter"`` batches that can't be
    decoded are given to ``set_aside`` instead. Closing the iterator early ends what runs in the background. Raises
    CorruptData, DataLoss (unless ``fail_on_data_loss`` is off: then it is logged), ReadError for everything else.
    """
    if settings.on_corrupt == "deadletter" and set_aside is None:
        raise ReadError("onCorrupt=deadletter needs somebody to give the corrupt batches to")
    if range.start == range.end:
        return
    from .decoder import Decoder
    from .engines import engine_for
    from .wire import read_wire

    engine = engine_for(range, settings.wanted)
    decoder = Decoder(range, settings, engine, set_aside if settings.on_corrupt == "deadletter" else None)
    for found, aborted in read_wire(range, settings, range.start, engine.walk, decoder.lost):
        yield from decoder.rows(found, aborted)
