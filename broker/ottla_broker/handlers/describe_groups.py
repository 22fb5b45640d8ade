"""DescribeGroups: the members of groups, with their subscriptions and assignments.

Version 3 can ask for authorized operations (KIP-430), 4 has static members (KIP-345), 5 is
flexible. A group that doesn't exist is Dead, without an error. The coordinator of 2012 describes its groups, whichever
broker their ids hash to. A group without members here may have some in ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla_broker.coordinator.group.metadata_limit import MEMBER
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.coordinator.old_consumers import COORDINATED_TYPE
from ottla_broker.requests.api import DESCRIBE, DESCRIPTIONS, GROUP, MOST_ANSWER, Api
from ottla_broker.requests.context import NOT_ASKED, RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_broker.store.api import StoreError
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_groups as wire

if TYPE_CHECKING:
    from ottla_broker.coordinator.group.coordinator import GroupDescription
    from ottla_broker.coordinator.zookeeper_groups import ZooKeeperGroups

API = Api(15, (0, 5), coordinated=True, needs={GROUP: DESCRIBE}, answer=DESCRIPTIONS)

_NONE = int(ErrorCode.NONE)
_LISTED = 5
"""Members that are listed in the time in which one is described."""
_PORTION = 100


async def handle(ctx: RequestContext, request: wire.DescribeGroupsRequest) -> wire.DescribeGroupsResponse:
    groups = []
    elsewhere: list[wire.DescribedGroup] = []
    coordinated = ctx.services.coordinated()
    in_zookeeper = ctx.services.zookeeper_groups()
    described = 0
    # A group that is named twice is described once: its members may be many.
    for group_id in dict.fromkeys(request.groups):
        await pause(1)
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
        group = wire.DescribedGroup(group_id=group_id)
        described += await _describe(ctx, request, group, found)
        groups.append(group)
        if in_zookeeper is not None and found.error == _NONE and not found.members:
            if group_id in in_zookeeper.coordinated:
                # Its coordinator, which is another broker, says more.
                group.group_state, group.protocol_type = GroupState.STABLE.value, COORDINATED_TYPE
            elif group_id in in_zookeeper.names and ctx.services.groups.may_be_in_zookeeper(group_id):
                elsewhere.append(group)
    response = wire.DescribeGroupsResponse(groups=groups)
    if in_zookeeper is None or not elsewhere:
        return response
    return await _with_those_in_zookeeper(ctx, request, response, elsewhere, in_zookeeper, described)


async def _with_those_in_zookeeper(
    ctx: RequestContext,
    request: wire.DescribeGroupsRequest,
    response: wire.DescribeGroupsResponse,
    groups: Sequence[wire.DescribedGroup],
    in_zookeeper: ZooKeeperGroups,
    described: int,
) -> wire.DescribeGroupsResponse:
    """The response, with the consumers of groups that have them in ZooKeeper."""
    answers = True
    for group in groups:
        if described > MOST_ANSWER:
            group.error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            continue
        found = None
        try:
            if answers:
                found = await in_task(in_zookeeper.describe(group.group_id))
        except (StoreError, TimeoutError):
            answers = False
        if not answers:
            # It may have consumers there, so it isn't shown as empty.
            group.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            continue
        if found is not None:
            described += await _describe(ctx, request, group, found)
    return response


async def _describe(
    ctx: RequestContext,
    request: wire.DescribeGroupsRequest,
    group: wire.DescribedGroup,
    found: GroupDescription,
) -> int:
    """Fill in a group; returns the bytes of its members."""
    await pause(len(found.members) // _LISTED)
    described = 0
    for done, (member, metadata, assignment) in enumerate(found.members, 1):
        group.members.append(
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
            await pause(_PORTION)
    group.error_code = found.error
    group.group_state = found.state
    group.protocol_type = found.protocol_type
    group.protocol_data = found.protocol
    group.authorized_operations = (
        ctx.operations(AclResource.GROUP, group.group_id)
        if request.include_authorized_operations and found.error == _NONE
        else NOT_ASKED
    )
    return described
