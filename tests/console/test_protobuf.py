"""Protobuf values: by files and by a registry, with references and message indexes, and what doesn't fit."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.console.browsing import browsing
from tests.support.processes import BrokerProcess

from ottla_client import Producer
from ottla_client.errors import ConfigurationError
from ottla_console.protobuf import ProtobufSchema
from ottla_console.registry import SchemaError
from ottla_console.schemas import Schemas

ORDER = """
syntax = "proto3";
package shop;
import "lib/money.proto";
message Note { string text = 1; }
message Order {
  map<string, int32> counts = 1;
  message Line { string item = 1; lib.Money price = 2; }
  Line line = 2;
}
"""
MONEY = 'syntax = "proto3"; package lib; import "google/protobuf/timestamp.proto";' + (
    " message Money { int64 cents = 1; google.protobuf.Timestamp at = 2; }"
)
LINE = b"\x0a\x04desk\x12\x03\x08\xac\x02"
"""A line: desk, for 300 cents."""


def descriptors() -> bytes:
    """What protoc makes of a smaller shop, without protoc."""
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Note").field.add(name="text", number=1, type=9, label=1)
    order = file.message_type.add(name="Order")
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    order.field.add(name="counts", number=1, type=11, label=3, type_name=".shop.Order.CountsEntry")
    order.nested_type.add(name="Line").field.add(name="item", number=1, type=9, label=1)
    order.field.add(name="line", number=2, type=11, label=1, type_name=".shop.Order.Line")
    data: bytes = files.SerializeToString()
    return data


def test_the_message_is_found_by_its_indexes() -> None:
    schema = ProtobufSchema(descriptors())
    for data, form, text, note in (
        (b"\0\x0a\2hi", "shop.Note", '"text": "hi"', ""),
        (b"\2\0\x0a\2hi", "shop.Note", '"text": "hi"', ""),
        (b"\2\2\x0a\5\x0a\1a\x10\7", "shop.Order", '"a": 7', ""),
        (b"\4\2\0\x0a\2hi", "shop.Order.Line", '"item": "hi"', ""),
        (b"\0", "shop.Note", '"text": ""', ""),
        (b"\0\x0a\2hi\x30\1", "shop.Note", '"text": "hi"', "1 fields aren't in the schema"),
        (b"\0\x0a\3\xe2\x80\xae", "shop.Note", r"\u202e", ""),
    ):
        shown = schema.decode(data, framed=True)
        assert shown.form == f"Protobuf ({form})"
        assert text in shown.text, shown
        assert shown.note.startswith(note), shown


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "ends within its message indexes"),
        (b"\x80", "ends within its message indexes"),
        (b"\xff" * 6, "message indexes are none"),
        (b"\xfe\xff\xff\xff\x0f", "2,147,483,647 message indexes"),
        (b"\1", "-1 message indexes"),
        (b"\2\4", "names message 2"),
        (b"\2\1", "names message -1"),
        (b"\6\2\0\0", "names message 1.0.0"),
        (b"\0\x0a\5hi", "isn't of its schema (shop.Note)"),
        (b"\0\x0a\1\xff", "isn't of its schema (shop.Note)"),
    ],
)
def test_values_that_do_not_fit(data: bytes, why: str) -> None:
    with pytest.raises(SchemaError) as raised:
        ProtobufSchema(descriptors()).decode(data, framed=True)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.fixture
async def registry() -> AsyncIterator[str]:
    """A registry with an order, whose file imports another, and with what can't be compiled."""
    schemas = {
        "ids/1": {
            "schemaType": "PROTOBUF",
            "schema": ORDER,
            "references": [{"name": "lib/money.proto", "subject": "the money/1", "version": 3}],
        },
        "ids/2": {"schemaType": "PROTOBUF", "schema": "message {"},
        "ids/3": {
            "schemaType": "PROTOBUF",
            "schema": ORDER,
            "references": [{"name": "../money.proto", "subject": "the money/1", "version": 3}],
        },
        "the money/1": {"schemaType": "PROTOBUF", "schema": MONEY},
    }

    async def answer(request: web.Request) -> web.Response:
        found = schemas.get(request.match_info["name"])
        return web.Response(status=404) if found is None else web.json_response(found)

    app = web.Application()
    app.router.add_get("/schemas/{name:ids/[0-9]+}", answer)
    app.router.add_get("/subjects/{name}/versions/3", answer)
    async with TestServer(app) as server:
        yield str(server.make_url("/"))


async def test_a_registry_of_protobuf(
    registry: str, broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    values = [number.to_bytes(5) + b"\4\2\0" + LINE for number in (1, 2, 3)]
    async with Producer(broker.bootstrap) as producer:
        for value in values:
            await producer.send_and_wait(topic, value)
    async with browsing(broker.bootstrap, registry=registry) as browser:
        pages = [(await browser.get(f"/topics/{topic}/0/{offset}")).text for offset in range(3)]
        assert "shown as Protobuf (shop.Order.Line)" in pages[0]
        assert "&#34;cents&#34;: &#34;300&#34;" in pages[0]
        assert "the schema isn&#39;t Protobuf&#39;s: schema.proto:1:" in pages[1]
        assert "no place to import from" in pages[2]
        assert "desk" in (await browser.get(f"/topics/{topic}/messages?format=schema")).text


async def test_files(tmp_path: Path) -> None:
    proto, broken, made, avro = (tmp_path / name for name in ("a.proto", "b.proto", "c.desc", "d.avsc"))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/money.proto").write_text(MONEY)
    proto.write_text(ORDER)
    broken.write_text('import "nowhere.proto";')
    made.write_bytes(descriptors())
    avro.write_text(json.dumps("string"))
    schemas = Schemas(None, {"a": f"{proto}#Order.Line", "c": f"{made}#shop.Note"})
    for topic, data, text in (
        ("a", LINE, "desk"),
        ("a", b"\0\0\0\0\1\4\2\0" + LINE, "desk"),
        ("c", b"\x0a\2hi", "hi"),
    ):
        shown = await schemas.show(topic, data, asked=False)
        assert shown is not None
        assert text in shown.text, shown
    await schemas.close()
    cut = tmp_path / "cut.pb"
    cut.write_bytes(descriptors()[:-3])
    for name, why in (
        (f"{made}#Other", "no message 'Other'; it has: Note, Order"),
        (str(made), "it has 2 messages; name one as FILE#MESSAGE: Note, Order"),
        (str(cut), "isn't a set of Protobuf descriptors"),
        (str(broken), "nowhere.proto"),
        (str(tmp_path / "none.proto"), "No such file"),
        (f"{avro}#Name", "#Name is for Protobuf"),
    ):
        with pytest.raises(ConfigurationError) as raised:
            Schemas(None, {"t": name})
        assert why in str(raised.value)
        assert "\n" not in str(raised.value)
