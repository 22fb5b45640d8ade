"""IncrementalAlterConfigs: set, delete, append to and subtract from configs (KIP-339).

A broker's name is its id; an empty name means all brokers. Levels of broker loggers can't be changed yet:
INVALID_REQUEST with a message.
"""

from __future__ import annotations

from ottla_broker.api_parts.config_requests import answer_each, check_allowed, check_entries, supported_kind
from ottla_broker.controller.api import ConfigChange, ConfigOperation, Outcome, ResourceType
from ottla_broker.requests.api import ALTER_CONFIGS, CLUSTER, GROUP, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import incremental_alter_configs as wire
from ottla_protocol.messages.alter_configs import AlterConfigsResourceResponse

API = Api(44, (0, 1), needs={TOPIC: ALTER_CONFIGS, GROUP: ALTER_CONFIGS, CLUSTER: ALTER_CONFIGS})


async def handle(
    ctx: RequestContext, request: wire.IncrementalAlterConfigsRequest
) -> wire.IncrementalAlterConfigsResponse:
    async def alter(resource: wire.AlterConfigsResource) -> Outcome:
        return await _alter(ctx, resource, request.validate_only)

    responses = await answer_each(request.resources, alter, AlterConfigsResourceResponse)
    return wire.IncrementalAlterConfigsResponse(responses=responses)


async def _alter(ctx: RequestContext, resource: wire.AlterConfigsResource, validate_only: bool) -> Outcome:
    try:
        check_entries(
            [(c.name, c.value, c.config_operation != ConfigOperation.DELETE) for c in resource.configs]
        )
        kind: ResourceType = supported_kind(resource.resource_type)
        check_allowed(ctx, kind, resource.resource_name)
        changes = [_change(config) for config in resource.configs]
    except KafkaError as error:
        return Outcome(error.code, error.message)
    return await in_task(
        ctx.services.controller.alter_configs(kind, resource.resource_name, changes, validate_only)
    )


def _change(config: wire.AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown operations type {config.config_operation}"
        ) from error
    return ConfigChange(config.name, operation, config.value)
