"""A Confluent-compatible schema registry, which may be down or lie: schemas by number, and those they refer to."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import aiohttp
from yarl import URL

from ottla_client.errors import ConfigurationError

KINDS: Final = ("AVRO", "PROTOBUF")
_SECONDS: Final = 3.0
_MOST_BYTES: Final = 1 << 20
_MOST_SCHEMAS: Final = 500
_RETRY_SECONDS: Final = 30.0
_MOST_REFERENCES: Final = 50
_LONGEST_NAME: Final = 250


class SchemaError(Exception):
    """There is no schema that this console can use; the message says why."""


class SchemaText(NamedTuple):
    """A schema as its authors wrote it.

    ``references`` has the texts that it needs by name, each after those that it needs itself.
    """

    kind: str
    text: str
    references: dict[str, str]


class Registry:
    """Asks for schemas. A registry that doesn't answer isn't asked again for a while. Belongs to one event loop."""

    def __init__(self, url: str) -> None:
        """Raises ConfigurationError."""
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"--schema-registry {url}: a URL such as http://127.0.0.1:8081 is needed"
            )
        self._url = url.rstrip("/")
        self._failed: dict[int, tuple[float, str]] = {}
        self._down = (0.0, "")
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def failed(self, number: int, why: str) -> None:
        """Answer with this error for a while."""
        self._failed[number] = (asyncio.get_running_loop().time(), why)
        while len(self._failed) > _MOST_SCHEMAS:
            del self._failed[next(iter(self._failed))]

    async def schema(self, number: int) -> SchemaText:
        """Raises SchemaError."""
        now = asyncio.get_running_loop().time()
        at, why = max(self._down, self._failed.get(number, (0.0, "")))
        if why and now - at < _RETRY_SECONDS:
            raise SchemaError(why)
        document = await self._get(f"/schemas/ids/{number}", f"schema {number}")
        kind, text = document.get("schemaType") or "AVRO", document.get("schema")
        if not isinstance(text, str):
            raise SchemaError(f"the registry's answer for schema {number} isn't a schema")
        if kind not in KINDS:
            raise SchemaError(f"schema {number} is {str(kind)[:30]}; Avro and Protobuf are decoded")
        found: dict[str, str] = {}
        async with asyncio.timeout(_SECONDS * 3):
            await self._follow(document, f"schema {number}", found, set())
        return SchemaText(kind, text, found)

    async def _follow(
        self, document: dict[str, Any], what: str, found: dict[str, str], seen: set[str]
    ) -> None:
        """Add the texts of the schemas that this one refers to. Raises SchemaError."""
        references = document.get("references") or []
        if not isinstance(references, list):
            raise SchemaError(f"the registry's answer for {what} isn't a schema")
        for each in references:
            try:
                name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
            except (KeyError, TypeError, ValueError):
                raise SchemaError(f"a reference of {what} isn't one") from None
            if name in seen:
                continue
            seen.add(name)
            if len(seen) > _MOST_REFERENCES or not 0 < len(name) <= _LONGEST_NAME:
                raise SchemaError(f"{what} refers to more than {_MOST_REFERENCES} others, or by a long name")
            title = f"{subject[:100]!r}, version {version}"
            below = await self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}", title)
            text = below.get("schema")
            if not isinstance(text, str):
                raise SchemaError(f"the registry's answer for {title} isn't a schema")
            await self._follow(below, title, found, seen)
            found[name] = text

    async def _get(self, path: str, what: str) -> dict[str, Any]:
        """A document. Raises SchemaError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SECONDS))
        try:
            async with self._session.get(
                URL(self._url + path, encoded=True), allow_redirects=False
            ) as answer:
                if answer.status != 200:
                    raise SchemaError(f"the registry has no {what} (status {answer.status})")
                data = await answer.content.read(_MOST_BYTES + 1)
                while len(data) <= _MOST_BYTES and not answer.content.at_eof():
                    data += await answer.content.read(_MOST_BYTES + 1)
        except (TimeoutError, aiohttp.ClientError) as error:
            url = URL(self._url)
            why = f"the registry at {url.host}:{url.port} can't be reached: {_reason(error)}"[:300]
            # Other schemas don't have to wait for it as well.
            self._down = (asyncio.get_running_loop().time(), why)
            raise SchemaError(why) from None
        if len(data) > _MOST_BYTES:
            raise SchemaError(f"the registry's answer is longer than {_MOST_BYTES:,} bytes")
        try:
            document = json.loads(data)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise SchemaError(f"the registry's answer for {what} isn't a schema")
        return document


def _reason(error: Exception) -> str:
    """The reason why it can't be reached, without the words in which aiohttp wraps the system's."""
    if isinstance(error, aiohttp.ClientConnectorError) and error.os_error.errno:
        return os.strerror(error.os_error.errno).lower()
    return str(error) or f"no answer within {_SECONDS:.0f} s"
