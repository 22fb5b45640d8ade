"""DescribeUserScramCredentials, key 50: which SCRAM mechanisms users have (KIP-554).

The only version is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Message, String, Struct, field


class UserName(Struct):
    name: String = field(default="")


class DescribeUserScramCredentialsRequest(
    Message, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """The users to describe; null or empty means all."""

    users: list[UserName] | None = field(default_factory=list)


class CredentialInfo(Struct):
    """A mechanism (1 is SCRAM-SHA-256, 2 SCRAM-SHA-512) and its iterations."""

    mechanism: Int8 = field(default=0)
    iterations: Int32 = field(default=0)


class DescribeUserScramCredentialsResult(Struct):
    user: String = field(default="")
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    credential_infos: list[CredentialInfo] = field(default_factory=list)


class DescribeUserScramCredentialsResponse(
    Message, key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """One result per user."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
