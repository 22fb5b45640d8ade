"""Reads a range as Arrow record batches, from segment files where possible, otherwise over the wire."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .errors import CorruptData, ReadError

if TYPE_CHECKING:
    import pyarrow as pa

    from .decoder import Decoder
    from .errors import CorruptBatch
    from .ranges import OffsetRange, ReadSettings

log = logging.getLogger("ottla_pipeline")


def read(
    range: OffsetRange, settings: ReadSettings, set_aside: Callable[[CorruptBatch], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """The records of ``range`` that a reader of this isolation level sees.

    The columns are ``settings.columns``, with Spark's types. With ``on_corrupt="deadletter"``, ``set_aside`` gets
    batches that can't be decoded. Closing the iterator early stops the background work. Raises CorruptData, DataLoss
    (logged instead if ``fail_on_data_loss`` is off), and ReadError otherwise.
    """
    if settings.on_corrupt == "deadletter" and set_aside is None:
        raise ReadError("onCorrupt=deadletter needs a function that takes the corrupt batches")
    if range.start == range.end:
        return
    from .decoder import Decoder
    from .engine import Engine
    from .wire import read_wire

    engine = Engine(range, settings.columns)
    decoder = Decoder(range, settings, engine, set_aside if settings.on_corrupt == "deadletter" else None)
    if settings.segments == "always" or (settings.segments == "auto" and range.segments is not None):
        yield from _from_segments(range, settings, decoder)
    if decoder.position < range.end and settings.segments != "always":
        for chunk in read_wire(range, settings, decoder.position, decoder.lost):
            yield from decoder.rows(chunk)


def _from_segments(range: OffsetRange, settings: ReadSettings, decoder: Decoder) -> Iterator[pa.RecordBatch]:
    """Rows from segment files; unless ``segments`` is ``always``, it stops where they can't be read further."""
    from .folder import NotHere, Unsure
    from .segments import read_segments

    alone = settings.segments == "always"
    try:
        for chunk in read_segments(range, settings, range.start, decoder.lost):
            yield from decoder.rows(chunk, sure=alone)
        decoder.done()
    except (NotHere, Unsure) as why:
        if alone:
            raise ReadError(
                f"{range.topic}-{range.partition}: segment files can't be read at offset {decoder.position}: {why};"
                " segments=auto reads over the wire where they can't"
            ) from why
        log.log(
            logging.DEBUG if isinstance(why, NotHere) else logging.INFO, "%s", _going_on(range, decoder, why)
        )
    except CorruptData as error:
        # The broker may be truncating the file at this moment, and knows what its log has.
        if alone:
            raise
        log.warning("%s", _going_on(range, decoder, error))


def _going_on(range: OffsetRange, decoder: Decoder, why: Exception) -> str:
    return f"{range.topic}-{range.partition} is read over the wire from offset {decoder.position} on: {why}"
