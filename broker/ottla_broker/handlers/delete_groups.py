"""DeleteGroups (key 42), versions 0-2: deletes groups and their offsets; a group with members is refused."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

_FORBIDDEN = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> PendingResponse:
    pending = PendingResponse()

    allowed = [group for group in request.groups_names if ctx.authorize(AclResource.GROUP, group)]

    def reply(codes: dict[str, int]) -> None:
        pending.complete(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=codes.get(group_id, _FORBIDDEN))
                    for group_id in dict.fromkeys(request.groups_names)
                ]
            )
        )

    ctx.services.groups.delete(allowed, reply)
    return pending
