"""From API keys to classes."""

from __future__ import annotations

import subprocess
import sys
from pkgutil import iter_modules

import pytest
from tests.protocol.samples import message_classes

from ottla_protocol import messages
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import RETRIABLE, ErrorCode, KafkaError, ProtocolError
from ottla_protocol.registry import request_class, response_class

DECLARED = {
    key for key in ApiKey if key.name.lower() in {module.name for module in iter_modules(messages.__path__)}
}


SHARE = frozenset(
    {
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.SHARE_GROUP_DESCRIBE,
        ApiKey.SHARE_FETCH,
        ApiKey.SHARE_ACKNOWLEDGE,
    }
)
"""Their version 0 was an early access of Kafka 4.0."""


@pytest.mark.parametrize("key", sorted(DECLARED))
def test_every_declared_api_has_both_messages(key: ApiKey) -> None:
    first = {ApiKey.PRODUCE: 2, **dict.fromkeys(SHARE, 1)}.get(key, 0)
    request, response = request_class(key, first), response_class(key)
    assert request.API_KEY == response.API_KEY == key
    assert request.__name__.removesuffix("Request") == response.__name__.removesuffix("Response")
    assert request.VERSIONS == response.VERSIONS
    assert request.FLEXIBLE == response.FLEXIBLE
    assert key in SHARE or request_class(key, 0) is request


def test_every_message_is_declared() -> None:
    assert {cls.API_KEY for cls in message_classes()} == DECLARED | {None}


@pytest.mark.parametrize(("key", "version"), [(-1, 0), (52, 0), (76, 0), (32767, 0), (3, -1), (3, 13)])
def test_unknown_apis_and_versions_are_refused(key: int, version: int) -> None:
    with pytest.raises(ProtocolError, match=r"no API has the key|has no version"):
        request_class(key, version)


def test_unknown_responses_are_refused() -> None:
    with pytest.raises(ProtocolError, match="no API has the key 52"):
        response_class(52)


def test_an_api_imports_only_its_own_module() -> None:
    code = (
        "import sys; from ottla_protocol.registry import request_class; request_class(3, 0);"
        "print([m for m in sys.modules if m.startswith('ottla_protocol.messages.')],"
        "'ottla_protocol.decoding' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env())
    assert done.stdout.strip() == "['ottla_protocol.messages.metadata'] False"


def env() -> dict[str, str]:
    return {"PYTHONPATH": ":".join(filter(None, sys.path))}


def test_errors_carry_their_code() -> None:
    error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "moved")
    assert (error.code, error.message, error.retriable) == (6, "moved", True)
    assert str(error) == "NOT_LEADER_OR_FOLLOWER: moved"
    plain = KafkaError(ErrorCode.INVALID_REQUEST)
    assert str(plain) == "INVALID_REQUEST"
    assert not plain.retriable


def test_retriable_errors_are_errors() -> None:
    assert ErrorCode.NONE not in RETRIABLE
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in RETRIABLE
    # Kafka 3.9's, and SHARE_SESSION_LIMIT_REACHED.
    assert len(ErrorCode) == 130
