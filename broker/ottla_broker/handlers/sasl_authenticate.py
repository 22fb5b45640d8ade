"""SaslAuthenticate: refused where a client needn't authenticate, or has already.

On listeners with SASL, :mod:`ottla_broker.security.authentication` answers it.
"""

from __future__ import annotations

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

API = Api(36, (0, 2))


async def handle(ctx: RequestContext, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE,
        error_message="SaslAuthenticate request received after successful authentication",
    )
