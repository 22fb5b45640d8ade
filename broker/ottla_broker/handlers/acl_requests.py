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
    """The meaning of a code; that of one that nothing has is UNKNOWN, which no ACL has.

    Raises CloseConnection for 0, the code of UNKNOWN itself, as Kafka closes the connection.
    """
    if number == 0:
        raise CloseConnection(f"a request for ACLs has the code 0, which no {kind.__name__} has")
    try:
        return kind(number)
    except ValueError:
        return kind(0)


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
