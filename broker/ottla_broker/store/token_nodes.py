"""The nodes of delegation tokens (Kafka: ``DelegationTokenManagerZk``, ``DelegationTokenChangeNotificationZNode``)."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from ottla_broker.store.keys import encode_object, read_object

_VERSION: Final = 3
_REQUESTER_SINCE: Final = 3


class TokenInfo(NamedTuple):
    """A delegation token without its secret. Principals are such as ``User:alice``; times since the epoch."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def belongs_to(self, principal: str) -> bool:
        """Whether it is the owner's, or a renewer's."""
        return principal == self.owner or principal in self.renewers


class TokenNode:
    """``/delegation_token/tokens/ID``: a token, without its secret. JSON version 3 (KIP-373)."""

    PARENT: Final = "/delegation_token/tokens"

    @staticmethod
    def path(token_id: str) -> str:
        return f"{TokenNode.PARENT}/{token_id}"

    @staticmethod
    def encode(token: TokenInfo) -> bytes:
        return encode_object(
            {
                "version": _VERSION,
                "owner": _sanitized(token.owner),
                "tokenRequester": _sanitized(token.requester),
                "renewers": [_sanitized(each) for each in token.renewers],
                "issueTimestamp": token.issued_ms,
                "maxTimestamp": token.max_ms,
                "expiryTimestamp": token.expires_ms,
                "tokenId": token.token_id,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> TokenInfo:
        """Raises BadNodeError."""

        def read(found: dict[str, Any]) -> TokenInfo:
            version = int(found["version"])
            if not 1 <= version <= _VERSION:
                raise ValueError
            owner = _principal(found["owner"])
            requester = _principal(found["tokenRequester"]) if version >= _REQUESTER_SINCE else owner
            token = TokenInfo(
                str(found["tokenId"]),
                owner,
                requester,
                tuple(_principal(each) for each in found["renewers"]),
                _time(found["issueTimestamp"]),
                _time(found["expiryTimestamp"]),
                _time(found["maxTimestamp"]),
            )
            if TokenNode.path(token.token_id) != path:
                raise ValueError
            return token

        return read_object(path, data, "is not a delegation token", read)


class TokenChangeNode:
    """``/delegation_token/token_changes/token_change_N``: a token has changed. Its data is the token's id."""

    PARENT: Final = "/delegation_token/token_changes"
    NAME: Final = "token_change_"
    PREFIX: Final = f"{PARENT}/{NAME}"


PATHS: Final = (TokenNode.PARENT, TokenChangeNode.PARENT)
"""The paths that Kafka creates when delegation tokens are on (``KafkaZkClient.createDelegationTokenPaths``)."""


def _sanitized(principal: str) -> str:
    return quote(principal, safe="")


def _time(value: Any) -> int:
    """Milliseconds that an answer can carry. Raises ValueError for others."""
    time_ms = int(value)
    if not -(2**63) <= time_ms < 2**63:
        raise ValueError
    return time_ms


def _principal(text: str) -> str:
    principal = unquote(text)
    if not all(principal.partition(":")):
        raise ValueError
    # Half of a surrogate pair can't be sent: UnicodeEncodeError is a ValueError.
    principal.encode()
    return principal
