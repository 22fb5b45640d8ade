"""Values by their schemas: from a file, from a registry, and from registries that are down or lie."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from harness.ports import free_port
from tests.console.browsing import browsing
from tests.support.processes import BrokerProcess

from ottla_client import Producer
from ottla_client.errors import ConfigurationError
from ottla_console.avro import parsed
from ottla_console.registry import SchemaError
from ottla_console.schemas import Schemas

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "item", "type": "string"}]}
NESTED = {
    "type": "record",
    "name": "Node",
    "fields": [{"name": "next", "type": ["null", "Node"]}],
}


def value(schema: Any, record: Any, number: int | None = None) -> bytes:
    out = io.BytesIO()
    if number is not None:
        out.write(b"\0" + number.to_bytes(4))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), record)
    return out.getvalue()


ANSWERS: dict[int, Callable[[], web.Response]] = {
    1: lambda: web.json_response({"schema": json.dumps(ORDER)}),
    2: lambda: web.json_response({"schema": "{", "schemaType": "AVRO"}),
    3: lambda: web.json_response({"schema": "syntax", "schemaType": "JSON"}),
    4: lambda: web.Response(text="<html>", content_type="text/html"),
    5: lambda: web.Response(body=b" " * (2 << 20)),
    6: lambda: web.json_response({"schema": json.dumps({"type": "array", "items": "null"})}),
    7: lambda: web.json_response({"schema": json.dumps(NESTED)}),
    8: lambda: web.json_response(["schema"]),
    9: lambda: web.Response(status=302, headers={"Location": "/schemas/ids/1"}),
    10: lambda: web.json_response({"schema": json.dumps(ORDER), "references": [{"name": "x"}]}),
}


@pytest.fixture
async def registry() -> AsyncIterator[tuple[str, list[int]]]:
    """The URL of a registry, and the numbers that it was asked for."""
    asked: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        asked.append(number)
        made = ANSWERS.get(number)
        return web.Response(status=404) if made is None else made()

    app = web.Application()
    app.router.add_get("/schemas/ids/{number}", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/")), asked


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (2, "isn't Avro's"),
        (3, "Avro and Protobuf are decoded"),
        (4, "isn't a schema"),
        (5, "longer than"),
        (6, "may have no bytes"),
        (8, "isn't a schema"),
        (9, "status 302"),
        (10, "a reference of schema 10 isn't one"),
        (404, "has no schema 404"),
    ],
)
async def test_a_registry_that_lies(registry: tuple[str, list[int]], number: int, why: str) -> None:
    url, asked = registry
    schemas = Schemas(url, {})
    try:
        for _ in range(2):
            shown = await schemas.show("t", b"\0" + number.to_bytes(4) + b"abc", asked=False)
            assert shown is not None
            assert (shown.form, why in shown.note) == ("", True), shown
    finally:
        await schemas.close()
    assert asked == [number], "a failure is remembered for a while"


async def test_values_that_are_not_of_their_schema(registry: tuple[str, list[int]]) -> None:
    schemas = Schemas(registry[0], {})
    try:
        good = value(ORDER, {"item": "desk"}, 1)
        for data, form, note in (
            (good, "Avro", ""),
            (good + b"more", "Avro", "4 bytes are left"),
            (good[:-2], "", "isn't of its schema"),
            (b"\0\0\0\0\1", "", "isn't of its schema"),
            (b"\0\0\0\0\7" + b"\2" * 500_000, "Avro", "the first 65,536 characters"),
            (b"\0\0\0\0\1" + b"\xff" * 9 + b"\1", "", "isn't of its schema"),
            (b"\0\0\0\0\1" + b"x" * (2 << 20), "", "are decoded"),
        ):
            shown = await schemas.show("t", data, asked=False)
            assert shown is not None
            assert (shown.form, note in shown.note) == (form, True), (data[:20], shown)
        assert await schemas.show("t", b"plain", asked=False) is None
        assert await schemas.show("t", None, asked=True) is None
    finally:
        await schemas.close()


REFERENCES = {
    "point": {
        "schema": json.dumps(
            {"type": "record", "name": "geo.Point", "fields": [{"name": "x", "type": "int"}]}
        )
    },
    "circle": {"schema": "{}", "references": [{"name": "c", "subject": "circle", "version": 1}]},
}
TREE = {
    "type": "record",
    "name": "geo.Tree",
    "fields": [
        {"name": "at", "type": "geo.Point"},
        {"name": "below", "type": {"type": "array", "items": "geo.Tree"}},
    ],
}


async def test_schemas_that_refer_to_others() -> None:
    def refers(name: str, schema: Any) -> dict[str, Any]:
        return {
            "schema": json.dumps(schema),
            "references": [{"name": name, "subject": name, "version": 1}],
        }

    numbers = {"1": refers("point", TREE), "2": refers("circle", TREE), "3": refers("nothing", TREE)}
    numbers["4"] = refers("point", ["geo.Point"])

    async def answer(request: web.Request) -> web.Response:
        found = {**numbers, **REFERENCES}.get(request.match_info["name"])
        return web.Response(status=404) if found is None else web.json_response(found)

    app = web.Application()
    app.router.add_get("/schemas/ids/{name}", answer)
    app.router.add_get("/subjects/{name}/versions/1", answer)
    tree = b"\6\2\10\0\0"  # at 3, with one below at 4
    async with TestServer(app) as server:
        schemas = Schemas(str(server.make_url("/")), {})
        try:
            for number, data, text in (
                (1, tree, '"x": 4'),
                (2, tree, "isn't Avro's"),
                (3, tree, "has no 'nothing', version 1"),
                (4, b"\0\6", '"x": 3'),
            ):
                shown = await schemas.show("t", b"\0" + number.to_bytes(4) + data, asked=False)
                assert shown is not None
                assert text in (shown.text or shown.note), shown
        finally:
            await schemas.close()


async def test_a_registry_that_is_down() -> None:
    schemas = Schemas(f"http://127.0.0.1:{free_port()}", {})
    try:
        shown = await schemas.show("t", value(ORDER, {"item": "desk"}, 1), asked=False)
        assert shown is not None
        assert "can't be reached: connection refused" in shown.note
    finally:
        await schemas.close()


def test_files_and_addresses_that_cannot_be_right(tmp_path: Path) -> None:
    file = tmp_path / "schema.avsc"
    file.write_text('{"type": "record"}')
    for registry, files in (("ftp://x", {}), (None, {"t": str(file)}), (None, {"t": str(tmp_path / "none")})):
        with pytest.raises(ConfigurationError):
            Schemas(registry, files)
    deep = json.loads('{"type": "array", "items": ' * 150 + '"int"' + "}" * 150)
    with pytest.raises(SchemaError, match="nested"):
        parsed(json.dumps(deep))


async def test_the_page_of_a_message(
    broker: BrokerProcess, new_topic: Callable[..., str], registry: tuple[str, list[int]], tmp_path: Path
) -> None:
    topic, other = new_topic(), new_topic()
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic, value(ORDER, {"item": "<b>desk"}, 1))
        await producer.send_and_wait(topic, b"\0\0\0\0\4abc")
        await producer.send_and_wait(other, value(ORDER, {"item": "chair"}))
    file = tmp_path / "schema.avsc"
    file.write_text(json.dumps(ORDER))
    async with browsing(broker.bootstrap, registry=registry[0], schemas={other: str(file)}) as browser:
        shown = await browser.get(f"/topics/{topic}/0/0")
        assert "&#34;item&#34;: &#34;&lt;b&gt;desk&#34;" in shown.text
        assert "shown as Avro" in shown.text
        assert "&lt;b&gt;desk" in (await browser.get(f"/topics/{topic}/messages")).text
        assert "isn&#39;t a schema" in (await browser.get(f"/topics/{topic}/0/1")).text
        assert "chair" in (await browser.get(f"/topics/{other}/0/0")).text
    async with browsing(broker.bootstrap) as browser:
        plain = await browser.get(f"/topics/{topic}/0/0?format=avro")
        assert "no schema is known" in plain.text
