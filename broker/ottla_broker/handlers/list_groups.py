"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates and the client may see.

Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848). While groups are loading, the response has the
loaded ones and COORDINATOR_LOAD_IN_PROGRESS.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


def handle(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    every = ctx.may(AclOperation.DESCRIBE, AclResource.CLUSTER)
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
            if every or ctx.shows(AclResource.GROUP, group.group_id)
        ],
    )
