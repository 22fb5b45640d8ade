"""Generates, for one version of a message, the function that reads it.

The generated function is one piece: arrays are loops and nested structs are inlined. ``d`` is the data, ``p`` the
position in it, ``end`` its length. Consecutive fields of fixed size, with the length that follows them, are one
``unpack_from``. That and single-byte reads raise at the end of the data; slices, which Python silently shortens, are
checked. A length is compared with the remaining bytes before anything is allocated.

A *counted* reader is for large messages of strangers: it counts the memory of elements before it makes them.
A *sliced* one does that too, and is a generator that yields after every ``SLICE`` elements.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from struct import Struct as Packer
from struct import calcsize, unpack_from
from struct import error as StructError
from typing import Any, Final

from .errors import ProtocolError
from .fields import Field, Struct
from .layout import (
    ARRAY,
    BYTES,
    FIXED,
    RECORDS,
    STRING,
    STRUCT,
    FieldLayout,
    Source,
    WireType,
    element_cost,
    field_layouts,
    has_records,
    min_size,
)
from .primitives import MAX_STRING, SMALL, Buffer, array_unpackers, finish_uvarint

Decoder = Callable[[Buffer, int], tuple[Any, int]]
CountedDecoder = Callable[[Buffer, int, int], tuple[Any, int]]
SlicedDecoder = Callable[[Buffer, int, int], Generator[None, None, tuple[Any, int]]]

SLICE: Final = 512
"""Elements between two yields of a sliced reader or writer: some tenths of a millisecond."""
_TAG_COST: Final = 16


def compile_sliced_decoder(cls: type[Struct], version: int, flexible: bool) -> SlicedDecoder:
    """Compile the sliced reader of ``version``: ``(data, position, memory) -> generator``.

    ``memory``: how many bytes the elements may take, by :func:`.layout.element_cost`. The generator returns the message
    and the position after it.
    """
    decoder: SlicedDecoder = _compiled(cls, version, flexible, counted=True, sliced=True)
    return decoder


def compile_counted_decoder(cls: type[Struct], version: int, flexible: bool) -> CountedDecoder:
    """Compile the counted reader of ``version``: ``(data, position, memory) -> (message, position after it)``."""
    decoder: CountedDecoder = _compiled(cls, version, flexible, counted=True)
    return decoder


def compile_decoder(cls: type[Struct], version: int, flexible: bool) -> Decoder:
    """Compile the reader of ``version``: ``(data, position) -> (message, position after it)``."""
    decoder: Decoder = _compiled(cls, version, flexible)
    return decoder


def _compiled(
    cls: type[Struct], version: int, flexible: bool, *, counted: bool = False, sliced: bool = False
) -> Any:
    scope: dict[str, Any] = {
        "new": object.__new__,
        "finish_uvarint": finish_uvarint,
        "unpack_from": unpack_from,
        "ProtocolError": ProtocolError,
        "StructError": StructError,
    }
    exec(decoder_source(cls, version, flexible, scope, counted=counted, sliced=sliced), scope)
    return scope["decode"]


def decoder_source(
    cls: type[Struct],
    version: int,
    flexible: bool,
    scope: dict[str, Any],
    *,
    counted: bool = False,
    sliced: bool = False,
) -> str:
    """Generate the reader's source, and put the objects that it names into ``scope``."""
    generator = _Generator(cls, version, flexible, scope, counted, sliced)
    generator.struct(cls, "message")
    generator.flush()
    name = f"{cls.__name__} v{version}"
    lines = ["def decode(d, p, left):" if counted else "def decode(d, p):"]
    if sliced:
        # The yield makes it a generator also where there is no array.
        lines += [" made = 0", " if left < 0:", "  yield"]
    if generator.views:
        lines.append(" view = memoryview(d)")
    else:
        lines += [" if d.__class__ is not bytes:", "  d = bytes(d)"]
    lines += [" end = len(d)", " try:", generator.source.text(), "  return message, p"]
    lines += [
        " except ProtocolError as error:",
        f"  raise ProtocolError(f'{name}: {{error}}') from None",
        " except (IndexError, StructError):",
        f"  raise ProtocolError(f'{name}: cut short, {{end}} bytes are not enough') from None",
        " except UnicodeDecodeError:",
        f"  raise ProtocolError(f'{name}: a string before byte {{e}} is not UTF-8') from None",
    ]
    return "\n".join(lines) + "\n"


class _Generator:
    """Walks the declaration and writes source; ``run`` holds pending reads of fixed size."""

    def __init__(
        self,
        cls: type[Struct],
        version: int,
        flexible: bool,
        scope: dict[str, Any],
        counted: bool,
        sliced: bool,
    ) -> None:
        self.counted = counted
        self.sliced = sliced
        self.version = version
        self.flexible = flexible
        self.views = has_records(cls, version)
        self.source = Source(2, scope)
        self.line = self.source.line
        self.run: list[tuple[str, str]] = []

    def struct(self, cls: type[Struct], target: str) -> None:
        """Create ``target`` as a ``cls`` and read its fields."""
        self.line(f"{target} = new({self.source.bind('C', cls, cls)})")
        tagged = []
        for layout in field_layouts(cls, self.version):
            name = f"{target}.{layout.field.name}"
            if not layout.present:
                self.default(layout.field, name)
            elif layout.field.tag is not None:
                self.default(layout.field, name)
                tagged.append((layout, name))
            else:
                self.value(layout.wire_type, layout.nullable, name, layout.field.name)
        if self.flexible:
            self.tagged_fields(tagged)

    def default(self, declared: Field, target: str) -> None:
        factory = declared.default_factory
        if factory is None:
            self.line(f"{target} = {declared.default!r}")
        elif factory is list:
            self.line(f"{target} = []")
        else:
            self.line(f"{target} = {self.source.bind('make', factory, factory)}()")

    def flush(self) -> None:
        """Write the pending reads as one ``unpack_from``."""
        if not self.run:
            return
        codes = "".join(code for code, _ in self.run)
        targets = ", ".join(target for _, target in self.run)
        self.run.clear()
        if codes == "B":
            self.line(f"{targets} = d[p]")
        else:
            unpack = self.source.bind("unpack", codes, Packer(">" + codes).unpack_from)
            self.line(f"{targets}, = {unpack}(d, p)")
        self.line(f"p += {calcsize('>' + codes)}")

    def value(self, wire_type: WireType, nullable: bool, target: str, label: str) -> None:
        """Read one value into ``target``. A run at its end stays pending."""
        if wire_type.kind == FIXED:
            self.run.append((wire_type.code, target))
            return
        if wire_type.kind not in (STRING, BYTES, RECORDS, ARRAY):
            self.nested(wire_type, nullable, target)
            return
        n = self.length(wire_type.kind, label)
        self.line(f"if {n} >= 0:")
        self.source.depth += 1
        if wire_type.kind == ARRAY:
            self.array(wire_type.element, n, target, label)
        else:
            self.line(f"e = p + {n}")
            self.line("if e > end:")
            self.overrun(label, n)
            if wire_type.kind == RECORDS:
                self.line(f"{target} = view[p:e]")
            elif wire_type.kind == STRING:
                self.line(f"{target} = " + ("str(d[p:e], 'utf-8')" if self.views else "d[p:e].decode()"))
            else:
                self.line(f"{target} = " + ("bytes(d[p:e])" if self.views else "d[p:e]"))
            self.line("p = e")
        self.source.depth -= 1
        if nullable:
            self.line(f"elif {n} == -1:")
            self.line(f" {target} = None")
        self.line("else:")
        wrong = f"{label} may not be null" if not nullable else f"the length of {label} is negative"
        self.line(f" raise ProtocolError({wrong!r})")

    def nested(self, wire_type: WireType, nullable: bool, target: str, *, tagged: bool = False) -> None:
        """Read a struct. A byte before a nullable one is negative for null; in a tagged field 0."""
        if not nullable:
            inner = self.source.fresh("o")
            self.struct(wire_type.struct, inner)
            self.line(f"{target} = {inner}")
            return
        n = self.source.fresh("n")
        self.run.append(("b", n))
        self.flush()
        self.line(f"if {n} <= 0:" if tagged else f"if {n} < 0:")
        self.line(f" {target} = None")
        self.line("else:")
        self.source.depth += 1
        inner = self.source.fresh("o")
        self.struct(wire_type.struct, inner)
        self.flush()
        self.line(f"{target} = {inner}")
        self.source.depth -= 1

    def length(self, kind: str, label: str) -> str:
        """Read a length. Returns its variable, which is -1 for null."""
        n = self.source.fresh("n")
        if self.flexible:
            self.run.append(("B", n))
            self.flush()
            self.line(f"if {n} > 127:")
            self.line(f" {n}, p = finish_uvarint(d, p, {n})")
            if kind == STRING:
                self.line(f" if {n} > {MAX_STRING + 1}:")
                self.line(f"  raise ProtocolError('{label} is longer than {MAX_STRING} bytes')")
            self.line(f"{n} -= 1")
        else:
            self.run.append(("h" if kind == STRING else "i", n))
            self.flush()
        return n

    def overrun(self, label: str, n: str) -> None:
        """Write the body of a failed check of a length."""
        self.line(f" raise ProtocolError(f'{label} claims {{{n}}}, but {{end - p}} bytes are left')")

    def array(self, element: WireType, n: str, target: str, label: str) -> None:
        size = min_size(element, self.version, self.flexible)
        if element.kind == FIXED:
            self.charge(n, element_cost(element, self.version), label)
        if element.kind == FIXED and len(element.code) == 1:
            unpackers = self.source.bind("unpackers", element.code, array_unpackers(element.code))
            self.line(f"if {n} < {SMALL}:")
            self.line(f" {target} = list({unpackers}[{n}](d, p))")
            self.line(f"elif {n} * {size} <= end - p:")
            self.line(f" {target} = list(unpack_from(f'>{{{n}}}{element.code}', d, p))")
            self.line("else:")
            self.overrun(label, n)
            self.line(f"p += {n} * {size}")
            return
        self.line(f"if {n} * {size} > end - p:")
        self.overrun(label, n)
        if element.kind != FIXED:
            self.charge(n, element_cost(element, self.version), label)
        items = self.source.fresh("items")
        item = self.source.fresh("o")
        append = self.source.fresh("append")
        self.line(f"{target} = {items} = []")
        self.line(f"{append} = {items}.append")
        self.line(f"for _ in range({n}):")
        self.source.depth += 1
        if element.struct is not None:
            self.struct(element.struct, item)
        else:
            self.value(element, False, item, label)
        self.flush()
        self.line(f"{append}({item})")
        self.pause()
        self.source.depth -= 1

    def charge(self, n: str, cost: int, label: str) -> None:
        """Count the memory of ``n`` elements before they are made."""
        if self.counted:
            self.line(f"left -= {n} * {cost}")
            self.line("if left < 0:")
            self.line(f" raise ProtocolError(f'too many elements: {label} has {{{n}}}')")

    def pause(self) -> None:
        """Let others run after some elements."""
        if self.sliced:
            self.line("made += 1")
            self.line(f"if not made % {SLICE}:")
            self.line(" yield")

    def tagged_fields(self, known: list[tuple[FieldLayout, str]]) -> None:
        """Read the tagged fields at the end of a struct, skipping unknown ones."""
        n = self.source.fresh("n")
        self.run.append(("B", n))
        self.flush()
        self.line(f"if {n}:")
        self.source.depth += 1
        tag, stop = self.source.fresh("tag"), self.source.fresh("stop")
        self.uvarint_tail(n)
        self.charge(n, _TAG_COST, "a set of tagged fields")
        self.line(f"for _ in range({n}):")
        self.source.depth += 1
        self.line(f"{tag} = d[p]")
        self.line("p += 1")
        self.uvarint_tail(tag)
        self.line(f"{stop} = d[p]")
        self.line("p += 1")
        self.uvarint_tail(stop)
        self.line(f"{stop} += p")
        self.line(f"if {stop} > end:")
        self.line(f" raise ProtocolError(f'tagged field {{{tag}}} goes past the end')")
        for layout, target in known:
            self.line(f"if {tag} == {layout.field.tag}:")
            self.source.depth += 1
            if layout.wire_type.kind == STRUCT:
                self.nested(layout.wire_type, layout.nullable, target, tagged=True)
            else:
                self.value(layout.wire_type, layout.nullable, target, layout.field.name)
            self.flush()
            self.line(f"if p != {stop}:")
            self.line(f" raise ProtocolError('{layout.field.name} is not as long as its tag says')")
            self.source.depth -= 1
        self.line(f"p = {stop}")
        self.pause()
        self.source.depth -= 2

    def uvarint_tail(self, name: str) -> None:
        self.line(f"if {name} > 127:")
        self.line(f" {name}, p = finish_uvarint(d, p, {name})")
