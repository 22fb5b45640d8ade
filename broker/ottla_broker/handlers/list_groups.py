"""ListGroups: the groups that this broker coordinates and the client may see.

Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848). While groups are loading, the response has the
loaded ones and COORDINATOR_LOAD_IN_PROGRESS. The coordinator of 2012 lists its groups, too, with a protocol type of
their own, and so does the broker that the id of a group in ZooKeeper hashes to.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ottla_broker.requests.api import DESCRIBE, GROUP, LISTS, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla_broker.coordinator.group.coordinator import GroupListing
    from ottla_broker.coordinator.zookeeper_groups import ZooKeeperGroups

# DESCRIBE on the cluster shows all groups.
API = Api(16, (0, 5), coordinated=True, needs={GROUP: DESCRIBE}, answer=LISTS)

_PORTION = 100


async def handle(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    every = ctx.may(AclOperation.DESCRIBE, AclResource.CLUSTER)
    error, found = ctx.services.groups.list(request.states_filter, request.types_filter)
    coordinated = ctx.services.coordinated()
    listed: Sequence[GroupListing] = ()
    if coordinated is not None:
        listed = coordinated.listings(request.states_filter, request.types_filter)
    in_zookeeper = ctx.services.zookeeper_groups()
    # Such a group may have offsets here, which are a group without members.
    names = {group.group_id for group in listed} | (in_zookeeper.coordinated if in_zookeeper else set())
    others = (group for group in found if group is None or group.group_id not in names)
    groups = []
    for done, group in enumerate(chain(listed, others), 1):
        if group is not None and (every or ctx.shows(AclResource.GROUP, group.group_id)):
            groups.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type,
                    group_state=group.state,
                    group_type=group.group_type,
                )
            )
        if done % _PORTION == 0:
            await pause(_PORTION // 2)
    response = ListGroupsResponse(error_code=error, groups=groups)
    if in_zookeeper is None or not in_zookeeper.names:
        return response
    there = []
    for name in in_zookeeper.names:
        # ZooKeeper isn't asked for a client that may not see the answer.
        if ctx.services.groups.may_be_in_zookeeper(name) and (every or ctx.shows(AclResource.GROUP, name)):
            there.append(name)
        await pause(1)
    return await _with_those_in_zookeeper(request, response, there, in_zookeeper) if there else response


async def _with_those_in_zookeeper(
    request: ListGroupsRequest,
    response: ListGroupsResponse,
    names: Sequence[str],
    in_zookeeper: ZooKeeperGroups,
) -> ListGroupsResponse:
    """The response with the groups that have consumers in ZooKeeper, instead of what it says of them."""
    from ottla_broker.coordinator.group.group import CLASSIC_TYPE
    from ottla_broker.coordinator.group.states import GroupState
    from ottla_broker.coordinator.old_consumers import ZOOKEEPER_TYPE

    held = set(await in_task(in_zookeeper.with_consumers(names)))
    response.groups = [group for group in response.groups if group.group_id not in held]
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    stable = GroupState.STABLE.value
    if (states and stable.lower() not in states) or (types and CLASSIC_TYPE not in types):
        return response
    for name in sorted(held):
        await pause(1)
        response.groups.append(
            ListedGroup(
                group_id=name, protocol_type=ZOOKEEPER_TYPE, group_state=stable, group_type=CLASSIC_TYPE
            )
        )
    return response
