"""DescribeGroups (key 15), versions 0-5: the members of groups, with their subscriptions and assignments.

Version 3 can ask for authorized operations (KIP-430), 4 has static members (KIP-345), 5 is
flexible. A group that doesn't exist is Dead, without an error. The coordinator of 2012 describes its groups, whichever
broker their ids hash to.
"""

from __future__ import annotations

from ottla_broker.coordinator.group.metadata_limit import MEMBER
from ottla_broker.handlers.context import NOT_ASKED, RequestContext
from ottla_broker.handlers.limits import MOST_ANSWER
from ottla_broker.handlers.turns import Steps
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_groups as wire

_NONE = int(ErrorCode.NONE)
_LISTED = 5
"""Members that are listed in the time in which one is described."""
_PORTION = 100


def handle(ctx: RequestContext, request: wire.DescribeGroupsRequest) -> Steps[wire.DescribeGroupsResponse]:
    asked = request.include_authorized_operations
    groups = []
    coordinated = ctx.services.coordinated()
    described = 0
    # A group that is named twice is described once: its members may be many.
    for group_id in dict.fromkeys(request.groups):
        yield 1
        if not ctx.authorize(AclResource.GROUP, group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            groups.append(wire.DescribedGroup(error_code=code, group_id=group_id))
            continue
        if described > MOST_ANSWER:
            # Clients ask again for the groups with this error.
            groups.append(
                wire.DescribedGroup(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, group_id=group_id)
            )
            continue
        found = (coordinated and coordinated.describe(group_id)) or ctx.services.groups.describe(group_id)
        yield len(found.members) // _LISTED
        members = []
        for done, (member, metadata, assignment) in enumerate(found.members, 1):
            members.append(
                wire.DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=metadata,
                    member_assignment=assignment,
                )
            )
            described += MEMBER + len(metadata) + len(assignment)
            if done % _PORTION == 0:
                yield _PORTION
        groups.append(
            wire.DescribedGroup(
                error_code=found.error,
                group_id=group_id,
                group_state=found.state,
                protocol_type=found.protocol_type,
                protocol_data=found.protocol,
                members=members,
                authorized_operations=(
                    ctx.operations(AclResource.GROUP, group_id)
                    if asked and found.error == _NONE
                    else NOT_ASKED
                ),
            )
        )
    return wire.DescribeGroupsResponse(groups=groups)
