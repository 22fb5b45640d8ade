"""DescribeClientQuotas (key 48), versions 0-1: the quotas of users, client ids and addresses (KIP-546).

A filter that makes no sense is refused in Kafka's words (``ZkAdminManager.describeClientQuotas``).
"""

from __future__ import annotations

from typing import Final

from ottla_broker.controller.client_quotas import Component
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import describe_client_quotas as wire

_EXACT: Final = 0
_DEFAULT: Final = 1
_ANY: Final = 2


def handle(
    ctx: RequestContext, request: wire.DescribeClientQuotasRequest
) -> wire.DescribeClientQuotasResponse:
    try:
        found = ctx.services.quota_admin.describe(list(map(_component, request.components)), request.strict)
    except KafkaError as error:
        return wire.DescribeClientQuotasResponse(
            error_code=error.code, error_message=error.message, entries=None
        )
    return wire.DescribeClientQuotasResponse(
        entries=[
            wire.EntryData(
                entity=[wire.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
                values=[wire.ValueData(key=key, value=value) for key, value in sorted(values.items())],
            )
            for parts, values in found
        ]
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
