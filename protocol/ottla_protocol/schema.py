"""One class for all versions of a message, declared field by field and compiled on first use.

::

    class MetadataResponseBroker(Struct):
        node_id: Int32 = field(default=0)
        rack: String | None = field("1+", default=None, ignorable=True)

    class MetadataResponse(Message, key=ApiKey.METADATA, versions="0-12", flexible="9+"):
        brokers: list[MetadataResponseBroker] = field(default_factory=list)

    MetadataResponse.decode(body, version=12).brokers

A declaration is data. The code that reads or writes one version of a message is generated on first use of that version
(``decoding``, ``encoding``). So a module of messages is cheap to import, and an unused version costs nothing.

Annotations must be strings (``from __future__ import annotations``). A ``Struct`` that they name lives in the same
module.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Annotated, Any, ClassVar, Self, TypeAlias

from .api_keys import ApiKey
from .errors import LocalProtocolError, ProtocolError
from .fields import NEWEST, Struct, field, version_range
from .primitives import Buffer

__all__ = [
    "ZERO_UUID",
    "Bool",
    "Bytes",
    "Float64",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "Message",
    "Records",
    "String",
    "Struct",
    "UInt16",
    "UInt32",
    "Uuid",
    "field",
    "version_range",
]

Int8: TypeAlias = Annotated[int, "int8"]
Int16: TypeAlias = Annotated[int, "int16"]
UInt16: TypeAlias = Annotated[int, "uint16"]
Int32: TypeAlias = Annotated[int, "int32"]
UInt32: TypeAlias = Annotated[int, "uint32"]
Int64: TypeAlias = Annotated[int, "int64"]
Float64: TypeAlias = Annotated[float, "float64"]
Bool: TypeAlias = Annotated[bool, "one byte"]
String: TypeAlias = Annotated[str, "UTF-8, at most 32767 bytes"]
Bytes: TypeAlias = Annotated[bytes, "an opaque blob; decoding copies it"]
Uuid: TypeAlias = Annotated[bytes, "16 bytes, big-endian"]
Records: TypeAlias = Annotated[
    Any, "record batches: a memoryview when decoded, anything with a len() to encode"
]

ZERO_UUID = bytes(16)
"""Kafka's value for a missing id."""


class Message(Struct):
    """A request, a response, or data with its own versions.

    Class arguments: ``key`` (the API, or None for data), ``versions`` (all versions), ``flexible`` (the versions with
    compact lengths and tagged fields, KIP-482).
    """

    API_KEY: ClassVar[ApiKey | None]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int | None]
    _decoders: ClassVar[dict[int, Callable[[Buffer, int], tuple[Any, int]]]]
    _encoders: ClassVar[dict[int, Callable[[Any], list[Any]]]]
    _counted_decoders: ClassVar[dict[int, Callable[[Buffer, int, int], tuple[Any, int]]]]
    _sliced_decoders: ClassVar[
        dict[int, Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]]
    ]
    _sliced_encoders: ClassVar[dict[int, Callable[[Any], Generator[None, None, list[Any]]]]]

    def __init_subclass__(
        cls, *, key: ApiKey | None = None, versions: str = "0+", flexible: str = "none", **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        cls.API_KEY = key
        cls.VERSIONS = version_range(versions)
        first_flexible = version_range(flexible)[0]
        cls.FLEXIBLE = None if first_flexible == NEWEST else first_flexible
        cls._decoders = {}
        cls._encoders = {}
        cls._counted_decoders = {}
        cls._sliced_decoders = {}
        cls._sliced_encoders = {}

    @classmethod
    def _is_flexible(cls, version: int) -> bool:
        return cls.FLEXIBLE is not None and version >= cls.FLEXIBLE

    @classmethod
    def decode(cls, data: Buffer, version: int, offset: int = 0) -> Self:
        """Decode the message at ``offset``, ignoring bytes after it, as Kafka does.

        ``Records`` are views of ``data``; everything else is copied. Uses memory in proportion to the size of the data.
        Raises ProtocolError if the bytes are not such a message.
        """
        return (cls._decoders.get(version) or cls.decoder(version))(data, offset)[0]

    @classmethod
    def decode_from(cls, data: Buffer, version: int, offset: int = 0) -> tuple[Self, int]:
        """Like ``decode``, but also return the position after the message."""
        return (cls._decoders.get(version) or cls.decoder(version))(data, offset)

    @classmethod
    def decoder(cls, version: int) -> Callable[[Buffer, int], tuple[Self, int]]:
        """``decode_from`` for one version, to be called with data and offset."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
                raise ProtocolError(f"{cls.__name__} has no version {version}")
            from .decoding import compile_decoder

            decoder = cls._decoders[version] = compile_decoder(cls, version, cls._is_flexible(version))
        return decoder

    @classmethod
    def decode_counted(cls, data: Buffer, version: int, offset: int, memory: int) -> Self:
        """Like ``decode``, for a large message of a stranger.

        ``memory``: how many bytes its elements may take, about. Raises ProtocolError if they would take more, before
        they are made.
        """
        decoder = cls._counted_decoders.get(version)
        if decoder is None:
            from .decoding import compile_counted_decoder

            decoder = compile_counted_decoder(cls, version, cls._is_flexible(version))
            cls._counted_decoders[version] = decoder
        message: Self = decoder(data, offset, memory)[0]
        return message

    @classmethod
    def decode_in_slices(
        cls, data: Buffer, version: int, offset: int, memory: int
    ) -> Generator[None, None, Self]:
        """Like ``decode_counted``, as a generator that yields after every few hundred elements."""
        decoder = cls._sliced_decoders.get(version)
        if decoder is None:
            from .decoding import compile_sliced_decoder

            decoder = compile_sliced_decoder(cls, version, cls._is_flexible(version))
            cls._sliced_decoders[version] = decoder
        message: Self
        message, _ = yield from decoder(data, offset, memory)
        return message

    def encode_in_slices(self, version: int) -> Generator[None, None, list[Any]]:
        """Like ``encode_parts``, as a generator that yields after every few hundred elements."""
        encoder = self._sliced_encoders.get(version)
        if encoder is None:
            from .encoding import compile_sliced_encoder

            encoder = compile_sliced_encoder(type(self), version, self._is_flexible(version))
            self._sliced_encoders[version] = encoder
        return (yield from encoder(self))

    def encode(self, version: int) -> bytes:
        """Encode the message in ``version``.

        Raises LocalProtocolError for a value out of its type's range, for a null that the version doesn't allow, and
        for a value in a field that the version lacks (unless the field is ignorable).
        """
        parts = self.encode_parts(version)
        if len(parts) == 1:
            return bytes(parts[0])
        try:
            return b"".join(parts)
        except TypeError as error:
            raise LocalProtocolError(f"{type(self).__name__} holds records that are not bytes") from error

    def encode_parts(self, version: int) -> list[Any]:
        """Like ``encode``, but return pieces. Large ``Records``, and any that are not bytes, stay separate objects.

        Such an object only needs ``len()``.
        """
        encoder = self._encoders.get(version)
        if encoder is None:
            if not self.VERSIONS[0] <= version <= self.VERSIONS[1]:
                raise LocalProtocolError(f"{type(self).__name__} has no version {version}")
            from .encoding import compile_encoder

            encoder = self._encoders[version] = compile_encoder(
                type(self), version, self._is_flexible(version)
            )
        return encoder(self)
