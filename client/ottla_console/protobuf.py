"""Protobuf schemas, compiled by protoc or as descriptor sets, and values by them.

A value in Confluent's frame has, between the schema's number and the message, the way to the message's type: which
message of the file, which one inside that, and so on::

    magic     1 byte    0
    schema    4 bytes   big endian
    count     varint    zigzag; 0 is short for the way [0], the first message
    way       varints   zigzag, ``count`` of them
    message   the rest

protoc runs in a process of its own, with a deadline: what a registry sends can't hurt the console.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from .decoding import SHOWN_BYTES, Shown, clean
from .protobuf_values import MalformedError, Room, Types
from .registry import SchemaError

DESCRIPTORS: Final = (".desc", ".pb", ".protoset", ".binpb")
"""Ends of the names of descriptor sets, as ``protoc --include_imports --descriptor_set_out`` writes them."""
_MAIN: Final = "schema.proto"
_SECONDS: Final = 10.0
_MOST_BYTES: Final = 4 << 20
_MOST_DESCRIPTORS: Final = 64 << 20
_LONGEST_WAY: Final = 100
_SUGGESTED: Final = 8
_ROOM: Final = 4 * SHOWN_BYTES
"""Characters that the fields and elements of a value may take, beside the texts in it."""
_BESIDE: Final = re.compile(r"^[WI]\d{4} |warning", re.IGNORECASE)
_PLACE: Final = re.compile(r"[^\s:]+:")
"""The beginning of an error: the file, and perhaps line and column."""


class ProtobufSchema:
    """The messages of a file, with all that it imports."""

    form: Final = "Protobuf"

    def __init__(self, descriptors: bytes, main: str = "", message: str = "") -> None:
        """``main`` names the file in the set, "" its last one; ``message`` all values' type. Raises SchemaError."""
        from google.protobuf import descriptor_pb2, descriptor_pool
        from google.protobuf.message import DecodeError

        files = descriptor_pb2.FileDescriptorSet()
        try:
            files.ParseFromString(descriptors)
        except DecodeError:
            raise SchemaError("it isn't a set of Protobuf descriptors") from None
        if not files.file:
            raise SchemaError("the set of descriptors has no file")
        self._pool = descriptor_pool.DescriptorPool()
        for each in files.file:
            try:
                self._pool.AddSerializedFile(each.SerializeToString())
            except TypeError as error:
                raise SchemaError(f"the descriptors don't fit together: {_first_line(str(error))}") from None
        self._file = next((each for each in files.file if each.name == main), files.file[-1])
        self._types = Types(self._pool)
        self._message = self._chosen(message) if message else ""

    def only_message(self) -> ProtobufSchema:
        """This schema for values without a frame. Raises SchemaError if it isn't clear which message they are."""
        if not self._message:
            names = [each.name for each in self._file.message_type]
            if len(names) != 1:
                some = ", ".join(names[:_SUGGESTED])
                if not names:
                    raise SchemaError("it has no message")
                raise SchemaError(f"it has {len(names)} messages; name one as FILE#MESSAGE: {some}")
            self._message = self._full(names)
        return self

    def decode(self, data: bytes, *, framed: bool) -> Shown:
        """A value, after the schema's number if it is framed. Raises SchemaError."""
        from google.protobuf.message import DecodeError

        name = self._message
        if framed:
            way, start = _way(data)
            data = data[start:]
            name = name or self._at(way)
        room = Room(_ROOM)
        try:
            message = self._types.parse(name, data, room)
        except (DecodeError, MalformedError, RecursionError) as error:
            raise SchemaError(f"the value isn't of its schema ({name}): {_first_line(str(error))}") from None
        text, note = self._text(message)
        if len(text) > SHOWN_BYTES:
            text, note = text[:SHOWN_BYTES], f"the first {SHOWN_BYTES:,} characters"
        elif room.is_cut:
            note = "it has more fields and elements than are shown"
        return Shown(clean(text), f"Protobuf ({name})", note)

    def _text(self, message: Any) -> tuple[str, str]:
        """A message as text, perhaps more than is shown of it, and a note. Raises SchemaError."""
        from google.protobuf import json_format, text_format
        from google.protobuf.unknown_fields import UnknownFieldSet

        note = ""
        try:
            document = json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=self._pool,
            )
            text = _json_text(document, SHOWN_BYTES)
        except (ValueError, TypeError, RecursionError, json_format.Error):
            # JSON can't show an Any of an unknown type, or a time beyond its calendar.
            note = "it has no form as JSON; shown as Protobuf's text"
            try:
                text = text_format.MessageToString(message, as_utf8=True, descriptor_pool=self._pool)
            except RecursionError:
                raise SchemaError("the value is nested too deeply") from None
        unknown = len(UnknownFieldSet(message))
        if unknown:
            note = f"{unknown:,} fields aren't in the schema: the value may have another one"
        return text, note

    def _full(self, names: Sequence[str]) -> str:
        return ".".join([*([self._file.package] if self._file.package else []), *names])

    def _at(self, way: Sequence[int]) -> str:
        """The full name of the message at the end of a way. Raises SchemaError."""
        names: list[str] = []
        below: Sequence[Any] = self._file.message_type
        for index in way:
            # The messages of maps' entries are in no .proto file, so they have no number.
            written = [each for each in below if not each.options.map_entry]
            if not 0 <= index < len(written):
                shown = ".".join(map(str, way[:_SUGGESTED]))
                raise SchemaError(f"the value names message {shown}, which its schema hasn't got")
            names.append(written[index].name)
            below = written[index].nested_type
        return self._full(names)

    def _chosen(self, message: str) -> str:
        """The full name of a message, which may be given without its package. Raises SchemaError."""
        for name in (message, self._full([message])):
            try:
                self._pool.FindMessageTypeByName(name)
            except KeyError:
                continue
            return name
        some = ", ".join(each.name for each in self._file.message_type[:_SUGGESTED])
        raise SchemaError(f"it has no message {message[:100]!r}; it has: {some}")


def _way(data: bytes) -> tuple[list[int], int]:
    """The way to a message's type, and where the message begins. Raises SchemaError."""
    count, at = _zigzag(data, 0)
    if not 0 <= count <= _LONGEST_WAY:
        raise SchemaError(f"the value isn't framed as Confluent frames Protobuf: {count:,} message indexes")
    way = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        way.append(index)
    return way or [0], at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A varint of at most 32 bits, and where it ends. Raises SchemaError."""
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise SchemaError("the value ends within its message indexes")
        number |= (data[at] & 0x7F) << shift
        at += 1
        if not data[at - 1] & 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise SchemaError("the value's message indexes are none")


def of_text(text: str, references: Mapping[str, str]) -> ProtobufSchema:
    """The schema of a .proto file's text, with the files that it imports by name. Raises SchemaError; it waits."""
    if len(text) + sum(map(len, references.values())) > _MOST_BYTES:
        raise SchemaError(f"the schema and its references are longer than {_MOST_BYTES:,} characters")
    with tempfile.TemporaryDirectory(prefix="ottla-schema-") as folder:
        root = Path(folder) / "files"
        for name, each in {**references, _MAIN: text}.items():
            place = PurePosixPath(name)
            if place.is_absolute() or ".." in place.parts or "\\" in name or "\0" in name:
                raise SchemaError(
                    f"the schema refers to a file {name[:100]!r}, which is no place to import from"
                )
            path = root / place
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(each, encoding="utf-8", errors="replace")
            except OSError as error:
                raise SchemaError(f"a file {name[:100]!r} can't be written: {error.strerror}") from None
        return ProtobufSchema(_compiled(root, _MAIN, Path(folder) / "out"), _MAIN)


def of_file(path: Path, message: str) -> ProtobufSchema:
    """The schema in a .proto file, which imports from its own folder, or in a descriptor set.

    Raises SchemaError, OSError; it waits.
    """
    if path.suffix == ".proto":
        path.open("rb").close()  # for the system's own words
        with tempfile.TemporaryDirectory(prefix="ottla-schema-") as folder:
            made = _compiled(path.parent, path.name, Path(folder) / "out")
        return ProtobufSchema(made, path.name, message).only_message()
    if path.stat().st_size > _MOST_DESCRIPTORS:
        raise SchemaError(f"it has more than {_MOST_DESCRIPTORS:,} bytes")
    needed()
    return ProtobufSchema(path.read_bytes(), "", message).only_message()


def needed() -> None:
    """Raises SchemaError if a package is missing."""
    for package, name in (("google.protobuf", "protobuf"), ("grpc_tools", "grpcio-tools")):
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise SchemaError(f"Protobuf needs the package {name}: pip install 'ottla[web]'")


def _compiled(root: Path, name: str, out: Path) -> bytes:
    """The descriptors of a file and of all that it imports. Raises SchemaError."""
    needed()
    command = [
        *(sys.executable, "-I", "-m", "grpc_tools.protoc"),
        *("-I.", "--include_imports", f"--descriptor_set_out={out}", name),
    ]
    try:
        done = subprocess.run(
            command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise SchemaError(f"protoc didn't end within {_SECONDS:.0f} s") from None
    except OSError as error:
        raise SchemaError(f"protoc can't be started: {error.strerror}") from None
    if done.returncode or not out.exists():
        said = _complaint(done.stderr.decode(errors="replace"))
        raise SchemaError(f"the schema isn't Protobuf's: {said or f'protoc ended with {done.returncode}'}")
    return out.read_bytes()


def _complaint(text: str) -> str:
    """The first error that protoc prints, among warnings and lines of a log."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _BESIDE.search(line)]
    return next((line for line in lines if _PLACE.match(line)), lines[0] if lines else "")[:300]


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def _json_text(document: object, most: int) -> str:
    """A document as indented JSON, not much further than ``most`` characters. Raises ValueError, RecursionError."""
    parts: list[str] = []
    left = most
    for each in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(document):
        parts.append(each)
        left -= len(each)
        if left < 0:
            break
    return "".join(parts)
