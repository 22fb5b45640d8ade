"""DescribeDelegationToken, key 41: delegation tokens and their secrets, for owners and renewers (KIP-48).

Version 2 is flexible; 3 has the requester (KIP-373).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bytes, Int16, Int32, Int64, Message, String, Struct, field


class DescribeDelegationTokenOwner(Struct):
    principal_type: String = field(default="")
    principal_name: String = field(default="")


class DescribeDelegationTokenRequest(
    Message, key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """The owners whose tokens to describe; null means all, an empty list none."""

    owners: list[DescribeDelegationTokenOwner] | None = field(default_factory=list)


class DescribedDelegationTokenRenewer(Struct):
    principal_type: String = field(default="")
    principal_name: String = field(default="")


class DescribedDelegationToken(Struct):
    """Times are in milliseconds since the epoch."""

    principal_type: String = field(default="")
    principal_name: String = field(default="")
    token_requester_principal_type: String = field("3+", default="", ignorable=True)
    token_requester_principal_name: String = field("3+", default="", ignorable=True)
    issue_timestamp: Int64 = field(default=0)
    expiry_timestamp: Int64 = field(default=0)
    max_timestamp: Int64 = field(default=0)
    token_id: String = field(default="")
    hmac: Bytes = field(default=b"")
    renewers: list[DescribedDelegationTokenRenewer] = field(default_factory=list)


class DescribeDelegationTokenResponse(
    Message, key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """One entry per token that the client may see."""

    error_code: Int16 = field(default=0)
    tokens: list[DescribedDelegationToken] = field(default_factory=list)
    throttle_time_ms: Int32 = field(default=0)
