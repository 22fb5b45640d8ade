"""AlterClientQuotas: set and remove quotas of users, client ids and addresses (KIP-546).

They are in force on this broker when the response is sent, and on the others a moment later.
"""

from __future__ import annotations

from ottla_broker.controller.api import Outcome
from ottla_broker.controller.client_quotas import Change
from ottla_broker.requests.api import ALTER_CONFIGS, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import alter_client_quotas as wire

API = Api(49, (0, 1), needs={CLUSTER: ALTER_CONFIGS}, memory=4 * MiB)


async def handle(
    ctx: RequestContext, request: wire.AlterClientQuotasRequest
) -> wire.AlterClientQuotasResponse:
    allowed = ctx.authorize(AclResource.CLUSTER)
    results = []
    for entry in request.entries:
        await pause(5)
        outcome = Outcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if allowed:
            outcome = await _alter(ctx, entry, request.validate_only)
        results.append(
            wire.EntryResult(error_code=outcome.error, error_message=outcome.message, entity=entry.entity)
        )
    return wire.AlterClientQuotasResponse(entries=results)


async def _alter(ctx: RequestContext, entry: wire.EntryData, validate_only: bool) -> Outcome:
    parts = [(part.entity_type, part.entity_name) for part in entry.entity]
    changes = [Change(op.key, None if op.remove else op.value) for op in entry.ops]
    return await in_task(ctx.services.quota_admin.alter(parts, changes, validate_only))
