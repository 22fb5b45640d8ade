"""AlterConfigs: replace all configs of a topic or a broker.

Configs that aren't named return to their defaults; IncrementalAlterConfigs replaces this API. A broker's name is its
id; an empty name means all brokers.
"""

from __future__ import annotations

from ottla_broker.api_parts.config_requests import answer_each, check_allowed, check_entries, supported_kind
from ottla_broker.controller.api import Outcome, ResourceType
from ottla_broker.requests.api import ALTER_CONFIGS, CLUSTER, GROUP, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import alter_configs as wire

API = Api(33, (0, 2), needs={TOPIC: ALTER_CONFIGS, GROUP: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS})


async def handle(ctx: RequestContext, request: wire.AlterConfigsRequest) -> wire.AlterConfigsResponse:
    async def alter(resource: wire.AlterConfigsResource) -> Outcome:
        return await _alter(ctx, resource, request.validate_only)

    responses = await answer_each(request.resources, alter, wire.AlterConfigsResourceResponse)
    return wire.AlterConfigsResponse(responses=responses)


async def _alter(ctx: RequestContext, resource: wire.AlterConfigsResource, validate_only: bool) -> Outcome:
    try:
        check_entries([(c.name, c.value, True) for c in resource.configs])
        kind: ResourceType = supported_kind(resource.resource_type)
        # As in Kafka, which has this API for no others.
        if kind not in (ResourceType.TOPIC, ResourceType.BROKER):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind:d}")
        check_allowed(ctx, kind, resource.resource_name)
    except KafkaError as error:
        return Outcome(error.code, error.message)
    settings = {c.name: c.value for c in resource.configs}
    return await in_task(
        ctx.services.controller.replace_configs(kind, resource.resource_name, settings, validate_only)
    )
