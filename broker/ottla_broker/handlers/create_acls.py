"""CreateAcls: add access control lists (Kafka's ``AclApis``).

Rules are in force on this broker when the response is sent, and on the others a moment later. Version 1 has prefixed
patterns (KIP-290). Without an authorizer it is refused, as in Kafka.
"""

from __future__ import annotations

from ottla_broker.api_parts.acl_requests import NO_AUTHORIZER, code_of
from ottla_broker.controller.api import Outcome
from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import create_acls as wire

API = Api(30, (0, 3), needs={CLUSTER: ALTER}, memory=2 * MiB)


async def handle(ctx: RequestContext, request: wire.CreateAclsRequest) -> wire.CreateAclsResponse:
    acls = ctx.services.acls
    refused = None
    if not ctx.authorize(AclResource.CLUSTER):
        refused = Outcome(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif acls is None:
        refused = Outcome(ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")
    if refused is not None or acls is None:
        return wire.CreateAclsResponse(results=[_result(refused or Outcome())] * len(request.creations))
    bindings = [_binding(ctx, creation) for creation in request.creations]
    outcomes: list[Outcome] = [_check(binding) for binding in bindings]
    valid = [n for n, outcome in enumerate(outcomes) if outcome.error is ErrorCode.NONE]
    for index, outcome in zip(valid, await in_task(acls.create([bindings[n] for n in valid])), strict=True):
        outcomes[index] = outcome
    return wire.CreateAclsResponse(results=[_result(outcome) for outcome in outcomes])


def _binding(ctx: RequestContext, creation: wire.AclCreation) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            code_of(AclResource, creation.resource_type),
            creation.resource_name,
            code_of(PatternType, creation.resource_pattern_type),
        ),
        AclEntry(
            creation.principal,
            creation.host,
            code_of(AclOperation, creation.operation),
            code_of(AclPermission, creation.permission_type),
        ),
    )


def _check(binding: AclBinding) -> Outcome:
    pattern, entry = binding
    message = None
    if pattern.resource is AclResource.CLUSTER and pattern.name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        message = "Invalid empty resource name"
    elif (
        pattern.resource <= AclResource.ANY
        or pattern.pattern <= PatternType.MATCH
        or entry.operation <= AclOperation.ANY
        or entry.permission <= AclPermission.ANY
        or ":" not in entry.principal
        or not entry.host
    ):
        # Kafka stores some of these, and then can't read its ACLs any more.
        message = "Failed to create ACL"
    return Outcome() if message is None else Outcome(ErrorCode.INVALID_REQUEST, message)


def _result(outcome: Outcome) -> wire.AclCreationResult:
    # Without an error Kafka leaves the message empty, not null.
    message = outcome.message if outcome.error else ""
    return wire.AclCreationResult(error_code=outcome.error, error_message=message)
