"""Mutated requests before, during and after a login by each mechanism, in plain text and over TLS.

The broker goes on serving, and none is a bug.

``OTTLA_FUZZ_FRAMES=100000 OTTLA_FUZZ_SEED=7 pytest tests/security/test_fuzz.py`` goes on for longer.
"""

from __future__ import annotations

import json
import random
import ssl
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.badinput.test_fuzz import FRAMES, SEED, Corpus, mutate
from tests.support.certificates import Certificates
from tests.support.oauth import AUDIENCE, Provider
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire, frame, request_bytes

from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.metadata import MetadataRequest
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.sasl.mechanism import CODES, SaslClient
from ottla_protocol.sasl.oauthbearer import OAuthClient
from ottla_protocol.sasl.plain import PlainClient
from ottla_protocol.sasl.scram import ScramClient, salt_password

pytestmark = pytest.mark.ottla_only

CONNECTIONS = FRAMES // 150
PER_CONNECTION = 3
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = b"\0alice\0alice-secret"
Stage = Callable[["Guarded", Wire, str, random.Random], None]


class Guarded(BrokerProcess):
    """A broker whose clients log in on two listeners, one of them over TLS."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.guarded, self.tls = free_port(), free_port()
        certificates = Certificates(folder.parent)
        self.context = certificates.shown(None)
        self.provider = Provider()
        keys = folder.with_name("keys.json")
        keys.write_text(json.dumps(self.provider.jwks()))
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=alice-secret;"
        bearer = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
        self.settings |= {
            "listeners": (
                f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://127.0.0.1:{self.guarded},"
                f"SASL_SSL://127.0.0.1:{self.tls}"
            ),
            "ssl.keystore.location": certificates.server,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            **{
                f"listener.name.{listener}.{mechanism}.sasl.jaas.config": login
                for listener in ("sasl_plaintext", "sasl_ssl")
                for mechanism, login in (("plain", plain), ("oauthbearer", bearer))
            },
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connection.failed.authentication.delay.ms": 0,
            "auto.create.topics.enable": False,
            "group.max.session.timeout.ms": 6000,
        }

    def connect(self, over: str) -> Wire:
        """A connection, after the handshake of TLS if it is over TLS."""
        wire = Wire(self.guarded if over == "plain" else self.tls)
        if over == "tls":
            wire.socket = self.context.wrap_socket(wire.socket, server_hostname="localhost")
        return wire

    def add_user(self) -> None:
        """Give alice her password for SCRAM."""
        upsertions = [
            ScramCredentialUpsertion(
                name="alice",
                mechanism=code,
                iterations=4096,
                salt=b"salt",
                salted_password=salt_password(mechanism, "alice-secret", b"salt", 4096),
            )
            for code, mechanism in CODES.items()
        ]
        with Wire(self.port) as wire:
            answer = wire.call(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)
        assert not any(result.error_code for result in answer.results)

    def client(self, mechanism: str, chance: random.Random) -> SaslClient:
        if mechanism == "PLAIN":
            return PlainClient("alice", "alice-secret")
        if mechanism == "OAUTHBEARER":
            return OAuthClient(self.provider.token("alice"), {})
        return ScramClient(mechanism, "alice", "alice-secret", chance.randbytes(9).hex())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("fuzzed") / "data")
    with made:
        made.add_user()
        yield made


def log_in(wire: Wire, client: SaslClient, mechanism: str, version: int = 1, messages: int = 9) -> None:
    """Choose a mechanism, and send at most so many of its messages."""
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism), version).error_code == 0
    message: bytes | None = client.first()
    while message is not None and messages:
        messages -= 1
        if version:
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)
            assert answer.error_code == 0
            message = client.respond(answer.auth_bytes)
        else:
            wire.send(frame(message))
            message = client.respond(wire.receive())
    assert client.complete or not messages


def before(broker: Guarded, wire: Wire, mechanism: str, chance: random.Random) -> None:
    """Nothing is sent first."""


def during(broker: Guarded, wire: Wire, mechanism: str, chance: random.Random) -> None:
    messages = chance.randrange(2) if mechanism.startswith("SCRAM") else 0
    log_in(wire, broker.client(mechanism, chance), mechanism, chance.randrange(2), messages)


def after(broker: Guarded, wire: Wire, mechanism: str, chance: random.Random) -> None:
    log_in(wire, broker.client(mechanism, chance), mechanism, chance.randrange(2))


@pytest.mark.parametrize("over", ["plain", "tls"])
@pytest.mark.parametrize("stage", [before, during, after])
def test_mutated_requests(broker: Guarded, stage: Stage, over: str) -> None:
    chance = random.Random(f"{SEED} {stage.__name__} {over}")
    with Wire(broker.port) as open_to_all:
        corpus = Corpus(open_to_all, "fuzzed", chance)
    logins = [
        request_bytes(message, version)[4:]
        for version in (0, 1)
        for message in (
            ApiVersionsRequest(client_software_name="x", client_software_version="1"),
            SaslHandshakeRequest(mechanism=chance.choice(MECHANISMS)),
            SaslAuthenticateRequest(auth_bytes=PASSWORD),
            SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"),
            SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Bearer a.b.c\x01\x01"),
        )
    ]
    with broker.connect(over) as bystander:
        after(broker, bystander, "PLAIN", chance)
        for number in range(CONNECTIONS):
            with broker.connect(over) as wire:
                stage(broker, wire, MECHANISMS[number % len(MECHANISMS)], chance)
                data = b""
                for _ in range(PER_CONNECTION):
                    mutated = corpus.draw() if chance.random() < 0.4 else bytearray(chance.choice(logins))
                    for _ in range(chance.choice((0, 1, 1, 2))):
                        mutate(mutated, corpus.draw(), chance)
                    data += frame(mutated)
                with suppress(OSError):
                    wire.send(data)
                    wire.socket.settimeout(0.002)
                    while wire.socket.recv(1 << 16):
                        pass
        assert bystander.call(MetadataRequest(topics=[]), 4).brokers
    assert not broker.complaints()


def test_mutated_handshakes_of_tls(broker: Guarded) -> None:
    """A client's hello, and what it sends after the server's, with a few bytes changed."""
    chance = random.Random(f"{SEED} handshakes")
    for number in range(2 * CONNECTIONS):
        coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = broker.context.wrap_bio(coming, going, server_hostname="localhost")
        with Wire(broker.tls) as wire:
            wire.socket.settimeout(0.002)
            for breaks in (number % 2 == 0, True):
                with suppress(OSError, ssl.SSLError):
                    tls.do_handshake()
                data = bytearray(going.read())
                if breaks:
                    mutate(data, bytearray(chance.randbytes(100)), chance)
                with suppress(OSError):
                    wire.send(data)
                    wire.socket.settimeout(0.002 if breaks else 1)
                    coming.write(wire.socket.recv(1 << 16))
    with broker.connect("tls") as wire:
        after(broker, wire, "SCRAM-SHA-256", chance)
    assert not broker.complaints()
