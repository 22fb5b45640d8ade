"""DeleteGroups (key 42), versions 0-2: deletes groups and their offsets; a group with members is refused."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> PendingResponse:
    pending = PendingResponse()

    def reply(codes: dict[str, int]) -> None:
        pending.complete(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=code)
                    for group_id, code in codes.items()
                ]
            )
        )

    ctx.services.groups.delete(request.groups_names, reply)
    return pending
