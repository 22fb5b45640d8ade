"""A broker whose listeners have OAUTHBEARER: unmodified clients, the bundled one, and tokens that are refused."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import pytest
from harness.ports import free_port
from tests.support.clock import FakeClock
from tests.support.oauth import AUDIENCE, SECRET, Provider
from tests.support.processes import BrokerProcess
from tests.support.waiting import until, wait_for
from tests.support.wire import Wire, request_bytes

import ottla_client
import ottla_client.errors
from ottla_broker.clock import SystemClock
from ottla_broker.config import BrokerConfig
from ottla_broker.config.model import ConfigError
from ottla_broker.network.jwks import Jwks, JwksSettings
from ottla_broker.network.peer import PeerConnection, PeerError
from ottla_protocol.errors import ErrorCode
from ottla_protocol.http_client import HttpError
from ottla_protocol.messages.metadata import MetadataRequest
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.sasl.mechanism import SaslError
from ottla_protocol.sasl.oauthbearer import OAuthClient

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka
    from kafka.net.sasl.oauth import AbstractTokenProvider

_HANDLER = "org.apache.kafka.common.security.oauthbearer.internals.unsecured"
_LOGIN = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


class OAuthBroker:
    """Listeners that read the keys of ``provider`` from its server and from a file, and one for unsecured tokens."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.provider = provider
        self.port, self.file_port, self.unsecured_port = free_port(), free_port(), free_port()
        keys = folder / "keys.json"
        keys.write_text(json.dumps(provider.jwks()))
        self.process = BrokerProcess(
            folder / "data",
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "listener.security.protocol.map": (
                    "PLAINTEXT:PLAINTEXT,WEB:SASL_PLAINTEXT,FILE:SASL_PLAINTEXT,OPEN:SASL_PLAINTEXT"
                ),
                "sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
                "sasl.oauthbearer.expected.issuer": provider.issuer,
                "sasl.oauthbearer.jwks.endpoint.url": f"{provider.url}/jwks",
                "listener.name.file.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
                "listener.name.file.oauthbearer.connections.max.reauth.ms": 60_000,
                "listener.name.open.oauthbearer.sasl.server.callback.handler.class": (
                    f"{_HANDLER}.OAuthBearerUnsecuredValidatorCallbackHandler"
                ),
                "listener.name.open.oauthbearer.sasl.jaas.config": (
                    f'{_LOGIN} unsecuredValidatorRequiredScope="read";'
                ),
                "connection.failed.authentication.delay.ms": 10,
                "group.initial.rebalance.delay.ms": 0,
                "offsets.topic.num.partitions": 1,
            },
        )
        self.process.settings["listeners"] = (
            f"PLAINTEXT://{self.process.bootstrap},WEB://127.0.0.1:{self.port},"
            f"FILE://127.0.0.1:{self.file_port},OPEN://127.0.0.1:{self.unsecured_port}"
        )

    def reasons(self) -> list[str]:
        return [str(line["reason"]) for line in self.process.events() if line["event"] == "connection closed"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OAuthBroker]:
    provider = Provider()
    with provider.serving():
        made = OAuthBroker(tmp_path_factory.mktemp("oauth"), provider)
        with made.process as process:
            yield made
            assert process.complaints() == []


def settings(broker: OAuthBroker, **changes: Any) -> dict[str, Any]:
    """Options of the bundled client that asks the provider's token endpoint."""
    return {
        "bootstrap_servers": f"127.0.0.1:{broker.port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_method": "oidc",
        "sasl_oauthbearer_client_id": "service",
        "sasl_oauthbearer_client_secret": SECRET,
        "sasl_oauthbearer_scope": "read write",
        "sasl_oauthbearer_extensions": "cluster=one",
        "sasl_oauthbearer_token_endpoint_url": f"{broker.provider.url}/token",
        **changes,
    }


def test_confluent_kafka(broker: OAuthBroker) -> None:
    """With a callback, and by the token endpoint."""
    given: dict[str, Any] = {
        "bootstrap.servers": f"127.0.0.1:{broker.port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    }
    endpoint = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "service",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": f"{broker.provider.url}/token",
    }
    callback = {"oauth_cb": lambda _: (broker.provider.token("bob"), time.time() + 300)}
    for more in (endpoint, callback):
        producer = confluent_kafka.Producer({**given, **more})
        producer.produce("confluent", b"x")
        assert producer.flush(60) == 0


class _Tokens(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, provider: Provider) -> None:
        self._provider = provider

    async def token(self) -> str:
        return self._provider.token("alice")

    def extensions(self) -> dict[str, str]:
        return {"cluster": "one"}


async def test_aiokafka(broker: OAuthBroker) -> None:
    given = {
        "bootstrap_servers": f"127.0.0.1:{broker.file_port}",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": _Tokens(broker.provider),
    }
    async with aiokafka.AIOKafkaProducer(**given) as producer:
        await producer.send_and_wait("aiokafka", b"x")


class _KafkaPythonsTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, provider: Provider) -> None:
        super().__init__()
        self._provider = provider

    def token(self) -> str:
        return self._provider.token("alice")


# It loads its schemas by a deprecated call.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python(broker: OAuthBroker) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=f"127.0.0.1:{broker.file_port}",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=_KafkaPythonsTokens(broker.provider),
    )
    sent = producer.send("kafka-python", b"x")
    producer.flush(60)
    assert sent.succeeded()
    producer.close()


async def test_the_bundled_client_asks_the_token_endpoint(broker: OAuthBroker) -> None:
    """Its tokens last two seconds: it gets another, and logs in again, in time."""
    broker.provider.lifetime = 2
    broker.provider.asked.clear()
    try:
        async with ottla_client.Producer(**settings(broker), linger_ms=0) as producer:
            until = time.monotonic() + 3
            while time.monotonic() < until:
                await (await producer.send("bundled", b"x"))
                await asyncio.sleep(0.02)
    finally:
        broker.provider.lifetime = 300
    assert set(broker.provider.asked) == {"read write"}
    assert len(broker.provider.asked) >= 2


async def test_the_bundled_client_has_other_ways_to_get_a_token(broker: OAuthBroker, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(broker.provider.token("from a file") + "\n")
    base = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}

    async def coroutine() -> tuple[str, float]:
        return broker.provider.token("coroutine"), time.time() + 300

    for more in (
        {"sasl_oauthbearer_token_endpoint_url": token.as_uri()},
        {"sasl_oauth_token_provider": _Tokens(broker.provider)},
        {"sasl_oauth_token_provider": lambda: broker.provider.token("function")},
        {"sasl_oauth_token_provider": coroutine},
    ):
        async with ottla_client.Admin(f"127.0.0.1:{broker.port}", **base, **more) as admin:
            assert await admin.list_topics() is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl_oauthbearer_client_secret": "wrong"}, r"answers 401 \('invalid_client'\)"),
        ({"sasl_oauthbearer_token_endpoint_url": "http://127.0.0.1:1/"}, "127.0.0.1:1"),
        ({"sasl_oauthbearer_token_endpoint_url": "file:///no/such"}, "No such file"),
    ],
)
async def test_the_bundled_client_says_why_it_has_no_token(
    broker: OAuthBroker, changes: dict[str, Any], message: str
) -> None:
    admin = ottla_client.Admin(**settings(broker, **changes))
    with pytest.raises(ottla_client.errors.ClientError, match=message) as caught:
        await admin.start()
    await admin.close()
    assert "wrong" not in str(caught.value)


async def test_the_bundled_client_says_why_its_token_is_refused(broker: OAuthBroker) -> None:
    base = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    for provider, message in (
        (lambda: broker.provider.token("alice", aud="other-service"), "failed: .*invalid_token"),
        (lambda: "no token", "malformed"),
        (lambda: 5, "returns int"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ):
        admin = ottla_client.Admin(
            f"127.0.0.1:{broker.port}", **base, sasl_oauth_token_provider=provider, request_timeout_ms=60_000
        )
        with pytest.raises(ottla_client.errors.ClientError, match=message):
            await admin.start()
        await admin.close()


def test_the_command_line(broker: OAuthBroker, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={broker.provider.url}/token\n"
        f'sasl.jaas.config={_LOGIN} clientId="service" clientSecret="{SECRET}" scope="x" extension_a="b";\n'
    )
    where = ["-b", f"127.0.0.1:{broker.port}", "--command-config", str(file)]
    ended = subprocess.run(
        [sys.executable, "-m", "ottla_cli", "topics", "list", *where], capture_output=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr.decode()


def log_in(wire: Wire, token: str, extensions: str = "") -> Any:
    chosen = wire.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    assert (chosen.error_code, chosen.mechanisms) == (0, ["OAUTHBEARER"])
    message = f"n,,\x01auth=Bearer {token}\x01{extensions}\x01".encode()
    return wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)


def test_requests_that_are_sent_ahead_wait_for_the_login(broker: OAuthBroker) -> None:
    """A thread checks the token; what comes meanwhile is served afterwards, or not at all."""
    for token, answers in ((broker.provider.token("alice"), 3), ("a.b.c", 2)):
        message = OAuthClient(token, {}).first()
        requests = [
            (SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1),
            (SaslAuthenticateRequest(auth_bytes=message), 2),
            (MetadataRequest(topics=[]), 9),
        ]
        with Wire(broker.port) as wire:
            wire.send(b"".join(request_bytes(request, version) for request, version in requests))
            for _ in range(answers):
                assert wire.receive()
            if answers < len(requests):
                assert wire.is_closed()


def test_a_session_ends_with_its_token(broker: OAuthBroker) -> None:
    with Wire(broker.file_port) as wire:
        answer = log_in(wire, broker.provider.token("alice"))
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    with Wire(broker.port) as wire:
        answer = log_in(wire, broker.provider.token("alice", lifetime=120))
        assert 0 < answer.session_lifetime_ms <= 120_000


class _OtherBroker:
    """The login of another broker, whose tokens are these; an empty one is none."""

    mechanism = "OAUTHBEARER"
    user = ""

    def __init__(self, *tokens: str) -> None:
        self.left = list(tokens)

    async def client(self) -> OAuthClient:
        if token := self.left.pop(0):
            return OAuthClient(token, {})
        raise SaslError("no token: the provider is down")


async def test_another_broker_renews_its_session(broker: OAuthBroker) -> None:
    """In time; again after a second while it has no token; and not with a token that has expired."""
    clock = FakeClock()
    good, expired = (broker.provider.token("broker-2", lifetime=each) for each in (300, -31))
    login = _OtherBroker(good, "", good, expired)
    connection = await PeerConnection.open(
        "127.0.0.1", broker.file_port, client_id="broker-2", timeout=60, clock=clock, login=login
    )

    async def is_served(left: int) -> None:
        await until(lambda: len(login.left) == left)
        assert (await connection.submit(MetadataRequest(topics=[]), timeout=60)).brokers

    # The listener's sessions last for a minute.
    clock.advance(60 * 0.84)
    await is_served(left=3)
    clock.advance(60 * 0.02)
    await is_served(left=2)
    # A second login within a second is refused, as in Kafka.
    await asyncio.sleep(1.1)
    clock.advance(1)
    await is_served(left=1)
    await asyncio.sleep(1.1)
    clock.advance(60 * 0.86)
    await until(lambda: connection.closed)
    with pytest.raises(PeerError, match=r"this broker's login failed: .*invalid_token"):
        connection.submit(MetadataRequest(topics=[]), timeout=60)
    await connection.wait_closed()


def test_refused_tokens_get_one_answer(broker: OAuthBroker) -> None:
    stranger = Provider()
    good = broker.provider.token("alice")
    for token, reason in (
        (broker.provider.token("alice", lifetime=-31), "expired"),
        (broker.provider.token("alice", aud="other-service"), "audience is 'other-service'"),
        (broker.provider.token("alice", iss="https://evil.test"), "issuer is 'https://evil.test'"),
        (stranger.token("alice"), "signature is wrong"),
        (good[:-4], "signature is wrong"),
        ("x", "not a signed JWT"),
        ("x" * 60_000, "bytes, at most 16384 are read"),
    ):
        with Wire(broker.port) as wire:
            answer = log_in(wire, token)
            assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
            answer = wire.call(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == '{"status":"invalid_token"}'
            assert wire.is_closed()
        wait_for(
            lambda reason=reason: any("authentication failed" in r and reason in r for r in broker.reasons()),
            f"the line about {reason}",
        )
    assert good not in broker.process.log()


def test_tokens_without_signature(broker: OAuthBroker) -> None:
    """They are accepted where that is asked for, and only there."""
    claims = {"sub": "alice", "exp": time.time() + 60, "scope": "read"}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    token = ".".join(urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."
    with Wire(broker.unsecured_port) as wire:
        assert log_in(wire, token, "traceid=5\x01").session_lifetime_ms > 0
        assert wire.call(MetadataRequest(topics=[]), 4).brokers
    with Wire(broker.port) as wire:
        assert log_in(wire, token).auth_bytes == b'{"status":"invalid_token"}'


@pytest.mark.parametrize(
    "path", ["/nothing", "/redirect", "huge", "silent", "closes", "empty", "file:///no/such", "refuses"]
)
async def test_keys_that_cannot_be_read(path: str) -> None:
    """The last ones stay in force; a file has to be there at the start."""
    provider = Provider()
    used: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = {"huge": b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 1_000_000, "empty": b"HTTP/1.1 200 OK\r\n\r\n{}"}
        writer.write(head.get(path, b""))
        if path == "silent":
            await reader.read()
        writer.close()

    def use(data: bytes) -> None:
        if b'"keys"' not in data:
            raise ValueError("has no keys")
        used.append(data)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        with provider.serving():
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            if path.startswith("/"):
                url = provider.url + path
            elif path == "refuses":
                with socket.create_server(("127.0.0.1", 0)) as closed:
                    url = f"http://127.0.0.1:{closed.getsockname()[1]}/"
            elif ":" in path:
                url = path
            reading = JwksSettings(url, 3600, 3600, 3600, 60, 0.2 if path == "silent" else 60)
            jwks = Jwks(reading, use, _no_tls, SystemClock(asyncio.get_running_loop()))
            if ":" in path:
                with pytest.raises(HttpError, match="No such file"):
                    await jwks.start()
            else:
                await jwks.start()
            await jwks.close()
            assert used == []
    finally:
        server.close()
        await server.wait_closed()


async def test_an_unknown_key_is_looked_for(tmp_path: Path) -> None:
    """At once, but not for each token."""
    file = tmp_path / "keys.json"
    file.write_text("one")
    used: list[bytes] = []
    reading = JwksSettings(file.as_uri(), 3600, 3600, 3600, 60, 60)
    jwks = Jwks(reading, used.append, _no_tls, SystemClock(asyncio.get_running_loop()))
    await jwks.start()
    file.write_text("two")
    jwks.expedite()
    async with asyncio.timeout(60):
        while len(used) < 2:
            await asyncio.sleep(0.01)
    jwks.expedite()
    await asyncio.sleep(0.05)
    await jwks.close()
    assert used == [b"one", b"two"]


def _no_tls() -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "sasl.oauthbearer.jwks.endpoint.url: is missing"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}, "http: or file: URL"),
        ({"sasl.server.callback.handler.class": "my.Own"}, "is a Java class"),
        ({"listener.name.b.plain.sasl.oauthbearer.scope.claim.name": "x"}, "no effect"),
    ],
)
def test_configurations_that_are_refused(given: dict[str, str], message: str) -> None:
    base = {"listeners": "SASL_PLAINTEXT://127.0.0.1:1", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    if message == "no effect":
        base["sasl.oauthbearer.jwks.endpoint.url"] = "https://id.test/jwks"
        assert any(message in line for line in BrokerConfig.from_properties({**base, **given}).warnings)
        return
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.from_properties({**base, **given})
