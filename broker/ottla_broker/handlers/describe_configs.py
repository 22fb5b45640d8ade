"""DescribeConfigs: the configs of topics, groups, brokers and client metrics.

Version 1 adds sources and synonyms (KIP-226), 3 types and documentation (KIP-569). A broker's name is its id; an empty
name means the defaults for all brokers. Broker loggers aren't built yet: INVALID_REQUEST with a message.
"""

from __future__ import annotations

from ottla_broker.config.describe import (
    DEFAULT_CONFIG,
    ConfigEntry,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from ottla_broker.controller.api import ResourceType
from ottla_broker.controller.config_admin import check_own_id
from ottla_broker.controller.validation import check_topic_name
from ottla_broker.requests.api import CLUSTER, DESCRIBE_CONFIGS, DESCRIPTIONS, GROUP, MOST_ANSWER, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import describe_configs as wire

API = Api(
    32,
    (0, 4),
    needs={TOPIC: DESCRIBE_CONFIGS, GROUP: DESCRIBE_CONFIGS, CLUSTER: DESCRIBE_CONFIGS},
    answer=DESCRIPTIONS,
)


async def handle(ctx: RequestContext, request: wire.DescribeConfigsRequest) -> wire.DescribeConfigsResponse:
    results = []
    size = 0
    # A resource that is named twice is described once: each has hundreds of configs.
    resources = {(each.resource_type, each.resource_name): each for each in reversed(request.resources)}
    for resource in reversed(resources.values()):
        result = wire.DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        try:
            if size > MOST_ANSWER:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "The configs of the resources before it fill the response; ask for fewer at a time.",
                )
            entries = _describe(ctx, resource)
            await pause(len(entries))
            result.configs = [_entry(ctx, request, entry) for entry in entries]
            size += sum(map(_size, result.configs))
            await pause(len(entries))
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.message or ""
        await pause(1)
        results.append(result)
    return wire.DescribeConfigsResponse(results=results)


def _size(entry: wire.DescribeConfigsResourceResult) -> int:
    """About how many bytes an entry has in the response."""
    size = 16 + len(entry.name) + len(entry.value or "") + len(entry.documentation or "")
    for synonym in entry.synonyms:
        size += 8 + len(synonym.name) + len(synonym.value or "")
    return size


def _describe(ctx: RequestContext, resource: wire.DescribeConfigsResource) -> list[ConfigEntry]:
    """Raises KafkaError if the resource can't be described."""
    config = ctx.services.config
    kind, name = resource.resource_type, resource.resource_name
    # As in Kafka, an empty list asks for all, as null does.
    names = list(dict.fromkeys(resource.configuration_keys or ())) or None
    if kind == ResourceType.TOPIC:
        ctx.check(AclResource.TOPIC, name)
        check_topic_name(name)
        info = ctx.services.metadata.topic(name)
        if info is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(config, info.configs, names)
    if kind == ResourceType.GROUP:
        ctx.check(AclResource.GROUP, name)
        return describe_group(config, ctx.services.metadata.group_configs.get(name, {}), names)
    ctx.check(AclResource.CLUSTER)
    if kind == ResourceType.CLIENT_METRICS:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(ctx.services.metadata.client_metrics.get(name, {}), names)
    if kind == ResourceType.BROKER:
        if not name:
            return describe_cluster_default(config, names)
        check_own_id(config, name, "Broker id", " or empty string")
        return describe_broker(config, names)
    if kind in ResourceType.__members__.values():
        what = ResourceType(kind).name
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Configs of type {what} are not supported by this broker."
        )
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")


def _entry(
    ctx: RequestContext, request: wire.DescribeConfigsRequest, entry: ConfigEntry
) -> wire.DescribeConfigsResourceResult:
    result = wire.DescribeConfigsResourceResult(
        name=entry.name, value=entry.value, read_only=entry.read_only, is_sensitive=entry.sensitive
    )
    if ctx.version == 0:
        result.is_default = entry.source == DEFAULT_CONFIG
        return result
    result.config_source = entry.source
    result.config_type = entry.type
    result.documentation = entry.documentation if request.include_documentation else None
    if request.include_synonyms:
        result.synonyms = [
            wire.DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source) for s in entry.synonyms
        ]
    return result
