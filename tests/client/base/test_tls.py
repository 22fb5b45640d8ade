"""The client over TLS: a broker behind a front that speaks it and asks for certificates."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.client.commands.looking import Ottla
from tests.support.certificates import Certificates
from tests.support.proxy import Proxy

from ottla_client import Consumer, Producer
from ottla_client.errors import ClientError


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def front(certificates: Certificates, own_broker: Callable[..., Any]) -> Iterator[Proxy]:
    """Takes those alone whose certificate the authority has signed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates.authority)
    context.load_cert_chain(certificates.server)
    context.verify_mode = ssl.CERT_REQUIRED
    with Proxy(context) as proxy:
        settings = {"advertised.listeners": f"PLAINTEXT://{proxy.address}"}
        proxy.target = own_broker(settings=settings).port
        yield proxy


def context(authority: str, certificate: str | None) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=authority)
    if certificate is not None:
        made.load_cert_chain(certificate)
    return made


async def test_records_over_tls(front: Proxy, certificates: Certificates) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": front.address,
        "security_protocol": "SSL",
        "ssl_context": context(certificates.authority, certificates.broker),
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


@pytest.mark.parametrize(
    ("authority", "certificate", "reason"),
    [
        ("another", "broker", "is not trusted: .*cafile"),
        ("authority", "stranger", "the broker closed it"),
        ("authority", None, "the broker closed it"),
    ],
)
async def test_certificates_that_will_not_do(
    front: Proxy, certificates: Certificates, authority: str, certificate: str | None, reason: str
) -> None:
    given = context(getattr(certificates, authority), certificate and getattr(certificates, certificate))
    producer = Producer(front.address, security_protocol="SSL", ssl_context=given, request_timeout_ms=2000)
    with pytest.raises(ClientError, match=reason) as caught:
        await producer.start()
    assert front.address in str(caught.value)
    await producer.close()


async def test_plain_text_where_tls_is_spoken(front: Proxy) -> None:
    producer = Producer(front.address, request_timeout_ms=2000)
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
