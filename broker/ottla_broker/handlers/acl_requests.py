"""What the requests for access control lists share."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from ottla_broker.handlers.context import RequestContext
from ottla_broker.network.pending_response import CloseConnection
from ottla_protocol.acls import AclFilter, AclOperation, AclPermission, AclResource, PatternType

NO_AUTHORIZER: Final = "No Authorizer is configured"

E = TypeVar("E", bound=IntEnum)


def code_of(kind: type[E], number: int) -> E:
    """The meaning of a code. Raises CloseConnection for one that nothing has, as Kafka closes the connection."""
    try:
        found = kind(number)
    except ValueError:
        found = kind(0)
    if found == 0:
        raise CloseConnection(f"a request for ACLs has the code {number}, which no {kind.__name__} has")
    return found


def acl_filter(
    ctx: RequestContext,
    resource: int,
    name: str | None,
    pattern: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """A filter in a request; version 0 has literal patterns only. Raises CloseConnection."""
    kind = PatternType.LITERAL if ctx.version == 0 else code_of(PatternType, pattern)
    return AclFilter(
        code_of(AclResource, resource),
        name,
        kind,
        principal,
        host,
        code_of(AclOperation, operation),
        code_of(AclPermission, permission),
    )
