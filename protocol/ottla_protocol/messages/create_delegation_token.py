"""CreateDelegationToken, key 38: a token for logins by SCRAM (KIP-48).

Version 2 is flexible; 3 has an owner other than the requester (KIP-373).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bytes, Int16, Int32, Int64, Message, String, Struct, field


class CreatableRenewers(Struct):
    principal_type: String = field(default="")
    principal_name: String = field(default="")


class CreateDelegationTokenRequest(
    Message, key=ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """The lifetime is in milliseconds, -1 for the broker's limit. A null owner is the requester."""

    owner_principal_type: String | None = field("3+", default="")
    owner_principal_name: String | None = field("3+", default="")
    renewers: list[CreatableRenewers] = field(default_factory=list)
    max_lifetime_ms: Int64 = field(default=0)


class CreateDelegationTokenResponse(
    Message, key=ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """Times are in milliseconds since the epoch."""

    error_code: Int16 = field(default=0)
    principal_type: String = field(default="")
    principal_name: String = field(default="")
    token_requester_principal_type: String = field("3+", default="", ignorable=True)
    token_requester_principal_name: String = field("3+", default="", ignorable=True)
    issue_timestamp_ms: Int64 = field(default=0)
    expiry_timestamp_ms: Int64 = field(default=0)
    max_timestamp_ms: Int64 = field(default=0)
    token_id: String = field(default="")
    hmac: Bytes = field(default=b"")
    throttle_time_ms: Int32 = field(default=0)
