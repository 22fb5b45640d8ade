"""Mutated requests before, during and after a login: the broker goes on serving, and none is a bug.

``OTTLA_FUZZ_FRAMES=100000 OTTLA_FUZZ_SEED=7 pytest tests/security/test_fuzz.py`` goes on for longer.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.badinput.test_fuzz import FRAMES, SEED, Corpus, mutate
from tests.support.oauth import Provider
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire, frame, request_bytes

from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.metadata import MetadataRequest
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.sasl.scram import ScramClient

pytestmark = pytest.mark.ottla_only

CONNECTIONS = FRAMES // 100
PER_CONNECTION = 3
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = b"\0alice\0alice-secret"


class Guarded(BrokerProcess):
    """A broker whose clients log in on a listener."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.guarded = free_port()
        keys = folder.with_name("keys.json")
        keys.write_text(json.dumps(Provider().jwks()))
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},SASL_PLAINTEXT://127.0.0.1:{self.guarded}",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required user_alice=alice-secret;"
            ),
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            ),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": "ottla",
            "connection.failed.authentication.delay.ms": 0,
            "auto.create.topics.enable": False,
            "group.max.session.timeout.ms": 6000,
        }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    made = Guarded(tmp_path_factory.mktemp("fuzzed") / "data")
    with made:
        yield made


def log_in(wire: Wire) -> None:
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert wire.call(SaslAuthenticateRequest(auth_bytes=PASSWORD), 2).error_code == 0


def begin_login(wire: Wire, chance: random.Random) -> None:
    """Choose a mechanism, and perhaps send its first message."""
    mechanism = chance.choice(MECHANISMS)
    version = chance.randrange(2)
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism), version).error_code == 0
    if mechanism.startswith("SCRAM") and chance.random() < 0.5:
        first = ScramClient(mechanism, "alice", "alice-secret", "nonce").first()
        if version:
            wire.call(SaslAuthenticateRequest(auth_bytes=first), 2)
        else:
            wire.send(frame(first))
            wire.receive()


STAGES: dict[str, Callable[[Wire, random.Random], None]] = {
    "before": lambda wire, chance: None,
    "during": begin_login,
    "after": lambda wire, chance: log_in(wire),
}


@pytest.mark.parametrize("stage", STAGES)
def test_mutated_requests(broker: Guarded, stage: str) -> None:
    chance = random.Random(f"{SEED} {stage}")
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
    with Wire(broker.guarded) as bystander:
        log_in(bystander)
        for _ in range(CONNECTIONS):
            with Wire(broker.guarded) as wire:
                STAGES[stage](wire, chance)
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
