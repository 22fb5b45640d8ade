"""FindCoordinator: which broker coordinates a group."""

from __future__ import annotations

from ottla_client.errors import GroupError
from ottla_client.types import Node
from ottla_protocol.errors import ErrorCode, error_code
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

_GROUP = 0
_BATCHED = 4
"""The first version with several keys per request (KIP-699)."""


def coordinator_request(group_id: str, version: int) -> FindCoordinatorRequest:
    """A request for one group."""
    if version >= _BATCHED:
        return FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group_id])
    return FindCoordinatorRequest(key=group_id, key_type=_GROUP)


def coordinator_of(response: FindCoordinatorResponse, group_id: str, version: int) -> Node:
    """The coordinator in a response. Raises GroupError, retriable if Kafka's code is."""
    named = (
        response
        if version < _BATCHED
        else next((each for each in response.coordinators if each.key == group_id), None)
    )
    if named is None:
        raise GroupError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            f"group {group_id!r}: the broker did not name its coordinator",
        )
    if named.error_code:
        code = error_code(named.error_code)
        said = f": {named.error_message}" if named.error_message else ""
        raise GroupError(code, f"group {group_id!r} has no coordinator: {code.name}{said}")
    return Node(named.node_id, named.host, named.port)
