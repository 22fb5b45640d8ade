"""AlterUserScramCredentials, key 51: change users' passwords for SCRAM (KIP-554).

The only version is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bytes, Int8, Int16, Int32, Message, String, Struct, field


class ScramCredentialDeletion(Struct):
    """A mechanism (1 is SCRAM-SHA-256, 2 SCRAM-SHA-512)."""

    name: String = field(default="")
    mechanism: Int8 = field(default=0)


class ScramCredentialUpsertion(Struct):
    """The salted password, from which the server's keys are derived."""

    name: String = field(default="")
    mechanism: Int8 = field(default=0)
    iterations: Int32 = field(default=0)
    salt: Bytes = field(default=b"")
    salted_password: Bytes = field(default=b"")


class AlterUserScramCredentialsRequest(
    Message, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)


class AlterUserScramCredentialsResult(Struct):
    user: String = field(default="")
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")


class AlterUserScramCredentialsResponse(
    Message, key=ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+"
):
    """One result per user."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterUserScramCredentialsResult] = field(default_factory=list)
