"""DescribeGroups (key 15), versions 0-5: the members of groups, with what they consume.

3 can ask for authorised operations (all of them, as long as there are no ACLs), 4 has static members
(KIP-345), 5 is flexible. A group that does not exist is Dead, without an error.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NONE = int(ErrorCode.NONE)
_NOT_ASKED = -(2**31)
_READ, _DELETE, _DESCRIBE = 3, 6, 8
ALL_OPERATIONS = 1 << _READ | 1 << _DELETE | 1 << _DESCRIBE
"""What can be allowed on a group, as bits by the number of the ACL operation (KIP-430)."""


def handle(ctx: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    asked = request.include_authorized_operations
    groups = []
    for group_id in request.groups:
        found = ctx.services.groups.describe(group_id)
        groups.append(
            DescribedGroup(
                error_code=found.error,
                group_id=group_id,
                group_state=found.state,
                protocol_type=found.protocol_type,
                protocol_data=found.protocol,
                members=[
                    DescribedGroupMember(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.client_host,
                        member_metadata=metadata,
                        member_assignment=assignment,
                    )
                    for member, metadata, assignment in found.members
                ],
                authorized_operations=ALL_OPERATIONS if asked and found.error == _NONE else _NOT_ASKED,
            )
        )
    return DescribeGroupsResponse(groups=groups)
