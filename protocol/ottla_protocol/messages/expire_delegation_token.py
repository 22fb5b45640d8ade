"""ExpireDelegationToken, key 40: an earlier end for a delegation token, or an end at once (KIP-48).

Version 2 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bytes, Int16, Int32, Int64, Message, field


class ExpireDelegationTokenRequest(
    Message, key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2", flexible="2+"
):
    """The token by its HMAC, and a time in milliseconds from now."""

    hmac: Bytes = field(default=b"")
    expiry_time_period_ms: Int64 = field(default=0)


class ExpireDelegationTokenResponse(
    Message, key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2", flexible="2+"
):
    """The token's end, in milliseconds since the epoch."""

    error_code: Int16 = field(default=0)
    expiry_timestamp_ms: Int64 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)
