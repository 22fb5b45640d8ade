"""A broker whose listeners need a login: unmodified clients with each mechanism, and logins that fail."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from harness.ports import free_port
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

import ottla_client
import ottla_client.errors
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.metadata import MetadataRequest
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.sasl.plain import PlainClient
from ottla_protocol.sasl.scram import ScramClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

# kafka-python loads its schemas by a deprecated call.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_VALUES = [b"%04d" % number for number in range(100)]
_PLAIN_LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required"
    ' user_alice="alice-secret" user_bob="bob; \\"secret\\"";'
)


class SaslBroker:
    """A broker with a listener for administration, one with SASL, and one with SASL over TLS."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.certificates = certificates
        self.port, self.tls_port = free_port(), free_port()
        self.process = BrokerProcess(
            folder / "data",
            {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": _PLAIN_LOGIN,
                "listener.name.sasl_ssl.plain.sasl.jaas.config": _PLAIN_LOGIN,
                "listener.name.sasl_plaintext.scram-sha-512.connections.max.reauth.ms": 1500,
                "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 60_000,
                "connection.failed.authentication.delay.ms": 10,
                "password.encoder.secret": "the secret of the test",
                "ssl.keystore.location": certificates.server,
                "group.initial.rebalance.delay.ms": 0,
                "offsets.topic.num.partitions": 1,
            },
        )
        self.process.settings["listeners"] = (
            f"PLAINTEXT://{self.process.bootstrap},SASL_PLAINTEXT://127.0.0.1:{self.port},"
            f"SASL_SSL://127.0.0.1:{self.tls_port}"
        )

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.process.bootstrap})

    def set_password(self, user: str, password: str, *mechanisms: ScramMechanism) -> None:
        for mechanism in mechanisms or (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            self.admin.alter_user_scram_credentials([change])[user].result(60)

    def reasons(self) -> list[str]:
        return [str(line["reason"]) for line in self.process.events() if line["event"] == "connection closed"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    folder = tmp_path_factory.mktemp("sasl")
    made = SaslBroker(folder, Certificates(tmp_path_factory.mktemp("certificates")))
    with made.process as process:
        made.set_password("alice", "alice-secret")
        made.set_password("ünï=,", "päss")
        yield made
        assert process.complaints() == []


MECHANISMS = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])


@MECHANISMS
@pytest.mark.parametrize("tls", [False, True])
def test_confluent_kafka(broker: SaslBroker, mechanism: str, tls: bool) -> None:
    options = {
        "bootstrap.servers": f"localhost:{broker.tls_port if tls else broker.port}",
        "broker.address.family": "v4",
        "security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "ssl.ca.location": broker.certificates.authority,
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }
    topic = f"confluent-{mechanism}-{tls}"
    producer = confluent_kafka.Producer(options)
    for value in _VALUES:
        producer.produce(topic, value)
    assert producer.flush(60) == 0
    consumer = confluent_kafka.Consumer({**options, "group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        read: list[bytes | None] = []
        while len(read) < len(_VALUES):
            read += [message.value() for message in consumer.consume(len(_VALUES) - len(read), 60)]
        assert read == _VALUES
    finally:
        consumer.close()


@MECHANISMS
async def test_aiokafka(broker: SaslBroker, mechanism: str) -> None:
    given = {
        "bootstrap_servers": f"127.0.0.1:{broker.tls_port}",
        "security_protocol": "SASL_SSL",
        "ssl_context": broker.certificates.shown(None),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    topic = f"aiokafka-{mechanism}"
    async with aiokafka.AIOKafkaProducer(**given) as producer:
        for value in _VALUES:
            await producer.send(topic, value)
        await producer.flush()
    async with aiokafka.AIOKafkaConsumer(topic, auto_offset_reset="earliest", **given) as consumer:
        assert [(await consumer.getone()).value for _ in _VALUES] == _VALUES


@MECHANISMS
def test_kafka_python(broker: SaslBroker, mechanism: str) -> None:
    given = {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }
    topic = f"kafka-python-{mechanism}"
    producer = kafka.KafkaProducer(**given)
    sent = [producer.send(topic, value) for value in _VALUES]
    producer.flush(60)
    assert all(each.succeeded() for each in sent)
    producer.close()
    consumer = kafka.KafkaConsumer(topic, auto_offset_reset="earliest", **given)
    assert [next(consumer).value for _ in _VALUES] == _VALUES
    consumer.close()


def options(broker: SaslBroker, mechanism: str, *, tls: bool = True) -> dict[str, Any]:
    """Options of the bundled client."""
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.tls_port if tls else broker.port}",
        "security_protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        **({"ssl_cafile": broker.certificates.authority} if tls else {}),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
        "sasl_plain_password": "alice-secret",
    }


@MECHANISMS
async def test_bundled_client(broker: SaslBroker, mechanism: str) -> None:
    topic = f"bundled-{mechanism}"
    async with ottla_client.Producer(**options(broker, mechanism)) as producer:
        await (await producer.send_batch(topic, _VALUES))
    async with ottla_client.Consumer(
        topic, group_id=topic, auto_offset_reset="earliest", **options(broker, mechanism)
    ) as consumer:
        read: list[bytes | None] = []
        while len(read) < len(_VALUES):
            read += [each.value for each in await consumer.poll(timeout_ms=30_000)]
        assert read == _VALUES


async def test_bundled_client_logs_in_again(broker: SaslBroker) -> None:
    """Its sessions end after 1.5 seconds; records go on."""
    given = options(broker, "SCRAM-SHA-512", tls=False)
    sent = 0
    async with ottla_client.Producer(**given, linger_ms=0) as producer:
        end = time.monotonic() + 4
        while time.monotonic() < end:
            await (await producer.send("again", b"x"))
            sent += 1
            await asyncio.sleep(0.01)
    async with ottla_client.Admin(**given) as admin:
        assert "again" in await admin.list_topics()
    assert sent > 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"sasl_plain_password": "wrong"},
            "the login of alice by SCRAM-SHA-256 failed: Authentication failed",
        ),
        ({"sasl_plain_username": "eve"}, "the login of eve by SCRAM-SHA-256 failed: Authentication failed"),
        ({"security_protocol": "SASL_PLAINTEXT", "ssl_cafile": None}, "127.0.0.1"),
    ],
)
async def test_bundled_client_says_why_it_cannot_log_in(
    broker: SaslBroker, changed: dict[str, Any], message: str
) -> None:
    producer = ottla_client.Producer(**{**options(broker, "SCRAM-SHA-256"), **changed, "max_block_ms": 3000})
    with pytest.raises(ottla_client.errors.ClientError, match=message):
        await producer.start()
    await producer.close()


@pytest.mark.parametrize("file", [False, True])
def test_commands_log_in(broker: SaslBroker, tmp_path: Path, file: bool) -> None:
    given = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": broker.certificates.authority,
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": 'x.ScramLoginModule required username="alice" password="alice-secret";',
    }
    where = ["-b", f"127.0.0.1:{broker.tls_port}"]
    if file:
        path = tmp_path / "client.properties"
        path.write_text("# a comment\n\n" + "".join(f"{key}={value}\n" for key, value in given.items()))
        where += ["--command-config", str(path)]
    else:
        where += [part for key, value in given.items() for part in ("-X", f"{key}={value}")]
    ended = subprocess.run(
        [sys.executable, "-m", "ottla_cli", "topics", "list", *where], capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr.decode()


def choose(wire: Wire, mechanism: str, version: int = 1) -> Any:
    return wire.call(SaslHandshakeRequest(mechanism=mechanism), version)


def log_in(wire: Wire, user: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    """Authenticate; returns the last answer."""
    answer = choose(wire, mechanism)
    assert answer.error_code == 0
    client: PlainClient | ScramClient = PlainClient(user, password)
    if mechanism != "PLAIN":
        client = ScramClient(mechanism, user, password, os.urandom(12).hex())
    message: bytes | None = client.first()
    while message is not None:
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        if answer.error_code:
            return answer
        message = client.respond(answer.auth_bytes)
    return answer


@MECHANISMS
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("eve", "alice-secret"), ("ALICE", "alice-secret")]
)
def test_wrong_logins_are_refused_alike(broker: SaslBroker, mechanism: str, user: str, password: str) -> None:
    expected = "Authentication failed: Invalid username or password"
    if mechanism != "PLAIN":
        expected = (
            "Authentication failed during authentication due to invalid credentials with SASL mechanism"
            f" {mechanism}"
        )
    with Wire(broker.port) as wire:
        answer = log_in(wire, user, password, mechanism)
        assert (answer.error_code, answer.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, expected)
        assert wire.is_closed()
    said = f"authentication failed: {expected} (user {user!r})"
    wait_for(lambda: said in broker.reasons(), "the line in the log")


def test_the_log_cuts_and_escapes_the_name_of_a_failed_login(broker: SaslBroker) -> None:
    with Wire(broker.port) as wire:
        log_in(wire, "eve\n\x1b[1m" + "e" * 100, "wrong", "PLAIN")
    said = repr("eve\n\x1b[1m" + "e" * 100)[: 64 + 4]
    wait_for(
        lambda: any("(user 'eve\\n\\x1b[1m" in each and "e" * 60 not in each for each in broker.reasons()),
        f"the line with {said}",
    )


def test_an_unknown_user_has_the_same_salt_after_a_restart(broker: SaslBroker) -> None:
    def first_answer() -> str:
        with Wire(broker.port) as wire:
            assert choose(wire, "SCRAM-SHA-256").error_code == 0
            message = ScramClient("SCRAM-SHA-256", "eve", "x", os.urandom(12).hex()).first()
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2).auth_bytes.decode()
            return str(answer.partition(",")[2])

    before = first_answer()
    assert before.startswith("s=")
    broker.process.stop()
    broker.process.start()
    assert first_answer() == before


def test_names_and_passwords_beyond_ascii(broker: SaslBroker) -> None:
    with Wire(broker.port) as wire:
        assert log_in(wire, "ünï=,", "päss").error_code == 0
        assert wire.call(MetadataRequest(topics=[]), 4).brokers
    with Wire(broker.port) as wire:
        assert log_in(wire, "bob", 'bob; "secret"', "PLAIN").error_code == 0


def test_a_mechanism_that_is_not_offered(broker: SaslBroker) -> None:
    with Wire(broker.port) as wire:
        answer = choose(wire, "GSSAPI")
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert wire.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        request_bytes(MetadataRequest(topics=[]), 4),
        request_bytes(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret"), 2),
        request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        + request_bytes(MetadataRequest(topics=[]), 4),
        request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        + request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 65537),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"\x00\x11\x00",
        struct.pack(">ihhih", 14, 17, 1, 1, -1) + b"\xff\xff\xff\xff",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_other_requests_before_a_login_close_the_connection(broker: SaslBroker, data: bytes) -> None:
    with Wire(broker.port) as wire:
        assert wire.call(
            ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3
        ).api_keys
        wire.send(data)
        with suppress(ConnectionError):
            while True:
                assert wire.receive()


def test_messages_without_headers(broker: SaslBroker) -> None:
    """As clients before Kafka 1.0 send them (SaslHandshake version 0)."""
    with Wire(broker.port) as wire:
        assert choose(wire, "SCRAM-SHA-256", 0).error_code == 0
        client = ScramClient("SCRAM-SHA-256", "alice", "alice-secret", "abc")
        message: bytes | None = client.first()
        while message is not None:
            wire.send(struct.pack(">i", len(message)) + message)
            message = client.respond(wire.receive())
        assert wire.call(MetadataRequest(topics=[]), 4).brokers
    with Wire(broker.port) as wire:
        assert choose(wire, "PLAIN", 0).error_code == 0
        wire.send(struct.pack(">i", 8) + b"\0alice\0x")
        assert wire.is_closed()


def test_large_requests_are_for_those_who_have_logged_in(broker: SaslBroker) -> None:
    large = struct.pack(">ihhih", 14 + 200_000, 3, 4, 7, -1) + struct.pack(">i", 0) + bytes(200_000)
    with Wire(broker.port) as wire:
        assert log_in(wire, "alice", "alice-secret").error_code == 0
        wire.send(large)
        assert wire.receive()[:4] == struct.pack(">i", 7)


def test_a_second_login(broker: SaslBroker) -> None:
    with Wire(broker.port) as wire:
        first = log_in(wire, "alice", "alice-secret", "PLAIN")
        assert (first.error_code, first.session_lifetime_ms) == (0, 60_000)
        time.sleep(1.1)  # Kafka, too, refuses a second login within a second.
        assert log_in(wire, "alice", "alice-secret", "PLAIN").error_code == 0
        assert wire.call(MetadataRequest(topics=[]), 4).brokers
        time.sleep(1.1)
        answer = log_in(wire, "bob", 'bob; "secret"', "PLAIN")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        expected = "Cannot change principals during re-authentication from User:alice to User:bob"
        assert answer.error_message == expected
        assert wire.is_closed()


def test_another_mechanism_for_the_second_login(broker: SaslBroker) -> None:
    with Wire(broker.port) as wire:
        assert log_in(wire, "alice", "alice-secret", "SCRAM-SHA-512").error_code == 0
        wire.send(request_bytes(SaslHandshakeRequest(mechanism="PLAIN"), 1))
        assert wire.is_closed()


def test_a_session_that_has_expired(broker: SaslBroker) -> None:
    with Wire(broker.port) as wire:
        assert log_in(wire, "alice", "alice-secret", "SCRAM-SHA-512").error_code == 0
        time.sleep(1.6)
        wire.send(request_bytes(MetadataRequest(topics=[]), 4))
        assert wire.is_closed()


def test_logins_where_none_is_needed(broker: SaslBroker) -> None:
    with Wire(broker.process.port) as wire:
        assert choose(wire, "PLAIN").error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=b"x"), 2)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.call(MetadataRequest(topics=[]), 4).brokers


def test_passwords_change_while_the_broker_runs(broker: SaslBroker) -> None:
    def works(password: str, mechanism: str = "SCRAM-SHA-256") -> bool:
        with Wire(broker.port) as wire:
            return log_in(wire, "carol", password, mechanism).error_code == 0

    assert not works("one")
    broker.set_password("carol", "one")
    assert works("one")
    broker.set_password("carol", "two", ScramMechanism.SCRAM_SHA_256)
    assert (works("one"), works("two"), works("one", "SCRAM-SHA-512")) == (False, True, True)
    found = broker.admin.describe_user_scram_credentials(["carol"])["carol"].result(60)
    assert [(each.mechanism, each.iterations) for each in found.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096),
        (ScramMechanism.SCRAM_SHA_512, 4096),
    ]
    everyone = broker.admin.describe_user_scram_credentials().result(60)
    assert set(everyone) == {"alice", "carol", "ünï=,"}
    # Another start reads them from the store.
    broker.process.stop()
    broker.process.start()
    assert works("two")
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        gone = UserScramCredentialDeletion("carol", mechanism)
        broker.admin.alter_user_scram_credentials([gone])["carol"].result(60)
    assert not works("two")
    assert set(broker.admin.describe_user_scram_credentials().result(60)) == {"alice", "ünï=,"}


def alter(broker: SaslBroker, name: str, value: str | None, entity: str = "1001") -> tuple[int, str]:
    """Change a setting of the broker at runtime; returns the error's code and message."""
    change = AlterableConfig(name=name, config_operation=1 if value is None else 0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=entity, configs=[change])
    with Wire(broker.process.port) as wire:
        answer = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses[0]
    return answer.error_code, answer.error_message or ""


def test_users_of_plain_change_while_the_broker_runs(broker: SaslBroker) -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"

    def works(user: str, password: str) -> bool:
        with Wire(broker.port) as wire:
            return log_in(wire, user, password, "PLAIN").error_code == 0

    with Wire(broker.port) as earlier:
        assert log_in(earlier, "alice", "alice-secret", "PLAIN").error_code == 0
        assert alter(broker, name, f'{module} user_carol="carols-secret" user_alice="new-secret";')[0] == 0
        assert (works("carol", "carols-secret"), works("alice", "alice-secret")) == (True, False)
        assert works("alice", "new-secret")
        # A login lasts as long as its connection, or until its client has to log in again.
        assert earlier.call(MetadataRequest(topics=[]), 4).brokers
        time.sleep(1.1)
        answer = log_in(earlier, "alice", "alice-secret", "PLAIN")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert earlier.is_closed()
    (described,) = broker.admin.describe_configs([ConfigResource("broker", "1001")]).values()
    entry = described.result(60)[name]
    assert (entry.value, entry.is_sensitive, entry.is_read_only) == (None, True, False)
    broker.process.stop()
    kept = b"".join(path.read_bytes() for path in broker.process.folder.rglob("*") if path.is_file())
    assert b"cipherAlgorithm:AES/CBC/PKCS5Padding" in kept
    assert b"carols-secret" not in kept + broker.process.log().encode()
    broker.process.start()
    assert (works("carol", "carols-secret"), works("alice", "alice-secret")) == (True, False)
    assert alter(broker, name, None)[0] == 0
    assert (works("carol", "carols-secret"), works("alice", "alice-secret")) == (False, True)


@pytest.mark.parametrize(
    ("name", "value", "entity", "message"),
    [
        ("sasl_plaintext.plain", "{module} user_eve=eves-secret", "1001", "a login has the form"),
        ("sasl_plaintext.plain", "{module} required;", "1001", "has no users"),
        ("sasl_plaintext.plain", "{module}x required user_eve=eves-secret;", "1001", "class must be"),
        (
            "sasl_plaintext.plain",
            "{module} required user_eve=eves-secret;",
            "",
            "broker id must be specified",
        ),
        ("sasl_plaintext", "{module} required user_eve=eves-secret;", "1001", "one mechanism of a listener"),
        ("", "{module} required user_eve=eves-secret;", "1001", "one mechanism of a listener"),
        ("plaintext.plain", "{module} required user_eve=eves-secret;", "1001", "no listener of this broker"),
        ("sasl_ssl.oauthbearer", "x required user_eve=eves-secret;", "1001", "no listener of this broker"),
    ],
)
def test_changes_of_logins_that_are_refused(
    broker: SaslBroker, name: str, value: str, entity: str, message: str
) -> None:
    text = value.format(module="org.apache.kafka.common.security.plain.PlainLoginModule")
    key = f"listener.name.{name}.sasl.jaas.config" if name else "sasl.jaas.config"
    code, said = alter(broker, key, text, entity)
    assert code in (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)
    assert message in said
    assert "eves-secret" not in said


def test_changes_of_passwords_that_are_refused(broker: SaslBroker) -> None:
    def upsertion(name: str = "dave", mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
        return ScramCredentialUpsertion(
            name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=bytes(32)
        )

    twice = [upsertion("twice"), upsertion("twice")]
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name="absent", mechanism=1)],
        upsertions=[
            upsertion(""),
            upsertion("few", iterations=4095),
            upsertion("many", iterations=16385),
            upsertion("what", mechanism=3),
            *twice,
            upsertion("fine"),
        ],
    )
    with Wire(broker.process.port) as wire:
        answer = wire.call(request, 0)
        assert {each.user: each.error_code for each in answer.results} == {
            "absent": ErrorCode.RESOURCE_NOT_FOUND,
            "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "few": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "many": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "what": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "twice": ErrorCode.DUPLICATE_RESOURCE,
            "fine": 0,
        }
        gone = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="fine", mechanism=1)])
        assert wire.call(gone, 0).results[0].error_code == 0
