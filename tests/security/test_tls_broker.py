"""A broker with a TLS listener, unmodified clients on it, and new certificates while it runs."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import warnings
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from harness.ports import free_port
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

# kafka-python loads its schemas by a deprecated call.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
_VALUES = [b"%04d" % number * 250 for number in range(300)]


class TlsBroker:
    """A broker with a plain listener, one with TLS, and one that asks clients for certificates (``mutual``)."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.certificates = certificates
        self.keystore = folder / "keystore.pem"
        shutil.copy(certificates.server, self.keystore)
        self.tls_port, self.mutual_port = free_port(), free_port()
        self.process = BrokerProcess(
            folder / "data",
            {
                "ssl.keystore.location": self.keystore,
                "ssl.keystore.type": "PEM",
                "listener.name.mutual.ssl.client.auth": "required",
                "listener.name.mutual.ssl.truststore.location": certificates.authority,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL",
                "group.initial.rebalance.delay.ms": 0,
                "offsets.topic.num.partitions": 1,
            },
        )
        self.process.settings["listeners"] = (
            f"PLAINTEXT://{self.process.bootstrap},SSL://{self.tls},MUTUAL://{self.mutual}"
        )

    @property
    def tls(self) -> str:
        return f"127.0.0.1:{self.tls_port}"

    @property
    def mutual(self) -> str:
        return f"127.0.0.1:{self.mutual_port}"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    folder = tmp_path_factory.mktemp("tls")
    made = TlsBroker(folder, Certificates(tmp_path_factory.mktemp("certificates")))
    with made.process as process:
        yield made
        assert process.complaints() == []


def options(broker: TlsBroker, *, mutual: bool = False) -> dict[str, str]:
    shown = {
        "ssl.certificate.location": broker.certificates.broker,
        "ssl.key.location": broker.certificates.broker,
    }
    return {
        "bootstrap.servers": broker.mutual if mutual else broker.tls,
        "security.protocol": "SSL",
        "ssl.ca.location": broker.certificates.authority,
        **(shown if mutual else {}),
    }


@pytest.mark.parametrize("mutual", [False, True])
def test_confluent_kafka(broker: TlsBroker, mutual: bool) -> None:
    topic = f"confluent-{mutual}"
    producer = confluent_kafka.Producer(options(broker, mutual=mutual))
    for value in _VALUES:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer(
        {**options(broker, mutual=mutual), "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        read: list[bytes | None] = []
        while len(read) < len(_VALUES):
            read += [message.value() for message in consumer.consume(len(_VALUES) - len(read), 60)]
        assert read == _VALUES
    finally:
        consumer.close()


@pytest.mark.parametrize("mutual", [False, True])
async def test_aiokafka(broker: TlsBroker, mutual: bool) -> None:
    given = {
        "bootstrap_servers": broker.mutual if mutual else broker.tls,
        "security_protocol": "SSL",
        "ssl_context": broker.certificates.shown("broker" if mutual else None),
    }
    topic = f"aiokafka-{mutual}"
    async with aiokafka.AIOKafkaProducer(**given) as producer:
        for value in _VALUES:
            await producer.send(topic, value)
        await producer.flush()
    async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **given) as consumer:
        assert [(await consumer.getone()).value for _ in _VALUES] == _VALUES


def test_kafka_python(broker: TlsBroker) -> None:
    given = {
        "bootstrap_servers": broker.mutual,
        "security_protocol": "SSL",
        "ssl_context": broker.certificates.shown(),
    }
    producer = kafka.KafkaProducer(**given)
    sent = [producer.send("kafka-python", value) for value in _VALUES]
    producer.flush(60)
    assert all(each.succeeded() for each in sent)
    producer.close()
    consumer = kafka.KafkaConsumer("kafka-python", auto_offset_reset="earliest", **given)
    assert [next(consumer).value for _ in _VALUES] == _VALUES
    consumer.close()


def test_each_listener_names_its_own_address(broker: TlsBroker) -> None:
    for where, given in ((broker.tls, options(broker)), (broker.mutual, options(broker, mutual=True))):
        (found,) = AdminClient(given).list_topics(timeout=60).brokers.values()
        assert f"{found.host}:{found.port}" == where


def served(broker: TlsBroker, port: int) -> str:
    """The name in the certificate that a new connection gets."""
    trusting = broker.certificates.shown()
    trusting.check_hostname = False
    with socket.create_connection(("127.0.0.1", port), 60) as plain, trusting.wrap_socket(plain) as tls:
        found = tls.getpeercert()
        assert found is not None
        return str(dict(pair for part in found["subject"] for pair in part)["commonName"])  # type: ignore[misc]


def alter(broker: TlsBroker, name: str, value: str | None) -> None:
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(name, value or "", incremental_operation=operation)
    resource = ConfigResource("broker", "1001", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.process.bootstrap})
    admin.incremental_alter_configs([resource], request_timeout=60)[resource].result(60)


def test_certificates_change_while_the_broker_runs(broker: TlsBroker) -> None:
    certificates = broker.certificates
    assert served(broker, broker.tls_port) == "server"
    # A new file at the same place is read when a setting is made, even to the same value.
    shutil.copy(certificates.broker, broker.keystore)
    assert served(broker, broker.tls_port) == "server"
    alter(broker, "ssl.keystore.location", str(broker.keystore))
    assert served(broker, broker.tls_port) == "broker"
    name = "listener.name.mutual.ssl.keystore.location"
    alter(broker, name, certificates.elsewhere)
    assert (served(broker, broker.mutual_port), served(broker, broker.tls_port)) == ("elsewhere", "broker")
    resource = ConfigResource("broker", "1001")
    admin = AdminClient({"bootstrap.servers": broker.process.bootstrap})
    described = admin.describe_configs([resource], request_timeout=60)[resource].result(60)
    assert described[name].value == certificates.elsewhere
    assert described["ssl.key.password"].is_sensitive
    for wrong, message in (
        (f"{certificates.folder}/none", "no such file"),
        (certificates.authority, "private key"),
    ):
        with pytest.raises(confluent_kafka.KafkaException, match=message):
            alter(broker, name, wrong)
    with pytest.raises(confluent_kafka.KafkaException, match=r"password\.encoder\.secret is not set"):
        alter(broker, "listener.name.mutual.ssl.key.password", "x")
    with pytest.raises(confluent_kafka.KafkaException, match="Cannot update these configs dynamically"):
        alter(broker, "listener.name.mutual.ssl.client.auth", "none")
    alter(broker, name, None)
    shutil.copy(certificates.server, broker.keystore)
    alter(broker, "ssl.keystore.location", str(broker.keystore))
    assert {served(broker, port) for port in (broker.mutual_port, broker.tls_port)} == {"server"}


def test_certificates_that_were_changed_at_runtime_are_served_after_a_restart(
    broker: TlsBroker, tmp_path: Path
) -> None:
    """Also where the first ones are gone."""
    made = TlsBroker(tmp_path, broker.certificates)
    with made.process as process:
        for name in ("ssl", "mutual"):
            alter(made, f"listener.name.{name}.ssl.keystore.location", broker.certificates.elsewhere)
        made.keystore.unlink()
        process.stop()
        process.start()
        assert [served(made, port) for port in (made.tls_port, made.mutual_port)] == ["elsewhere"] * 2


def test_a_client_with_a_foreign_certificate(broker: TlsBroker) -> None:
    stranger = broker.certificates.stranger
    given = {**options(broker), "bootstrap.servers": broker.mutual}
    given |= {"ssl.certificate.location": stranger, "ssl.key.location": stranger}
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(given).list_topics(timeout=2)
    lines = [json.loads(line) for line in broker.process.log().splitlines()]
    reasons = {str(line["reason"]) for line in lines if line["event"] == "TLS handshake failed"}
    assert any("the client's certificate is refused" in reason for reason in reasons)


def test_a_broker_without_a_key_store_does_not_start(tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path / "data", {"listeners": f"SSL://127.0.0.1:{free_port()}"})
    with pytest.raises(RuntimeError, match=r"listener\.name\.ssl\.ssl\.keystore\.location: is missing"):
        process.start()


def test_bytes_after_the_handshake_that_are_no_records(broker: TlsBroker) -> None:
    with socket.create_connection(("127.0.0.1", broker.tls_port), 60) as plain:
        raw = socket.socket(fileno=os.dup(plain.fileno()))
        with raw, broker.certificates.shown(None).wrap_socket(plain, server_hostname="localhost") as tls:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            with pytest.raises((ssl.SSLError, ConnectionError)):
                tls.recv(1000)
