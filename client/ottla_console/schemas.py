"""Schemas of values, Avro's and Protobuf's: from files, or from a Confluent-compatible registry.

A value that a registry describes begins with a zero byte and the schema's number in four bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from ottla_client.errors import ConfigurationError

from . import protobuf
from .avro import AvroSchema
from .decoding import Shown
from .registry import Registry, SchemaError, SchemaText

_FRAME: Final = 5
_MOST_SCHEMAS: Final = 500
_MOST_VALUE: Final = 1 << 20


class Schema(Protocol):
    @property
    def form(self) -> str:
        """Avro or Protobuf."""

    def decode(self, data: bytes, *, framed: bool) -> Shown:
        """A value, or with ``framed`` what follows the schema's number. Raises SchemaError."""


class Schemas:
    """Schemas by topic, from files, and by number, from a registry. Belongs to one event loop."""

    def __init__(self, registry: str | None, files: Mapping[str, str]) -> None:
        """``files`` are paths by topic. Raises ConfigurationError for a file that isn't a schema."""
        self._registry = None if registry is None else Registry(registry)
        self._files: dict[str, Schema] = {}
        for topic, path in files.items():
            try:
                self._files[topic] = of_file(path)
            except (OSError, UnicodeDecodeError, SchemaError) as error:
                why = error.strerror if isinstance(error, OSError) else error
                raise ConfigurationError(f"--schema {topic}={path}: {why}") from None
        self._known: dict[int, Schema] = {}
        self._asking: dict[int, asyncio.Task[Schema]] = {}

    async def close(self) -> None:
        for task in list(self._asking.values()):
            task.cancel()
        await asyncio.gather(*self._asking.values(), return_exceptions=True)
        if self._registry is not None:
            await self._registry.close()

    async def show(self, topic: str, data: bytes | None, *, asked: bool) -> Shown | None:
        """A value by its schema; None if nothing says that it has one. ``asked`` always has an answer."""
        if data is None:
            return None
        framed = len(data) >= _FRAME and data[0] == 0
        if topic not in self._files and not (framed and self._registry) and not asked:
            return None
        try:
            if len(data) > _MOST_VALUE:
                raise SchemaError(f"it has {len(data):,} bytes; up to {_MOST_VALUE:,} are decoded")
            if topic in self._files:
                return await asyncio.to_thread(_by_file, self._files[topic], data, framed)
            if not framed or self._registry is None:
                raise SchemaError("no schema is known: start the console with --schema-registry or --schema")
            schema = await self._of_registry(self._registry, int.from_bytes(data[1:_FRAME]))
            return await asyncio.to_thread(schema.decode, data[_FRAME:], framed=True)
        except SchemaError as error:
            return Shown("", "", f"not decoded: {error}")

    async def _of_registry(self, registry: Registry, number: int) -> Schema:
        """Raises SchemaError. All who need a schema at the same time wait for one question."""
        if number in self._known:
            return self._known[number]
        task = self._asking.get(number)
        if task is None:
            task = self._asking[number] = asyncio.ensure_future(self._ask(registry, number))
            task.add_done_callback(
                lambda done: (self._asking.pop(number, None), done.cancelled() or done.exception())
            )
        return await asyncio.shield(task)

    async def _ask(self, registry: Registry, number: int) -> Schema:
        try:
            made = await asyncio.to_thread(_made, await registry.schema(number))
        except (SchemaError, TimeoutError) as error:
            why = str(error) or "the registry takes too long to send the schemas that this one refers to"
            registry.failed(number, why)
            raise SchemaError(why) from None
        self._known[number] = made
        while len(self._known) > _MOST_SCHEMAS:
            del self._known[next(iter(self._known))]
        return made


def _made(schema: SchemaText) -> Schema:
    """Raises SchemaError; it waits."""
    if schema.kind == "AVRO":
        return AvroSchema(schema.text, schema.references)
    return protobuf.of_text(schema.text, schema.references)


def of_file(text: str) -> Schema:
    """The schema that ``FILE`` or ``FILE#MESSAGE`` names. Raises SchemaError, OSError, UnicodeDecodeError; it waits."""
    name, _, message = text.partition("#")
    path = Path(name)
    if path.suffix == ".proto" or path.suffix in protobuf.DESCRIPTORS:
        return protobuf.of_file(path, message)
    if message:
        raise SchemaError(f"#{message[:100]} is for Protobuf: .proto, {', '.join(protobuf.DESCRIPTORS)}")
    return AvroSchema(path.read_text(encoding="utf-8"))


def _by_file(schema: Schema, data: bytes, framed: bool) -> Shown:
    """A value that may be framed, whose first byte may be zero without a frame as well. Raises SchemaError."""
    if not framed:
        return schema.decode(data, framed=False)
    try:
        shown = schema.decode(data[_FRAME:], framed=True)
    except SchemaError:
        if schema.form != "Avro":
            raise
        return schema.decode(data, framed=False)
    if not shown.note or schema.form != "Avro":
        return shown
    try:
        whole = schema.decode(data, framed=False)
    except SchemaError:
        return shown
    return shown if whole.note else whole
