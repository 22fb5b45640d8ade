"""Results item by item: what one call did of many things, and what it could not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from ottla_protocol.errors import ErrorCode, error_code

from ..errors import BrokerError, ClientError, FencedInstanceError, GroupError, UnknownTopicError

K = TypeVar("K")
V = TypeVar("V")


class PartialError(ClientError):
    """Of several things that a call asked for, some were done and some were not.

    ``results`` has what was done and ``errors`` what was not, both by the keys of the call (a topic's name, a
    TopicPartition, a ConfigResource, a group, a broker's id). A call for one thing raises that thing's error itself.
    """

    def __init__(self, what: str, results: Mapping[Any, Any], errors: Mapping[Any, ClientError]) -> None:
        first = next(iter(errors.values()))
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        total = len(results) + len(errors)
        super().__init__(f"{what}: {len(errors)} of {total} failed: {first}{more}")
        self.results = dict(results)
        self.errors = dict(errors)


def results_or_raise(what: str, outcomes: Mapping[K, V | ClientError]) -> dict[K, V]:
    """The results, if nothing failed. Raises the error of a single item, and PartialError for several."""
    results: dict[K, V] = {}
    errors: dict[K, ClientError] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, ClientError):
            errors[key] = outcome
        else:
            results[key] = outcome
    if not errors:
        return results
    if len(outcomes) == 1:
        raise next(iter(errors.values()))
    raise PartialError(what, results, errors)


# What a code means for whoever called, where the broker sends no text of its own with it.
_MEANING: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this user may not do that to the cluster",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is still loading",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group has no coordinator at the moment",
    ErrorCode.FENCED_INSTANCE_ID: "another member has that instance id now",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "this user may not use the group",
    ErrorCode.GROUP_ID_NOT_FOUND: "there is no such group",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group reads the topic at the moment; stop its members first",
    ErrorCode.INVALID_GROUP_ID: "not a valid group id",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "not a valid name: 1 to 249 letters, digits, '.', '_' and '-'",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the log does not have that offset",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the note with the offset is too long (offset.metadata.max.bytes)",
    ErrorCode.POLICY_VIOLATION: "the topic's or the cluster's policy forbids it",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    ErrorCode.TOPIC_ALREADY_EXISTS: "there is a topic of that name already",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "this user may not do that to the topic",
    ErrorCode.TOPIC_DELETION_DISABLED: "the broker does not delete topics (delete.topic.enable)",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has no such member",
    ErrorCode.UNKNOWN_TOPIC_ID: "there is no topic with that id",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition",
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
    """The exception for an error code that a broker answered.

    ``what`` says for which thing, ``message`` is the broker's own text, if it sent one.
    """
    code = error_code(number)
    name = code.name if code == number else f"error code {number}, which is newer than this client"
    meaning = message or _MEANING.get(code)
    text = f"{what}: {name if meaning is None else f'{meaning} ({name})'}"
    if code in _UNKNOWN_TOPIC:
        return UnknownTopicError(text, code)
    if code is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceError(code, text)
    if code in _OF_GROUPS:
        return GroupError(code, text)
    return BrokerError(code, text)


def outcome_of(number: int, value: V, what: str, message: str | None = None) -> V | ClientError:
    """``value`` for code 0, else the error."""
    return value if number == 0 else error_of(number, what, message)


def is_unknown_group(error: object) -> bool:
    """Whether an error says that there is no such group."""
    return isinstance(error, GroupError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND
