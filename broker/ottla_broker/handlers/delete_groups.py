"""DeleteGroups: deletes groups and their offsets; a group with members is refused."""

from __future__ import annotations

from typing import Final

from ottla_broker.handlers.api import DELETE, GROUP, Api, MiB
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.turns import Steps
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

API = Api(42, (0, 2), coordinated=True, needs={GROUP: DELETE}, memory=4 * MiB)

_PORTION: Final = 100
_FORBIDDEN = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)


def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> Steps[PendingResponse]:
    pending = PendingResponse()
    names = list(dict.fromkeys(request.groups_names))
    codes: dict[str, int] = {}
    portions = [names[start : start + _PORTION] for start in range(0, len(names), _PORTION)] or [[]]
    waiting = len(portions)

    def reply(found: dict[str, int]) -> None:
        nonlocal waiting
        codes.update(found)
        waiting -= 1
        if waiting:
            return
        pending.complete(
            DeleteGroupsResponse(
                results=[
                    DeletableGroupResult(group_id=group_id, error_code=codes.get(group_id, _FORBIDDEN))
                    for group_id in names
                ]
            )
        )

    for portion in portions:
        allowed = [group for group in portion if ctx.authorize(AclResource.GROUP, group)]
        ctx.services.groups.delete(allowed, reply)
        yield 3 * len(portion)
    return pending
