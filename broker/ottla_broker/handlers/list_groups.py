"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates.

Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848). While groups are loading, the response has the
loaded ones and COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from ottla_broker.handlers.authorization import AclResource
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    error, groups = ctx.services.groups.list(request.states_filter, request.types_filter)
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
            if ctx.authorize(AclResource.GROUP, group.group_id)
        ],
    )
