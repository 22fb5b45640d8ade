"""One class for all versions of a message, declared field by field and compiled on first use.

::

    class MetadataResponseBroker(Struct):
        node_id: Int32 = field(default=0)
        rack: String | None = field("1+", default=None, ignorable=True)

    class MetadataResponse(Message, key=ApiKey.METADATA, versions="0-12", flexible="9+"):
        brokers: list[MetadataResponseBroker] = field(default_factory=list)

    MetadataResponse.decode(body, version=12).brokers

A declaration is data. What reads and writes one version of one message is generated from it when that
version is first met (``decoding``, ``encoding``), so a module of messages costs little to import and a
version that nobody speaks costs nothing.

Annotations must be strings (``from __future__ import annotations``); a ``Struct`` they name lives in the
same module as the class that names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeAlias, dataclass_transform

from .api_keys import ApiKey
from .errors import LocalProtocolError, ProtocolError
from .primitives import Buffer

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
"""Kafka's way to say that there is no id."""

NEWEST = 0x7FFF
"""The upper end of a version range that is open."""

NONE = (NEWEST, -1)
"""The version range that holds no version."""

_ranges: dict[str, tuple[int, int]] = {"none": NONE, "0+": (0, NEWEST)}


def version_range(text: str) -> tuple[int, int]:
    """First and last version of ``"3"``, ``"3+"``, ``"3-5"`` or ``"none"``."""
    if text not in _ranges:
        first, dash, last = text.partition("-")
        if dash:
            _ranges[text] = (int(first), int(last))
        elif text.endswith("+"):
            _ranges[text] = (int(text[:-1]), NEWEST)
        else:
            _ranges[text] = (int(text), int(text))
    return _ranges[text]


class Field:
    """What is known of a field, other than its value; made by ``field``."""

    __slots__ = (
        "annotation",
        "default",
        "default_factory",
        "ignorable",
        "name",
        "nullable",
        "tag",
        "versions",
    )

    def __init__(
        self,
        versions: str,
        default: object,
        default_factory: Callable[[], object] | None,
        nullable: str,
        tag: int | None,
        ignorable: bool,
    ) -> None:
        self.name = ""
        self.annotation = ""
        self.versions = version_range(versions)
        self.default = default
        self.default_factory = default_factory
        self.nullable = version_range(nullable)
        self.tag = tag
        self.ignorable = ignorable


def field(
    versions: str = "0+",
    *,
    default: object = None,
    default_factory: Callable[[], object] | None = None,
    nullable: str = "0+",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field.

    :param versions: those that carry it; in the others it decodes to its default.
    :param default_factory: what makes the default of a list or a struct.
    :param nullable: for an annotation with ``| None``, the versions in which null may go over the wire.
    :param tag: its number, where it is a tagged field (KIP-482): written only when it is not the default.
    :param ignorable: a value that a version cannot carry is dropped; it is a LocalProtocolError otherwise.
    """
    return Field(versions, default, default_factory, nullable, tag, ignorable)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _StructType(type):
    """Turns annotated fields into slots, and keeps their declarations in ``FIELDS``."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> _StructType:
        fields = []
        for attribute, annotation in namespace.get("__annotations__", {}).items():
            declared = namespace.get(attribute)
            if isinstance(declared, Field):
                del namespace[attribute]
                declared.name = attribute
                declared.annotation = annotation
                fields.append(declared)
            elif not annotation.startswith("ClassVar"):
                raise TypeError(f"{name}.{attribute} is not declared by field()")
        namespace["__slots__"] = tuple(declared.name for declared in fields)
        namespace["FIELDS"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=_StructType):
    """A group of fields inside a message. Fields are keyword arguments, each with its schema's default."""

    FIELDS: ClassVar[tuple[Field, ...]]
    __slots__: ClassVar[tuple[str, ...]]

    if not TYPE_CHECKING:

        def __init__(self, **values):
            cls = type(self)
            cls.__init__ = _compile_init(cls)
            cls.__init__(self, **values)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A request, a response, or data that is versioned by itself.

    Class arguments: ``key`` (the API, None for data), ``versions`` (all that exist), ``flexible`` (those
    with compact lengths and tagged fields, KIP-482).
    """

    API_KEY: ClassVar[ApiKey | None]
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE: ClassVar[int | None]
    _decoders: ClassVar[dict[int, Callable[[Buffer, int], tuple[Any, int]]]]
    _encoders: ClassVar[dict[int, Callable[[Any], list[Any]]]]

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

    @classmethod
    def decode(cls, data: Buffer, version: int, offset: int = 0) -> Self:
        """The message that starts at ``offset``; bytes after it are let be, as Kafka does.

        ``Records`` are views of ``data``; all else is copied out. Raises ProtocolError for bytes that are
        not such a message, and takes no more memory than their number allows.
        """
        return cls.decode_from(data, version, offset)[0]

    @classmethod
    def decode_from(cls, data: Buffer, version: int, offset: int = 0) -> tuple[Self, int]:
        """As ``decode``, with the position after the message."""
        decoder = cls._decoders.get(version)
        if decoder is None:
            if not cls.VERSIONS[0] <= version <= cls.VERSIONS[1]:
                raise ProtocolError(f"{cls.__name__} has no version {version}")
            from .decoding import compile_decoder

            decoder = cls._decoders[version] = compile_decoder(cls, version)
        return decoder(data, offset)

    def encode(self, version: int) -> bytes:
        """The message's bytes in ``version``.

        Raises LocalProtocolError for a value that is out of its type's range, null where the version has no
        null, or set in a field that the version does not have (unless the field is ignorable).
        """
        parts = self.encode_parts(version)
        if len(parts) == 1:
            return bytes(parts[0])
        try:
            return b"".join(parts)
        except TypeError as error:
            raise LocalProtocolError(f"{type(self).__name__} holds records that are not bytes") from error

    def encode_parts(self, version: int) -> list[Any]:
        """As ``encode``, in pieces: large ``Records``, and any that are not bytes, stay the objects they are.

        Of such a value only ``len()`` is asked. Errors as ``encode``.
        """
        encoder = self._encoders.get(version)
        if encoder is None:
            if not self.VERSIONS[0] <= version <= self.VERSIONS[1]:
                raise LocalProtocolError(f"{type(self).__name__} has no version {version}")
            from .encoding import compile_encoder

            encoder = self._encoders[version] = compile_encoder(type(self), version)
        return encoder(self)


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """``__init__`` of ``cls``: one keyword argument a field."""
    unset = object()
    scope: dict[str, Any] = {"unset": unset}
    arguments = []
    lines = []
    for declared in cls.FIELDS:
        name = declared.name
        if declared.default_factory is None:
            arguments.append(f"{name}={declared.default!r}")
            lines.append(f" self.{name} = {name}")
        else:
            scope[f"make_{name}"] = declared.default_factory
            arguments.append(f"{name}=unset")
            lines.append(f" self.{name} = make_{name}() if {name} is unset else {name}")
    star = "*, " if arguments else ""
    source = f"def __init__(self, {star}{', '.join(arguments)}):\n" + ("\n".join(lines) or " pass")
    exec(source, scope)
    init: Callable[..., None] = scope["__init__"]
    return init
