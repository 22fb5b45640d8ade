"""Declares the fields of a struct: ``field``, ``Struct`` and version ranges. ``schema`` adds messages and types."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

NEWEST = 0x7FFF
"""The upper end of an open version range."""

NONE = (NEWEST, -1)
"""The empty version range."""

_ranges: dict[str, tuple[int, int]] = {"none": NONE, "0+": (0, NEWEST)}


def version_range(text: str) -> tuple[int, int]:
    """Return the first and last version of ``"3"``, ``"3+"``, ``"3-5"`` or ``"none"``."""
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
    """A field's declaration, made by ``field``."""

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

    Args:
        versions: the versions that carry the field; in others it decodes to its default.
        default_factory: makes the default of a list or a struct.
        nullable: the versions that allow null, for an annotation with ``| None``.
        tag: the number of a tagged field (KIP-482), which is written only if it differs from its default.
        ignorable: drop a value that a version can't carry, instead of raising LocalProtocolError.
    """
    return Field(versions, default, default_factory, nullable, tag, ignorable)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _StructType(type):
    """Turns annotated fields into slots, and collects their declarations in ``FIELDS``."""

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
    """A group of fields in a message. The constructor takes each field as a keyword argument with a default."""

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


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    """Compile ``__init__`` of ``cls``, with one keyword argument per field."""
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
