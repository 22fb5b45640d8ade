"""DeleteGroups: deletes groups and their offsets; a group with members is refused."""

from __future__ import annotations

from typing import Final

from ottla_broker.requests.api import DELETE, GROUP, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, pause
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


async def handle(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = list(dict.fromkeys(request.groups_names))
    codes: dict[str, int] = {}
    begun = []
    for start in range(0, len(names), _PORTION):
        portion = names[start : start + _PORTION]
        allowed = [group for group in portion if ctx.authorize(AclResource.GROUP, group)]
        deleted: Result[dict[str, int]] = Result()
        ctx.services.groups.delete(allowed, deleted.give)
        begun.append(deleted)
        await pause(3 * len(portion))
    for each in begun:
        codes.update(await each)
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=codes.get(group_id, _FORBIDDEN))
            for group_id in names
        ]
    )
