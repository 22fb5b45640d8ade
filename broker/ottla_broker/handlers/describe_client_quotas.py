"""DescribeClientQuotas: the quotas of users, client ids and addresses (KIP-546).

A filter that makes no sense is refused in Kafka's words (``ZkAdminManager.describeClientQuotas``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla_broker.controller.client_quotas import Component, Entity
from ottla_broker.requests.api import CLUSTER, DESCRIBE_CONFIGS, DESCRIPTIONS, MOST_ANSWER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.made_later import made_later
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import describe_client_quotas as wire

API = Api(48, (0, 1), needs={CLUSTER: DESCRIBE_CONFIGS}, gate=CLUSTER, answer=DESCRIPTIONS, coded=200)

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2
_SIZE: Final = 100
"""About how many bytes an entry has in the response, besides its names."""


async def handle(
    ctx: RequestContext, request: wire.DescribeClientQuotasRequest
) -> wire.DescribeClientQuotasResponse:
    found: list[tuple[Entity, Mapping[str, float]]] = []
    size = 0
    try:
        components = list(map(_component, request.components))
        for each in ctx.services.quota_admin.describe(components, request.strict):
            if each is not None:
                found.append(each)
                size += _SIZE + len(each[0].name)
            if size > MOST_ANSWER:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "The quotas don't fit into a response; ask for fewer by a filter.",
                )
            await pause(1)
    except KafkaError as error:
        return wire.DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return wire.DescribeClientQuotasResponse(entries=made_later(found, _entry))


def _entry(found: tuple[Entity, Mapping[str, float]]) -> wire.EntryData:
    entity, values = found
    return wire.EntryData(
        entity=[wire.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts],
        values=[wire.ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


def _component(component: wire.ComponentData) -> Component:
    """Raises KafkaError."""
    if component.match_type not in (_EXACT, _DEFAULT, _ANY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unexpected match type: {component.match_type}")
    if component.match_type == _EXACT and component.match is None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set the match string to null."
        )
    name = component.match if component.match_type == _EXACT else None
    return Component(component.entity_type, name, component.match_type == _ANY)
