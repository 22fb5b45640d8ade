"""Generates, for one version of a message, the function that writes it.

The generated function is one piece, like the decoder's: ``w`` is the bytearray under construction, ``parts`` the
finished pieces before it. Consecutive fields of fixed size, with the length that follows them, are one ``pack``, which
also checks the range of numbers.

A *sliced* writer is a generator that yields after every ``SLICE`` elements.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct as Packer
from struct import error as StructError
from struct import pack
from typing import Any

from .decoding import SLICE
from .diagnosis import fault
from .errors import LocalProtocolError
from .fields import Struct
from .layout import ARRAY, FIXED, RECORDS, STRING, STRUCT, FieldLayout, Source, WireType, field_layouts
from .primitives import MAX_STRING, SMALL, array_packers, uvarint

Encoder = Callable[[Any], list[Any]]
SlicedEncoder = Callable[[Any], Generator[None, None, list[Any]]]

COPIED = 4096
"""Record sets of fewer bytes are copied into the message; larger ones stay a separate piece."""

_ERROR_MESSAGE = "error_message"
_CUT = "…".encode()


def compile_encoder(cls: type[Struct], version: int, flexible: bool) -> Encoder:
    """Compile the writer of ``version``: ``message -> pieces``; see ``Message.encode_parts``."""
    encoder: Encoder = _compiled(cls, version, flexible, sliced=False)
    return encoder


def compile_sliced_encoder(cls: type[Struct], version: int, flexible: bool) -> SlicedEncoder:
    """Compile the sliced writer of ``version``, whose generator returns the pieces."""
    encoder: SlicedEncoder = _compiled(cls, version, flexible, sliced=True)
    return encoder


def _compiled(cls: type[Struct], version: int, flexible: bool, *, sliced: bool) -> Any:
    scope: dict[str, Any] = {
        "pack": pack,
        "int32": Packer(">i").pack,
        "uvarint": uvarint,
        "error_text": _error_text,
        "too_long": _too_long,
        "not_carried": _not_carried,
        "refuse": _refuse,
        "bytes_like": frozenset({bytes, bytearray, memoryview}),
        "LocalProtocolError": LocalProtocolError,
        "StructError": StructError,
    }
    exec(encoder_source(cls, version, flexible, scope, sliced=sliced), scope)
    return scope["encode"]


def encoder_source(
    cls: type[Struct], version: int, flexible: bool, scope: dict[str, Any], *, sliced: bool = False
) -> str:
    """Generate the writer's source, and put the objects that it names into ``scope``."""
    generator = _Generator(version, flexible, scope, sliced)
    generator.struct(cls, "message")
    generator.flush()
    return "\n".join(
        [
            "def encode(message):",
            *([" made = 0", " if message is None:", "  yield"] if sliced else []),
            " parts = []",
            " w = bytearray()",
            " try:",
            generator.source.text(),
            " except LocalProtocolError as error:",
            f"  raise LocalProtocolError(f'{cls.__name__} v{version}: {{error}}') from None",
            " except (AttributeError, OverflowError, StructError, TypeError, ValueError) as error:",
            f"  refuse(message, {version}, error)",
            " if w:",
            "  parts.append(w)",
            " return parts",
            "",
        ]
    )


class _Generator:
    """Walks the declaration and writes source; ``run`` holds pending writes of fixed size."""

    def __init__(self, version: int, flexible: bool, scope: dict[str, Any], sliced: bool) -> None:
        self.sliced = sliced
        self.version = version
        self.flexible = flexible
        self.source = Source(2, scope)
        self.line = self.source.line
        self.run: list[tuple[str, str]] = []

    def struct(self, cls: type[Struct], owner: str) -> None:
        """Write the fields of ``owner``, a ``cls``. A run at the end stays pending."""
        tagged = []
        for layout in field_layouts(cls, self.version):
            name = f"{owner}.{layout.field.name}"
            if not layout.present:
                if not layout.field.ignorable:
                    self.line(f"if {self.is_set(layout, name)}:")
                    self.line(f" raise not_carried({layout.field.name!r})")
            elif layout.field.tag is not None:
                tagged.append((layout, name))
            else:
                self.value(layout.wire_type, layout.nullable, name, layout.field.name)
        if self.flexible:
            self.tagged_fields(tagged)

    def is_set(self, layout: FieldLayout, name: str) -> str:
        """Return an expression that is true if the field differs from its default."""
        declared = layout.field
        if layout.wire_type.kind == ARRAY and declared.default_factory is not None:
            return f"{name} is None or {name}" if declared.annotation.endswith("None") else name
        if layout.wire_type.kind == STRUCT and declared.default_factory is not None:
            inner = field_layouts(layout.wire_type.struct, self.version)
            parts = [self.is_set(each, f"{name}.{each.field.name}") for each in inner]
            return " or ".join([f"{name} is None", *parts] if layout.nullable else parts)
        if declared.default is None:
            return f"{name} is not None"
        return f"{name} != {declared.default!r}"

    def flush(self) -> None:
        """Write the pending values as one ``pack``."""
        if self.run:
            self.line(f"w += {self.packed(self.run)}")
            self.run.clear()

    def packed(self, run: list[tuple[str, str]]) -> str:
        codes = "".join(code for code, _ in run)
        if codes == "x":
            return r"b'\x00'"
        values = ", ".join(value for _, value in run if value)
        packer = self.source.bind("pack", codes, Packer(">" + codes).pack)
        return f"{packer}({values})"

    def value(self, wire_type: WireType, nullable: bool, name: str, label: str) -> None:
        """Write one value. A run at its end stays pending."""
        if wire_type.kind == FIXED:
            if wire_type.code == "16s":
                self.line(f"if len({name}) != 16:")
                self.line(f" raise LocalProtocolError('{label} is not 16 bytes')")
            self.run.append((wire_type.code, name))
        elif wire_type.kind == STRUCT:
            self.nested(wire_type, nullable, name)
        elif wire_type.kind == ARRAY:
            self.array(wire_type.element, nullable, name, label)
        elif wire_type.kind == RECORDS:
            self.records(nullable, name, label)
        else:
            self.blob(wire_type, nullable, name, label)

    def nested(self, wire_type: WireType, nullable: bool, name: str, *, tagged: bool = False) -> None:
        """Write a struct. A byte before a nullable one is 1, or for null -1; in a tagged field 0."""
        inner = self.source.fresh("o")
        if not nullable:
            self.line(f"{inner} = {name}")
            self.struct(wire_type.struct, inner)
            return
        self.flush()
        self.line(f"{inner} = {name}")
        self.line(f"if {inner} is None:")
        self.line(" w += b'\\x00'" if tagged else " w += b'\\xff'")
        self.line("else:")
        self.source.depth += 1
        self.line("w += b'\\x01'")
        self.struct(wire_type.struct, inner)
        self.flush()
        self.source.depth -= 1

    def blob(self, wire_type: WireType, nullable: bool, name: str, label: str) -> None:
        """Write a string or bytes."""
        v, n = self.source.fresh("v"), self.source.fresh("n")
        encoded = v if nullable else name
        if wire_type.kind == STRING:
            is_for_people = label.endswith(_ERROR_MESSAGE)
            encoded = f"error_text({encoded})" if is_for_people else f"{encoded}.encode()"
        if nullable:
            self.line(f"{v} = {name}")
            self.line(f"if {v} is None:")
            self.line(f" {v} = b''")
            self.line(f" {n} = -1")
            self.line("else:")
            if encoded != v:
                self.line(f" {v} = {encoded}")
            self.line(f" {n} = len({v})")
        else:
            self.line(f"{v} = {encoded}")
            self.line(f"{n} = len({v})")
        self.length(wire_type.kind, n, label)
        self.line(f"w += {v}")

    def records(self, nullable: bool, name: str, label: str) -> None:
        v, n = self.source.fresh("v"), self.source.fresh("n")
        self.line(f"{v} = {name}")
        if nullable:
            self.line(f"{n} = -1 if {v} is None else len({v})")
        else:
            self.line(f"{n} = len({v})")
        self.length(RECORDS, n, label)
        self.line(f"if {n} > 0:")
        self.line(f" if {n} < {COPIED} and {v}.__class__ in bytes_like:")
        self.line(f"  w += {v}")
        self.line(" else:")
        self.line("  parts.append(w)")
        self.line(f"  parts.append({v})")
        self.line("  w = bytearray()")

    def length(self, kind: str, n: str, label: str) -> None:
        """Write the length ``n`` (-1 for null) after the pending values."""
        if not self.flexible:
            self.run.append(("h" if kind == STRING else "i", n))
            self.flush()
            return
        self.line(f"if {n} < 127:")
        self.line(f" w += {self.packed([*self.run, ('B', n + ' + 1')])}")
        self.line("else:")
        if kind == STRING:
            self.line(f" if {n} > {MAX_STRING}:")
            self.line(f"  raise too_long({label!r}, {n})")
        if self.run:
            self.line(f" w += {self.packed(self.run)}")
        self.line(f" w += uvarint({n} + 1)")
        self.run.clear()

    def array(self, element: WireType, nullable: bool, name: str, label: str) -> None:
        v, n = self.source.fresh("v"), self.source.fresh("n")
        self.line(f"{v} = {name}")
        if element.kind == FIXED and len(element.code) == 1:
            self.flush()
            self.numbers(element.code, nullable, v, n)
            return
        if nullable:
            self.line(f"if {v} is None:")
            self.line(f" {v} = ()")
            self.line(f" {n} = -1")
            self.line("else:")
            self.line(f" {n} = len({v})")
        else:
            self.line(f"{n} = len({v})")
        self.length(ARRAY, n, label)
        item = self.source.fresh("o")
        self.line(f"for {item} in {v}:")
        self.source.depth += 1
        if element.kind == STRUCT:
            self.struct(element.struct, item)
        else:
            self.value(element, False, item, label)
        self.flush()
        if self.sliced:
            self.line("made += 1")
            self.line(f"if not made % {SLICE}:")
            self.line(" yield")
        self.source.depth -= 1

    def numbers(self, code: str, nullable: bool, v: str, n: str) -> None:
        """Write an array of numbers and its length as one ``pack``."""
        if nullable:
            self.line(f"if {v} is None:")
            self.line(" w += " + (r"b'\x00'" if self.flexible else r"b'\xff\xff\xff\xff'"))
            self.line("else:")
            self.source.depth += 1
        prefix, added = ("B", " + 1") if self.flexible else ("i", "")
        packers = self.source.bind("packers", prefix + code, array_packers(prefix, code))
        self.line(f"{n} = len({v})")
        self.line(f"if {n} < {SMALL}:")
        self.line(f" w += {packers}[{n}]({n}{added}, *{v})")
        self.line("else:")
        self.line(f" w += {'uvarint' if self.flexible else 'int32'}({n}{added})")
        self.line(f" w += pack(f'>{{{n}}}{code}', *{v})")
        if nullable:
            self.source.depth -= 1

    def tagged_fields(self, known: list[tuple[FieldLayout, str]]) -> None:
        """Write the tagged fields that differ from their defaults, in the order of their tags."""
        if not known:
            self.run.append(("x", ""))
            return
        self.flush()
        count, outer = self.source.fresh("n"), self.source.fresh("w")
        known = sorted(known, key=lambda item: item[0].field.tag or 0)
        self.line(f"{count} = 0")
        for layout, name in known:
            self.line(f"if {self.is_set(layout, name)}:")
            self.line(f" {count} += 1")
        self.line(f"w.append({count})")
        self.line(f"if {count}:")
        self.source.depth += 1
        for layout, name in known:
            self.line(f"if {self.is_set(layout, name)}:")
            self.source.depth += 1
            self.line(f"{outer} = w")
            self.line("w = bytearray()")
            if layout.wire_type.kind == STRUCT:
                self.nested(layout.wire_type, layout.nullable, name, tagged=True)
            else:
                self.value(layout.wire_type, layout.nullable, name, layout.field.name)
            self.flush()
            self.line(f"{outer} += uvarint({layout.field.tag})")
            self.line(f"{outer} += uvarint(len(w))")
            self.line(f"{outer} += w")
            self.line(f"w = {outer}")
            self.source.depth -= 1
        self.source.depth -= 1


def _error_text(text: str) -> bytes:
    """Encode an error's text, shortened to what a string holds: it may quote values that are as long themselves."""
    data = text.encode()
    if len(data) <= MAX_STRING:
        return data
    return data[: MAX_STRING - len(_CUT)].decode(errors="ignore").encode() + _CUT


def _too_long(name: str, length: int) -> LocalProtocolError:
    return LocalProtocolError(f"{name} is {length} bytes long; a string holds {MAX_STRING}")


def _not_carried(name: str) -> LocalProtocolError:
    return LocalProtocolError(f"{name} is set, but this version has no such field")


def _refuse(message: Struct, version: int, error: Exception) -> None:
    raise LocalProtocolError(
        f"{type(message).__name__} v{version}: {fault(message, version) or error}"
    ) from error
