"""ListGroups (key 16), versions 0-5: the groups that this broker coordinates and the client may see.

Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848). While groups are loading, the response has the
loaded ones and COORDINATOR_LOAD_IN_PROGRESS. The coordinator of 2012 lists its groups, too, with a protocol type of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING

from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.turns import Steps
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from ottla_broker.coordinator.group.coordinator import GroupListing

_PORTION = 100


def handle(ctx: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    every = ctx.may(AclOperation.DESCRIBE, AclResource.CLUSTER)
    error, found = ctx.services.groups.list(request.states_filter, request.types_filter)
    coordinated = ctx.services.coordinated()
    listed: Sequence[GroupListing] = ()
    if coordinated is not None:
        listed = coordinated.listings(request.states_filter, request.types_filter)
    # Such a group may have offsets here, which are a group without members.
    names = {group.group_id for group in listed}
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
            yield _PORTION // 2
    return ListGroupsResponse(error_code=error, groups=groups)
