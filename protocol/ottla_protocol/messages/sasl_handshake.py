"""SaslHandshake, key 17: choose a SASL mechanism (KIP-43).

After version 0 the mechanism's messages follow without headers, after version 1 in SaslAuthenticate (KIP-152).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Message, String, field


class SaslHandshakeRequest(Message, key=ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none"):
    mechanism: String = field(default="")


class SaslHandshakeResponse(Message, key=ApiKey.SASL_HANDSHAKE, versions="0-1", flexible="none"):
    """The mechanisms that the listener offers."""

    error_code: Int16 = field(default=0)
    mechanisms: list[String] = field(default_factory=list)
