"""Delegation tokens: who may have them, what they log in to, and when they end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.ports import free_port
from hypothesis import given
from hypothesis import strategies as st
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire

import ottla_client
import ottla_client.errors
from ottla_broker.store.keys import BadNodeError
from ottla_broker.store.token_nodes import TokenInfo, TokenNode
from ottla_client.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    DelegationToken,
    ResourcePattern,
)
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla_protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla_protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.sasl.plain import PlainClient
from ottla_protocol.sasl.scram import ScramClient

_DAY = 86_400_000
_USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required" + "".join(
    f' user_{name}="{name}-secret"' for name in ("admin", "alice", "bob", "carol")
)


class TokenBroker:
    """A broker with ACLs and logins by PLAIN and SCRAM."""

    def __init__(self, folder: Path, **settings: object) -> None:
        self.port = free_port()
        self.process = BrokerProcess(
            folder / "data",
            {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{_USERS};",
                "connection.failed.authentication.delay.ms": 10,
                "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
                "super.users": "User:admin;User:ANONYMOUS",
                **settings,
            },
        )
        self.process.settings["listeners"] = (
            f"PLAINTEXT://{self.process.bootstrap},SASL_PLAINTEXT://127.0.0.1:{self.port}"
        )

    def options(self, user: str, token: DelegationToken | None = None) -> dict[str, Any]:
        """Options of the bundled client, which logs in by a password or by a token."""
        return {
            "bootstrap_servers": f"127.0.0.1:{self.port}",
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN" if token is None else "SCRAM-SHA-512",
            "sasl_plain_username": user if token is None else token.id,
            "sasl_plain_password": f"{user}-secret" if token is None else token.password,
            "sasl_tokenauth": token is not None,
        }

    def admin(self, user: str, token: DelegationToken | None = None) -> ottla_client.Admin:
        return ottla_client.Admin(**self.options(user, token))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBroker]:
    settings = {"delegation.token.secret.key": "a secret", "delegation.token.expiry.check.interval.ms": 100}
    made = TokenBroker(tmp_path_factory.mktemp("tokens"), **settings)
    with made.process as process:
        yield made
        assert process.complaints() == []


def raises(code: ErrorCode) -> Any:
    return pytest.raises(ottla_client.errors.ClientError, match=code.name)


def log_in(wire: Wire, token_id: str, password: str, mechanism: str = "SCRAM-SHA-256") -> Any:
    assert wire.call(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    client = ScramClient(mechanism, token_id, password, os.urandom(12).hex(), tokenauth=True)
    message: bytes | None = client.first()
    while message is not None:
        answer = wire.call(SaslAuthenticateRequest(auth_bytes=message), 2)
        if answer.error_code:
            return answer
        message = client.respond(answer.auth_bytes)
    return answer


async def test_a_token_and_its_life(broker: TokenBroker) -> None:
    async with broker.admin("alice") as admin:
        token = await admin.create_delegation_token(renewers=["bob"], max_lifetime_ms=3 * _DAY)
        assert (token.owner, token.requester, token.renewers) == ("User:alice", "User:alice", ("User:bob",))
        assert (token.expires_ms - token.issued_ms, token.max_ms - token.issued_ms) == (_DAY, 3 * _DAY)
        assert await admin.describe_delegation_tokens() == [token]
        assert await admin.describe_delegation_tokens(["bob"]) == [token]
        assert await admin.describe_delegation_tokens(["carol"]) == []
        assert await admin.describe_delegation_tokens([]) == []
    async with ottla_client.Admin(**broker.options("", token)) as as_token:
        # It is alice, but has no tokens of its own.
        for call in (
            as_token.create_delegation_token(),
            as_token.describe_delegation_tokens(),
            as_token.renew_delegation_token(token.hmac),
            as_token.expire_delegation_token(token.password),
        ):
            with raises(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED):
                await call
    async with broker.admin("bob") as admin:
        assert await admin.describe_delegation_tokens() == [token]
        assert await admin.renew_delegation_token(token.hmac, period_ms=9 * _DAY) == token.max_ms
        default = await admin.renew_delegation_token(token.hmac)
        assert token.expires_ms <= default < token.max_ms
        shorter = await admin.expire_delegation_token(token.hmac, period_ms=60_000)
        assert shorter < token.expires_ms
    with Wire(broker.port) as wire:
        answer = log_in(wire, token.id, token.password)
        assert (answer.error_code, 0 < answer.session_lifetime_ms <= 60_000) == (0, True)
    broker.process.stop()
    broker.process.start()
    async with broker.admin("carol") as admin:
        assert await admin.describe_delegation_tokens() == []
        for call in (admin.renew_delegation_token(token.hmac), admin.expire_delegation_token(token.hmac)):
            with raises(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
                await call
        with raises(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
            await admin.renew_delegation_token(b"no such token")
    with Wire(broker.port) as wire:
        assert log_in(wire, token.id, token.password, "SCRAM-SHA-512").error_code == 0
    async with broker.admin("alice") as admin:
        await admin.expire_delegation_token(token.hmac)
        assert await admin.describe_delegation_tokens() == []
    for token_id, password in ((token.id, token.password), ("nothing", "x"), ("alice", "alice-secret")):
        with Wire(broker.port) as wire:
            answer = log_in(wire, token_id, password)
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert "invalid credentials with SASL mechanism" in answer.error_message
    assert token.password not in broker.process.log()


async def test_expired_tokens_are_removed(broker: TokenBroker) -> None:
    async with broker.admin("alice") as admin:
        token = await admin.create_delegation_token(max_lifetime_ms=1)
        kept = await admin.create_delegation_token()
        async with asyncio.timeout(60):
            while await admin.describe_delegation_tokens() != [kept]:
                await asyncio.sleep(0.02)
        with raises(ErrorCode.DELEGATION_TOKEN_NOT_FOUND):
            await admin.renew_delegation_token(token.hmac)
        await admin.expire_delegation_token(kept.hmac)


async def test_tokens_of_others_need_a_rule(broker: TokenBroker) -> None:
    def allows(operation: AclOperation, pattern: ResourcePattern) -> AclBinding:
        return AclBinding(pattern, AclEntry("User:carol", "*", operation, AclPermission.ALLOW))

    bob = ResourcePattern(AclResource.USER, "User:bob")
    async with broker.admin("admin") as rules, broker.admin("carol") as admin:
        with raises(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED):
            await admin.create_delegation_token(owner="bob")
        await rules.create_acls([allows(AclOperation.CREATE_TOKENS, bob)])
        token = await admin.create_delegation_token(owner="bob")
        assert (token.owner, token.requester) == ("User:bob", "User:carol")
        assert await admin.describe_delegation_tokens() == []
        one = ResourcePattern(AclResource.DELEGATION_TOKEN, token.id)
        for rule in (allows(AclOperation.DESCRIBE_TOKENS, bob), allows(AclOperation.DESCRIBE, one)):
            await rules.create_acls([rule])
            assert await admin.describe_delegation_tokens(["bob"]) == [token]
            await rules.delete_acls([_only(rule)])
            assert await admin.describe_delegation_tokens(["bob"]) == []
        with raises(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH):
            await admin.expire_delegation_token(token.hmac)
    async with broker.admin("bob") as owner:
        await owner.expire_delegation_token(token.hmac)


def _only(rule: AclBinding) -> Any:
    from ottla_client.admin import AclFilter

    return AclFilter(rule.pattern.resource, rule.pattern.name, rule.pattern.pattern, rule.entry.principal)


REQUESTS = (
    (CreateDelegationTokenRequest(max_lifetime_ms=-1), 3),
    (CreateDelegationTokenRequest(max_lifetime_ms=-1), 0),
    (RenewDelegationTokenRequest(hmac=b"x"), 2),
    (ExpireDelegationTokenRequest(hmac=b"x"), 2),
    (DescribeDelegationTokenRequest(owners=None), 3),
)


def test_strangers_get_none(broker: TokenBroker) -> None:
    with Wire(broker.process.port) as wire:
        for request, version in REQUESTS:
            code = wire.call(request, version).error_code
            assert code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def _plain(wire: Wire, user: str) -> None:
    assert wire.call(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    message = PlainClient(user, f"{user}-secret").first()
    assert wire.call(SaslAuthenticateRequest(auth_bytes=message), 2).error_code == 0


def test_odd_requests(broker: TokenBroker) -> None:
    with Wire(broker.port) as wire:
        _plain(wire, "admin")
        for kind, name in (("Group", "x"), ("User", ""), ("", "x")):
            renewers = [CreatableRenewers(principal_type=kind, principal_name=name)]
            answer = wire.call(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), 3)
            assert answer.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE
        renewers = [CreatableRenewers(principal_type="User", principal_name="x" * 9_000)]
        answer = wire.call(CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1), 3)
        assert answer.error_code == ErrorCode.POLICY_VIOLATION
        huge = wire.call(CreateDelegationTokenRequest(max_lifetime_ms=2**63 - 1), 3)
        assert huge.max_timestamp_ms - huge.issue_timestamp_ms == 7 * _DAY
        renewed = wire.call(RenewDelegationTokenRequest(hmac=huge.hmac, renew_period_ms=2**63 - 1), 2)
        assert renewed.expiry_timestamp_ms == huge.max_timestamp_ms
        ended = wire.call(ExpireDelegationTokenRequest(hmac=huge.hmac, expiry_time_period_ms=-(2**63)), 2)
        assert ended.error_code == 0


def test_the_command_line(broker: TokenBroker) -> None:
    def run(*words: str) -> Any:
        given = broker.options("alice")
        login = [
            f"{name}={given[name]}" for name in given if name not in ("bootstrap_servers", "sasl_tokenauth")
        ]
        where = ["-b", given["bootstrap_servers"], *(part for each in login for part in ("-X", each))]
        ended = subprocess.run(
            [sys.executable, "-m", "ottla_cli", "tokens", *words, *where, "--json"],
            capture_output=True,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return json.loads(ended.stdout)

    made = run("create", "--renewer", "bob", "--max-lifetime-ms", "60000")
    found = made[0]
    hmac = next(value for value in _values(found) if re.fullmatch(r"[A-Za-z0-9+/]{86}==", value))
    assert "User:bob" in _values(found)
    assert run("list") == made
    run("renew", hmac, "--period-ms", "50000")
    run("expire", hmac)
    assert all("User:alice" not in _values(each) for each in run("list"))


def _values(found: Any) -> list[str]:
    if isinstance(found, dict):
        return [text for each in found.values() for text in _values(each)]
    if isinstance(found, list):
        return [text for each in found for text in _values(each)]
    return [str(found)]


def test_without_a_secret_there_are_none(tmp_path: Path) -> None:
    made = TokenBroker(tmp_path)
    with made.process as process:
        with Wire(made.port) as wire:
            _plain(wire, "alice")
            for request, version in REQUESTS:
                code = wire.call(request, version).error_code
                assert code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        with Wire(made.port) as wire:
            answer = log_in(wire, "id", b64encode(b"hmac").decode())
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        wait_for(lambda: "invalid credentials" in process.log(), "the line in the log")
        assert process.complaints() == []


_principals = st.text(min_size=1, max_size=20).map("User:{}".format)


@given(st.lists(_principals, max_size=3).map(tuple), _principals, st.integers(0, 2**62))
def test_nodes(renewers: tuple[str, ...], owner: str, time: int) -> None:
    token = TokenInfo("abc-_", owner, owner, renewers, time, time + 1, time + 2)
    try:
        owner.encode()
        "".join(renewers).encode()
    except UnicodeEncodeError:
        return
    assert TokenNode.decode(TokenNode.path("abc-_"), TokenNode.encode(token)) == token


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version": 9}',
        TokenNode.encode(TokenInfo("x", "User:a", "User:a", (), 1, 2, 3)),
        TokenNode.encode(TokenInfo("other", "User:a", "User:a", (), 1, 2**63, 3)),
    ],
)
def test_nodes_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(BadNodeError, match="/delegation_token/tokens/other"):
        TokenNode.decode(TokenNode.path("other"), data)
