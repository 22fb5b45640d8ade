"""Admin's calls for configs of topics, brokers and other resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from ottla_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.list_client_metrics_resources import ListClientMetricsResourcesRequest

from ..deadline import Deadline
from ..requests.driver import Node, Outcomes, ToNodes
from ..requests.outcomes import outcome_of
from .arguments import config_text, listed
from .base import AdminBase
from .values import AlterConfig, ConfigEntry, ConfigResource, ConfigSource, ConfigSynonym, ResourceType

_JAVA_RESOURCE: Final = re.compile(r"Invalid config value for resource ConfigResource\(.*?\): ")
"""What Kafka's messages say of the resource, in Java's notation; the client names it itself."""


class ConfigCalls(AdminBase):
    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """The configs of topics and brokers, all or those in ``keys``, with the sources of their values.

        Each broker reports its own. Raises UnknownTopicError, BrokerError; PartialError for several resources.
        """

        async def ask(
            node: Node, some: list[ConfigResource], deadline: Deadline
        ) -> Outcomes[ConfigResource, dict[str, ConfigEntry]]:
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configuration_keys=None if keys is None else list(keys),
                    )
                    for resource in some
                ],
                include_synonyms=include_synonyms,
                include_documentation=include_documentation,
            )
            answer = await self._call(node, request, deadline)
            return _outcomes(
                some,
                answer.results,
                lambda result: {
                    config.name: _entry(config, result.resource_type) for config in result.configs
                },
            )

        return await self._ask_each(
            "describe configs", listed(resources, ConfigResource), self._route(), ask, timeout
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[AlterConfig]],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Change single configs and keep the others (KIP-339, from Kafka 2.3 on).

        Raises BrokerError with INVALID_CONFIG, UnknownTopicError, …; PartialError for several resources.
        """

        async def ask(
            node: Node, some: list[ConfigResource], deadline: Deadline
        ) -> Outcomes[ConfigResource, None]:
            request = IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=resource.type,
                        resource_name=resource.name,
                        configs=[
                            AlterableConfig(
                                name=change.name,
                                config_operation=change.operation,
                                value=config_text(change.name, change.value),
                            )
                            for change in listed(changes[resource], AlterConfig)
                        ],
                    )
                    for resource in some
                ],
                validate_only=validate_only,
            )
            answer = await self._call(node, request, deadline)
            return _outcomes(some, answer.responses, lambda result: None)

        await self._ask_each("alter configs", changes, self._route(), ask, timeout)

    async def list_client_metrics(self, *, timeout: float | None = None) -> list[str]:
        """The names of the subscriptions to clients' metrics (KIP-714), sorted.

        ``describe_configs`` and ``alter_configs`` of a ``ResourceType.CLIENT_METRICS`` show and change one; without
        configs it is gone. Raises BrokerError; UnsupportedApiError before Kafka 3.7.
        """
        request = ListClientMetricsResourcesRequest()
        answer = await self._ask_once("client metrics", request, timeout)
        return sorted(each.name for each in answer.client_metrics_resources)

    def _route(self) -> ToNodes[ConfigResource]:
        return ToNodes(self._cluster, lambda resource: resource.node)


def _outcomes(
    some: Iterable[ConfigResource], results: Iterable[Any], value_of: Any
) -> dict[ConfigResource, Any]:
    """The results in a response by resource."""
    asked = {(int(resource.type), resource.name): resource for resource in some}
    outcomes = {}
    for result in results:
        resource = asked.get((result.resource_type, result.resource_name))
        if resource is not None:
            outcomes[resource] = outcome_of(
                result.error_code,
                value_of(result),
                str(resource),
                _JAVA_RESOURCE.sub("", result.error_message or "") or None,
            )
    return outcomes


def _entry(config: DescribeConfigsResourceResult, resource_type: int) -> ConfigEntry:
    source = _source(config.config_source)
    if config.config_source == -1:  # version 0, up to Kafka 1.0, reports only whether it is the default
        set_here = ConfigSource.TOPIC if resource_type == ResourceType.TOPIC else ConfigSource.STATIC_BROKER
        source = ConfigSource.DEFAULT if config.is_default else set_here
    return ConfigEntry(
        config.name,
        config.value,
        source,
        config.read_only,
        config.is_sensitive,
        tuple(ConfigSynonym(s.name, s.value, _source(s.source)) for s in config.synonyms),
        config.documentation or None,
    )


def _source(number: int) -> ConfigSource:
    try:
        return ConfigSource(number)
    except ValueError:
        return ConfigSource.UNKNOWN
