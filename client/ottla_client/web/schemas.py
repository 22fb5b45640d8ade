"""Schemas of values: from files, or from a Confluent-compatible registry, which may be down or lie.

Only Avro is decoded. A value that a registry describes begins with a zero byte and the schema's number in four bytes.
Values are decoded by fastavro's Python reader: a value that is nested too deeply raises an error there, where the
compiled one would overflow the stack.
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

from ..errors import ConfigurationError
from .decoding import SHOWN_BYTES, Shown, clean

_FRAME: Final = 5
_SECONDS: Final = 3.0
_MOST_BYTES: Final = 1 << 20
_MOST_SCHEMAS: Final = 500
_RETRY_SECONDS: Final = 30.0
_MOST_VALUE: Final = 1 << 20
_DEEPEST: Final = 100


class SchemaError(Exception):
    """There is no schema that this console can use; the message says why."""


class Schemas:
    """Schemas by topic, from files, and by number, from a registry. Belongs to one event loop."""

    def __init__(self, registry: str | None, files: Mapping[str, str]) -> None:
        """``files`` are paths by topic. Raises ConfigurationError for a file that isn't an Avro schema."""
        self._registry = None if registry is None else registry.rstrip("/")
        if self._registry is not None and not self._registry.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"--schema-registry {registry}: a URL such as http://127.0.0.1:8081 is needed"
            )
        self._files: dict[str, Any] = {}
        for topic, path in files.items():
            try:
                self._files[topic] = parsed(Path(path).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, SchemaError) as error:
                raise ConfigurationError(f"--schema {topic}={path}: {error}") from None
        self._known: dict[int, Any] = {}
        self._failed: dict[int, tuple[float, str]] = {}
        self._down = (0.0, "")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def any(self) -> bool:
        """Whether there may be a schema at all."""
        return bool(self._registry or self._files)

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
                schema, body = self._files[topic], data[_FRAME:] if framed else data
            elif framed and self._registry:
                schema, body = await self._of_registry(int.from_bytes(data[1:_FRAME])), data[_FRAME:]
            else:
                raise SchemaError("no schema is known: start the console with --schema-registry or --schema")
            return await asyncio.to_thread(_decoded, schema, body)
        except SchemaError as error:
            return Shown("", "", f"not decoded: {error}")

    async def _of_registry(self, number: int) -> Any:
        """Raises SchemaError."""
        if number in self._known:
            return self._known[number]
        now = asyncio.get_running_loop().time()
        at, why = max(self._down, self._failed.get(number, (0.0, "")))
        if why and now - at < _RETRY_SECONDS:
            raise SchemaError(why)
        try:
            self._known[number] = await self._fetched(number)
        except SchemaError as error:
            self._failed[number] = (now, str(error))
            raise
        finally:
            for kept in (self._known, self._failed):
                while len(kept) > _MOST_SCHEMAS:
                    del kept[next(iter(kept))]
        return self._known[number]

    async def _fetched(self, number: int) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS))
        url = f"{self._registry}/schemas/ids/{number}"
        try:
            async with self._session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise SchemaError(f"the registry has no schema {number} (status {answer.status})")
                data = await answer.content.read(_MOST_BYTES + 1)
                while len(data) <= _MOST_BYTES and not answer.content.at_eof():
                    data += await answer.content.read(_MOST_BYTES + 1)
        except (TimeoutError, aiohttp.ClientError) as error:
            why = f"the registry can't be reached: {str(error) or f'no answer within {_SECONDS:.0f} s'}"[:300]
            # Other schemas don't have to wait for it as well.
            self._down = (asyncio.get_running_loop().time(), why)
            raise SchemaError(why) from None
        if len(data) > _MOST_BYTES:
            raise SchemaError(f"the registry's answer is longer than {_MOST_BYTES:,} bytes")
        try:
            document = json.loads(data)
            kind, text = document.get("schemaType", "AVRO"), document["schema"]
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise SchemaError(f"the registry's answer for schema {number} isn't a schema") from None
        if kind != "AVRO":
            raise SchemaError(f"schema {number} is {str(kind)[:30]}; only Avro is decoded")
        if document.get("references"):
            raise SchemaError(f"schema {number} refers to others, which this console doesn't follow")
        return await asyncio.to_thread(parsed, text)


def parsed(text: object) -> Any:
    """An Avro schema. Raises SchemaError."""
    try:
        from fastavro import parse_schema
        from fastavro.schema import SchemaParseException, UnknownType
    except ImportError:
        raise SchemaError("Avro needs the package fastavro: pip install 'ottla[web]'") from None
    try:
        schema = json.loads(str(text))
        _check(schema, 0)
        return parse_schema(schema)
    except SchemaError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType) as error:
        raise SchemaError(f"the schema isn't Avro's: {error}"[:300]) from None


def _check(schema: object, depth: int) -> None:
    """Refuse arrays whose items have no bytes: a few bytes could then claim any number of items."""
    if depth > _DEEPEST:
        raise SchemaError("the schema is nested too deeply")
    if isinstance(schema, list):
        for each in schema:
            _check(each, depth + 1)
    elif isinstance(schema, dict):
        kind = schema.get("type")
        if kind == "array" and not _has_bytes(schema.get("items"), 0):
            raise SchemaError("the schema has arrays whose items may have no bytes")
        for name in ("type", "items", "values"):
            if isinstance(schema.get(name), (list, dict)):
                _check(schema[name], depth + 1)
        for each in schema.get("fields", ()) if isinstance(schema.get("fields", ()), list) else ():
            _check(each, depth + 1)


def _has_bytes(schema: object, depth: int) -> bool:
    """Whether every value of a schema has at least one byte. Names of other schemas count as having none."""
    if depth > _DEEPEST:
        return False
    if isinstance(schema, list):  # a union writes the number of its branch
        return True
    if isinstance(schema, str):
        return schema in ("boolean", "int", "long", "float", "double", "bytes", "string")
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind in ("array", "map", "enum"):
        return True
    if kind == "fixed":
        return isinstance(schema.get("size"), int) and schema["size"] > 0
    if kind in ("record", "error"):
        fields = schema.get("fields", ())
        return isinstance(fields, list) and any(
            isinstance(each, dict) and _has_bytes(each.get("type"), depth + 1) for each in fields
        )
    return _has_bytes(kind, depth + 1)


def _decoded(schema: Any, data: bytes) -> Shown:
    """Raises SchemaError."""
    from fastavro._read_py import schemaless_reader

    source = io.BytesIO(data)
    try:
        value = schemaless_reader(source, schema, None)
    except RecursionError:
        raise SchemaError("the value is nested too deeply") from None
    except Exception as error:
        # Whatever the reader raises for bytes that aren't of the schema: IndexError, EOFError, struct.error, …
        raise SchemaError(f"the value isn't of its schema: {type(error).__name__}: {error}"[:300]) from None
    left = len(data) - source.tell()
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=_plain)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"the value can't be shown: {error}"[:300]) from None
    note = f"{left:,} bytes are left behind the value: it may have another schema" if left else ""
    if len(text) > SHOWN_BYTES:
        text, note = text[:SHOWN_BYTES], f"the first {SHOWN_BYTES:,} characters"
    return Shown(clean(text), "Avro", note)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
