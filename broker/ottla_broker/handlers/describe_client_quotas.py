"""DescribeClientQuotas (key 48), versions 0-1: empty, since no quotas can be set (KIP-546).

A filter that makes no sense is refused in Kafka's words (``ZkAdminManager.describeClientQuotas``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_IP: Final = "ip"
_KINDS: Final = {"user": "user", "client-id": "client", _IP: "ip"}
"""Entity types, and Kafka's names for them in messages."""


def handle(ctx: RequestContext, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(error_message=None)


def _check(components: Sequence[ComponentData]) -> None:
    """Raises KafkaError."""
    seen: set[str] = set()
    for kind in (component.entity_type for component in components):
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty filter component entity type")
        if kind not in _KINDS:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported")
        if kind in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Duplicate {_KINDS[kind]} filter component entity type"
            )
        seen.add(kind)
    if _IP in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination, IP filter component should not be used with user or"
            " clientId filter component.",
        )
