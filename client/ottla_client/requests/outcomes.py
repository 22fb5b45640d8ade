"""Error codes of responses as exceptions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from ottla_protocol.errors import ErrorCode, error_code

from ..cluster.topic_names import NAME_RULE
from ..errors import BrokerError, FencedInstanceError, GroupError, UnknownTopicError

V = TypeVar("V")

# What a code means, where the broker sends no text of its own.
_MEANING: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user is not allowed to do that to the cluster",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is still loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group has no coordinator at the moment",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "the brokers make no tokens; set their delegation.token.secret.key",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens need a connection that logged in (SASL, or a TLS certificate), and not by a token"
    ),
    ErrorCode.FENCED_INSTANCE_ID: "another member uses that instance id now",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user is not allowed to use the group",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic; stop its members first",
    ErrorCode.INVALID_GROUP_ID: "not a valid group id",
    ErrorCode.INVALID_TOPIC_EXCEPTION: NAME_RULE,
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have that offset",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the offset's metadata is too long (offset.metadata.max.bytes)",
    ErrorCode.SECURITY_DISABLED: "the brokers have no access control; set their authorizer.class.name",
    ErrorCode.POLICY_VIOLATION: "the topic's or the cluster's policy forbids it",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    ErrorCode.TOPIC_ALREADY_EXISTS: "the topic already exists",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user is not allowed to do that to the topic",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "this user is not allowed to use the transactional id",
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: "a newer coordinator has written to the partition",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker does not delete topics (delete.topic.enable)",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.UNKNOWN_TOPIC_ID: "no topic has that id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
}
_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_OF_GROUPS = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
    }
)


def error_of(number: int, what: str, message: str | None = None) -> BrokerError:
    """The exception for a response's error code; ``message`` is the broker's own text, if it sent one."""
    code = error_code(number)
    name = code.name if code == number else f"error code {number}, which is newer than this client"
    said = None if code is ErrorCode.SECURITY_DISABLED else message  # Kafka's text doesn't name the setting
    meaning = said or _MEANING.get(code)
    text = f"{what}: {name if meaning is None else f'{meaning} ({name})'}"
    if code in _UNKNOWN_TOPIC:
        return UnknownTopicError(text, code)
    if code is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceError(code, text)
    if code in _OF_GROUPS:
        return GroupError(code, text)
    return BrokerError(code, text)


def outcome_of(number: int, value: V, what: str, message: str | None = None) -> V | BrokerError:
    """``value`` for code 0, otherwise the error."""
    return value if number == 0 else error_of(number, what, message)
