"""The client over TLS: a broker behind a proxy that requires client certificates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.ottla_command import Ottla
from tests.support.certificates import Certificates
from tests.support.proxy import Proxy

from ottla_client import Consumer, Producer
from ottla_client.errors import ClientError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def front(certificates: Certificates, own_broker: Callable[..., Any]) -> Iterator[Proxy]:
    """Accepts only clients whose certificate the authority has signed."""
    with Proxy(certificates.asking()) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        proxy.target = own_broker(settings=settings).port
        yield proxy


async def test_records_over_tls(front: Proxy, certificates: Certificates) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": front.address,
        "security_protocol": "SSL",
        "ssl_context": certificates.shown(),
    }
    values = [b"%0100d" % number for number in range(50_000)]
    async with Producer(**options) as producer:
        await (await producer.send_batch("t", values))
    consumer = Consumer("t", group_id="g", auto_offset_reset="earliest", **options)
    read: list[bytes | None] = []
    async with consumer:
        while len(read) < len(values):
            read += [each.value for each in await consumer.poll(timeout_ms=30_000)]
    assert read == values
    assert front.accepted >= 2


async def test_an_authority_that_is_not_ours(front: Proxy, certificates: Certificates) -> None:
    given = certificates.shown(trusting="another")
    producer = Producer(front.address, security_protocol="SSL", ssl_context=given)
    with pytest.raises(ClientError, match=r"is not trusted: .*cafile") as caught:
        await producer.start()
    assert front.address in str(caught.value)
    await producer.close()


async def test_a_certificate_for_another_name(certificates: Certificates) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificates.elsewhere)
    with Proxy(serving) as elsewhere:
        producer = Producer(elsewhere.address, security_protocol="SSL", ssl_context=certificates.shown())
        with pytest.raises(ClientError, match=r"is for other names: IP address mismatch.*ssl_check_hostname"):
            await producer.start()
        await producer.close()


@pytest.mark.parametrize("certificate", ["stranger", None])
async def test_a_certificate_that_will_not_do(
    front: Proxy, certificates: Certificates, certificate: str | None
) -> None:
    """The proxy hangs up without an alert, which may be temporary, so the client retries until its deadline."""
    given = certificates.shown(certificate)
    producer = Producer(front.address, security_protocol="SSL", ssl_context=given, max_block_ms=2000)
    with pytest.raises(ClientError, match=r"broke: .* asks for another certificate") as caught:
        await producer.start()
    assert front.address in str(caught.value)
    await producer.close()


@pytest.fixture
def strict(certificates: Certificates, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server that rejects certificates with an alert, as Kafka does."""
    context = certificates.asking()
    context.maximum_version = request.param
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):  # nothing to accept: the test is over
            while True:
                refuse(listening.accept()[0])

    def refuse(connection: socket.socket) -> None:
        connection.settimeout(10)
        with context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False) as tls:
            with contextlib.suppress(ssl.SSLError):
                tls.do_handshake()
            # What the client has sent is taken off the socket: closed with it unread, the alert would be lost.
            with socket.socket(fileno=os.dup(tls.fileno())) as raw, contextlib.suppress(OSError):
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65_536):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listening.getsockname()[1]}"
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(10)


@pytest.mark.parametrize("strict", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], indirect=True)
@pytest.mark.parametrize("certificate", ["stranger", None])
async def test_a_certificate_that_is_refused(
    strict: str, certificates: Certificates, certificate: str | None
) -> None:
    given = certificates.shown(certificate)
    producer = Producer(strict, security_protocol="SSL", ssl_context=given)
    async with asyncio.timeout(30):  # half of what it would take if it were tried again
        with pytest.raises(
            ClientError, match=r"refused the TLS connection .*ALERT.*load_cert_chain"
        ) as caught:
            await producer.start()
    assert strict in str(caught.value)
    await producer.close()


async def test_plain_text_where_tls_is_spoken(front: Proxy) -> None:
    producer = Producer(front.address, max_block_ms=2000)
    with pytest.raises(ClientError) as caught:
        await producer.start()
    assert front.address in str(caught.value)
    await producer.close()


def test_the_command_line(front: Proxy, certificates: Certificates, tmp_path: Path) -> None:
    ottla = Ottla(front.address)
    tls = [
        *("-X", "security_protocol=SSL", "-X", f"ssl_cafile={certificates.authority}"),
        *("-X", f"ssl_certfile={certificates.locked}", "-X", "ssl_password=secret"),
    ]
    assert "created topic u" in ottla("topics", "create", "u", *tls)
