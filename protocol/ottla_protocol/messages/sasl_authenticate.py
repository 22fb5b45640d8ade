"""SaslAuthenticate, key 36: a message of the chosen SASL mechanism (KIP-152).

Version 1 has the session's lifetime (KIP-368), 2 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bytes, Int16, Int64, Message, String, field


class SaslAuthenticateRequest(Message, key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    auth_bytes: Bytes = field(default=b"")


class SaslAuthenticateResponse(Message, key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """The server's message, and the milliseconds until the client must authenticate again; 0 for never."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    auth_bytes: Bytes = field(default=b"")
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
