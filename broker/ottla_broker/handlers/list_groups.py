"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates and the client may see.

Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848). While groups are loading, the response has the
loaded ones and COORDINATOR_LOAD_IN_PROGRESS. The coordinator of 2012 lists its groups, too, with a protocol type of
their own.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    every = ctx.may(AclOperation.DESCRIBE, AclResource.CLUSTER)
    error, groups = ctx.services.groups.list(request.states_filter, request.types_filter)
    coordinated = ctx.services.coordinated()
    if coordinated is not None:
        # Beside the offsets that such a group may have here, which are a group without members.
        listed = coordinated.listings(request.states_filter, request.types_filter)
        names = {group.group_id for group in listed}
        groups = [*listed, *(group for group in groups if group.group_id not in names)]
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in groups
            if every or ctx.shows(AclResource.GROUP, group.group_id)
        ],
    )
