"""FindCoordinator: which broker coordinates a group, or the transactions of a transactional id."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ottla_client.errors import BrokerError, GroupError
from ottla_client.types import Node, TopicMetadata
from ottla_protocol.errors import ErrorCode, error_code
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_BATCHED = 4
"""The first version with several keys per request (KIP-699)."""
_NOT_ALLOWED = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


class CoordinatorType(IntEnum):
    """The things that have coordinators; the numbers are the protocol's."""

    GROUP = 0
    TRANSACTION = 1

    def named(self, key: str) -> str:
        """``key`` in a message."""
        return f"group {key!r}" if self is CoordinatorType.GROUP else f"transactional id {key!r}"

    @property
    def topic(self) -> str:
        """The topic whose leaders coordinate."""
        return _TOPICS[self][0]

    def lack(self, topic: TopicMetadata | None, brokers: int) -> str:
        """How a sentence about a missing coordinator goes on, by its topic's metadata; empty if that says nothing."""
        name, setting = _TOPICS[self]
        if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return (
                f"; the brokers have not made {name}, for which {setting} can't be above the number of brokers"
                f" ({brokers})"
            )
        down = sum(each.leader is None for each in topic.partitions.values())
        return f"; {down} of {len(topic.partitions)} partitions of {name} have no leader" if down else ""

    def error(self, code: ErrorCode, message: str) -> BrokerError:
        return GroupError(code, message) if self is CoordinatorType.GROUP else BrokerError(code, message)


_TOPICS: Final = {
    CoordinatorType.GROUP: ("__consumer_offsets", "offsets.topic.replication.factor"),
    CoordinatorType.TRANSACTION: ("__transaction_state", "transaction.state.log.replication.factor"),
}
"""The topics, and the settings that may keep brokers from making them."""


def coordinator_request(kind: CoordinatorType, key: str, version: int) -> FindCoordinatorRequest:
    if version >= _BATCHED:
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
    return FindCoordinatorRequest(key=key, key_type=kind)


def coordinator_of(response: FindCoordinatorResponse, kind: CoordinatorType, key: str, version: int) -> Node:
    """The coordinator in a response. Raises GroupError or BrokerError, retriable if Kafka's code is."""
    named = (
        response
        if version < _BATCHED
        else next((each for each in response.coordinators if each.key == key), None)
    )
    if named is None:
        raise kind.error(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"{kind.named(key)}: the broker did not name its coordinator",
        )
    if named.error_code:
        code = error_code(named.error_code)
        if code in _NOT_ALLOWED:
            raise kind.error(code, f"{kind.named(key)}: this user is not allowed to use it ({code.name})")
        said = f": {named.error_message}" if named.error_message else ""
        raise kind.error(code, f"{kind.named(key)} has no coordinator: {code.name}{said}")
    return Node(named.node_id, named.host, named.port)
