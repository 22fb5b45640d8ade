"""Converted records on their way to an old client: Kafka's ``LazyDownConversionRecordsSend``."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.network.streamed_part import StreamedPart
from ottla_protocol.records.batch import HEADER_SIZE

if TYPE_CHECKING:
    import asyncio

    from ottla_broker.fetch.conversions import Conversions
    from ottla_broker.log.down_conversion import DownConversion

_log = get_logger()

# What fills up the announced size looks like a message that the fetch has cut off, which every reader leaves out:
# offset int64 -1, size int32, more than there is.
_OVERFLOW: Final = Struct(">qi")
_PADDING_BYTES: Final = 128 * 1024


class ConvertedRecords(StreamedPart):
    """Exactly ``size`` bytes of a conversion, one piece of which is made while another is being sent.

    ``piece`` is the first one; without it the conversion begins from the start.
    """

    __slots__ = (
        "_client",
        "_conversion",
        "_conversions",
        "_is_padding",
        "_left",
        "_on_ready",
        "_piece",
        "_running",
    )

    def __init__(
        self,
        conversions: Conversions,
        client: Hashable,
        conversion: DownConversion,
        size: int,
        piece: bytes | None,
    ) -> None:
        self._client = client
        self._conversions = conversions
        self._conversion = conversion
        self._left = size
        self._piece = piece
        self._running: asyncio.Future[bytes] | None = None
        self._on_ready: Callable[[], None] | None = None
        self._is_padding = False

    def __len__(self) -> int:
        return self._left

    def take(self, on_ready: Callable[[], None]) -> bytes | memoryview | None:
        if self._is_padding:
            return self._padding(b"")
        piece, self._piece = self._piece, None
        if piece is None:
            self._on_ready = on_ready
            if self._running is None:
                self._convert()
            return None
        if not piece:
            self._is_padding = True
            return self._padding(_OVERFLOW.pack(-1, max(self._left, HEADER_SIZE) + 1))
        if len(piece) >= self._left:
            cut = memoryview(piece)[: self._left]
            self._left = 0
            return cut
        self._left -= len(piece)
        self._convert()
        return piece

    def close(self) -> None:
        self._on_ready = None
        if self._running is not None:
            self._running.cancel()

    def _convert(self) -> None:
        self._running = self._conversions.run_for_consumer(
            self._client, self._conversion.following, self._conversions.pause
        )
        self._running.add_done_callback(self._converted)

    def _converted(self, future: asyncio.Future[bytes]) -> None:
        self._running = None
        if future.cancelled():
            return
        error = future.exception()
        if error is None:
            self._piece = future.result()
        else:
            # Padding ends the answer; the consumer's next fetch fails with an error.
            _log.warning("records were not converted for an old client", why=str(error))
            self._piece = b""
        on_ready, self._on_ready = self._on_ready, None
        if on_ready is not None:
            on_ready()

    def _padding(self, head: bytes) -> bytes:
        piece = head.ljust(_PADDING_BYTES, b"\0")[: self._left]
        self._left -= len(piece)
        return piece
