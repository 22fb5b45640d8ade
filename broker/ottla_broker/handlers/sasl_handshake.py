"""SaslHandshake: refused where a client needn't authenticate, or has already.

On listeners with SASL, :mod:`ottla_broker.security.authentication` answers it.
"""

from __future__ import annotations

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

API = Api(17, (0, 1))


async def handle(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
