"""What isn't HTTP, and addresses that are taken: one line, no traceback."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlsplit

import pytest
from tests.support.processes import BrokerProcess

from ottla_client.errors import ConfigurationError
from ottla_console import site
from ottla_console.login import _local
from ottla_console.server import serving
from ottla_console.settings import WebSettings


def settings_of(broker: BrokerProcess, port: int = 0) -> WebSettings:
    return WebSettings(client={"bootstrap_servers": broker.bootstrap}, host="127.0.0.1", port=port)


async def test_malformed_requests_are_one_line_in_the_log(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    malformed = (
        b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/7.x\r\n\r\n",
    )
    async with serving(settings_of(broker)) as address:
        port = urlsplit(address).port
        for request in malformed:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            assert b" 400 " in await asyncio.wait_for(reader.read(), 60)
            writer.close()
            await writer.wait_closed()
    records = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(records) == len(malformed)
    for record in records:
        assert record.exc_info is None
        assert record.getMessage().startswith("a request from 127.0.0.1 can't be read: ")
        assert "\n" not in record.getMessage()


async def test_forms_of_strangers_are_short_and_arrive_in_time(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand connections with most of a login took 200 MB for as long as they liked."""
    monkeypatch.setattr(site, "FORM_SECONDS", 0.01)
    head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    kind = b"Content-Type: application/x-www-form-urlencoded\r\n"
    answers = (
        (b"Content-Length: 10000\r\n\r\nuser=a", b" 413 "),
        (b"Transfer-Encoding: chunked\r\n\r\n5\r\nuser=", b" 413 "),
        (b"Content-Length: 1000\r\n\r\nuser=a", b" 408 "),
    )
    async with serving(settings_of(broker)) as address:
        for rest, answer in answers:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
            writer.write(head + kind + rest)
            assert answer in await asyncio.wait_for(reader.readline(), 60)
            writer.close()
            await writer.wait_closed()


async def test_a_malformed_body_is_one_line_in_the_log(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    request = (
        b"POST /topics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Encoding: gzip\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n"
    )
    async with serving(settings_of(broker)) as address:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
        writer.write(request)
        assert b" 405 " in await asyncio.wait_for(reader.read(), 60)
        writer.close()
        await writer.wait_closed()
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.exc_info is None
    assert record.getMessage().startswith("a request's body can't be read: ")
    assert "\n" not in record.getMessage()


async def test_forms_that_cannot_be_read_are_refused(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    part = b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1"
    answers = (
        (b"application/x-www-form-urlencoded; charset=none", b"user=a", b" 400 "),
        (b"application/x-www-form-urlencoded", b"user=\xff", b" 400 "),
        (b"multipart/form-data; boundary=x", part, b" 415 "),
        (b"multipart/form-data", part, b" 415 "),
    )
    async with serving(settings_of(broker)) as address:
        for kind, form, answer in answers:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
            head = b"POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n"
            writer.write(head % len(form) + b"Content-Type: " + kind + b"\r\n\r\n" + form)
            assert answer in await asyncio.wait_for(reader.readline(), 60)
            writer.close()
            await writer.wait_closed()
    assert not caplog.records


async def test_addresses_that_cannot_be_parsed_are_refused(
    broker: BrokerProcess, caplog: pytest.LogCaptureFixture
) -> None:
    answers = (
        (b"GET / HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n", b" 421 "),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://[\r\nConnection: close\r\n\r\n", b" 403 "),
    )
    async with serving(settings_of(broker)) as address:
        for request, status in answers:
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
            writer.write(request)
            assert status in await asyncio.wait_for(reader.read(), 60)
            writer.close()
            await writer.wait_closed()
    assert _local("//[") == ""
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_request_that_never_ends_is_not_waited_for(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_console.server._IDLE_SECONDS", 0.1)
    async with serving(settings_of(broker)) as address:
        for request in (b"", b"GET / HTTP/1.1\r\nHost: x"):
            reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
            writer.write(request)
            assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()
            await writer.wait_closed()


async def test_a_port_that_is_taken(broker: BrokerProcess) -> None:
    with pytest.raises(ConfigurationError, match=r"can't listen there \(Address already in use\); stop what"):
        async with serving(settings_of(broker, broker.port)):
            pass
