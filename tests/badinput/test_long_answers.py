"""Short requests for all that a broker keeps: none holds the event loop, or takes much memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from harness.ports import free_port
from tests.badinput.hostile_check import measure
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, plain_login, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla_protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla_protocol.registry import response_class
from ottla_protocol.schema import Message

pytestmark = pytest.mark.ottla_only

_USERS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_mallory="secret";'
_AT_ONCE = 64
"""Requests that are sent ahead."""


class Broker(WatchedBroker):
    """With ACLs, logins and delegation tokens; whoever doesn't log in may do everything."""

    sasl_port = 0

    def mallory(self) -> Wire:
        return plain_login(self.sasl_port, "mallory", "secret")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    broker = Broker(
        tmp_path_factory.mktemp("kept") / "data",
        {
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _USERS,
            "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
            "super.users": "User:ANONYMOUS",
            "delegation.token.secret.key": "a secret",
            "ottla.lag.history.enable": "false",
        },
    )
    broker.sasl_port = free_port()
    broker.settings["listeners"] = (
        f"PLAINTEXT://{broker.bootstrap},SASL_PLAINTEXT://127.0.0.1:{broker.sasl_port}"
    )
    broker.start()
    yield broker
    broker.stop()


def pipelined(wire: Wire, requests: Iterable[Message], version: int) -> list[Any]:
    """The answers to many requests, of which some are sent ahead."""
    answers: list[Any] = []
    sent = 0
    key = 0

    def receive() -> None:
        data = wire.receive()
        _, position = parse_response_header(data, key, version)
        answers.append(response_class(key).decode(data, version, position))

    for sent, request in enumerate(requests, 1):
        key = request.API_KEY
        wire.send(request_bytes(request, version, sent))
        if sent - len(answers) >= _AT_ONCE:
            receive()
    while len(answers) < sent:
        receive()
    return answers


def asked_twice(
    watched: Broker, name: str, request: Message, version: int, connect: Callable[[], Wire] | None = None
) -> None:
    """The first request compiles the codecs."""
    for _ in range(2):
        try:
            measure(watched, name, request_bytes(request, version)[4:], connect=connect)
            failed = None
        except AssertionError as error:
            failed = error
    if failed is not None:
        raise failed


def test_delegation_tokens(watched: Broker) -> None:
    def create(renewers: int) -> CreateDelegationTokenRequest:
        return CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type="User", principal_name=f"{number:04}")
                for number in range(renewers)
            ],
            max_lifetime_ms=-1,
        )

    with watched.mallory() as wire:
        answers = pipelined(wire, [create(900)] * 300, 3)
        assert {each.error_code for each in answers} == {ErrorCode.POLICY_VIOLATION}
        answers = pipelined(wire, [create(32)] * 1_500, 3)
        assert {each.error_code for each in answers} == {0}
    request = DescribeDelegationTokenRequest(owners=None)
    asked_twice(watched, "tokens", request, 3, watched.mallory)
    with watched.mallory() as wire:
        described = wire.call(request, 3).tokens
        assert len(described) == 1_500
        assert {len(each.renewers) for each in described} == {32}
