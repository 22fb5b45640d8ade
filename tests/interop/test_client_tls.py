"""The bundled client with Kafka's TLS: a listener that asks for certificates, as Kafka 3.9.1 answers there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from harness.brokers import HOST, running
from harness.java import Unavailable
from harness.ports import free_port
from tests.support.certificates import Certificates
from tests.support.kafka import QuickKafka

from ottla_client.errors import BootstrapError
from ottla_client.sync import Consumer, Producer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def address(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port, plain, voter = free_port(), free_port(), free_port()
    settings = {
        "controller.quorum.voters": f"1@{HOST}:{voter}",
        "listeners": f"PLAINTEXT://{HOST}:{plain},CONTROLLER://{HOST}:{voter},TLS://{HOST}:{port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{plain},TLS://{HOST}:{port}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": certificates.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": certificates.authority,
        "ssl.client.auth": "required",
    }
    try:
        broker = QuickKafka(tmp_path_factory.mktemp("kafka"), settings, plain)
    except Unavailable as lack:
        pytest.skip(str(lack))
    with running(broker):
        yield f"{HOST}:{port}"


def test_records_there_and_back(address: str, certificates: Certificates) -> None:
    given = certificates.shown()
    values = [b"%d" % number for number in range(10_000)]
    with Producer(address, security_protocol="SSL", ssl_context=given) as producer:
        producer.send_batch("t", values).result()
    consumer = Consumer(
        "t",
        bootstrap_servers=address,
        security_protocol="SSL",
        ssl_context=given,
        group_id="g",
        auto_offset_reset="earliest",
    )
    read: list[bytes | None] = []
    with consumer:
        while len(read) < len(values):
            read += [each.value for each in consumer.poll(timeout_ms=30_000)]
    assert read == values


@pytest.mark.parametrize(
    ("authority", "certificate", "reason"),
    [
        ("authority", "stranger", r"refused the TLS connection \(\w*ALERT_CERTIFICATE_UNKNOWN\)"),
        ("authority", None, r"refused the TLS connection \(\w*ALERT_BAD_CERTIFICATE\)"),
        ("another", "broker", r"the certificate of .* is not trusted"),
    ],
)
def test_certificates_that_will_not_do(
    address: str, certificates: Certificates, authority: str, certificate: str | None, reason: str
) -> None:
    given = certificates.shown(certificate, trusting=authority)
    with pytest.raises(BootstrapError, match=reason):
        Producer(address, security_protocol="SSL", ssl_context=given).start()


def test_plain_text_where_tls_is_spoken(address: str) -> None:
    with pytest.raises(BootstrapError, match=r"it is a TLS listener, set security_protocol"):
        Producer(address).start()
