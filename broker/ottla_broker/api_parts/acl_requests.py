"""Parts that the requests for access control lists share."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeVar

from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.requests.context import RequestContext
from ottla_protocol.acls import AclFilter, AclOperation, AclPermission, AclResource, PatternType
from ottla_protocol.messages.delete_acls import DeleteAclsFilter
from ottla_protocol.messages.describe_acls import DescribeAclsRequest

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


def acl_filter(ctx: RequestContext, given: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """A filter in a request; version 0 has literal patterns only. Raises CloseConnection."""
    literal = ctx.version == 0
    return AclFilter(
        code_of(AclResource, given.resource_type_filter),
        given.resource_name_filter,
        PatternType.LITERAL if literal else code_of(PatternType, given.pattern_type_filter),
        given.principal_filter,
        given.host_filter,
        code_of(AclOperation, given.operation),
        code_of(AclPermission, given.permission_type),
    )
