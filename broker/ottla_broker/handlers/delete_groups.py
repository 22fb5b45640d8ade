"""DeleteGroups (key 42), versions 0-2: groups without members are deleted, with their offsets. 2 is
flexible."""

from __future__ import annotations

from ottla_broker.handlers.context import Deferred, RequestContext
from ottla_protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> Deferred:
    answer = Deferred()

    def reply(codes: dict[str, int]) -> None:
        answer.complete(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=code)
                    for group_id, code in codes.items()
                ]
            )
        )

    ctx.services.groups.delete(request.groups_names, reply)
    return answer
