"""Admin's calls for delegation tokens (KIP-48, KIP-373)."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from typing import Any

from ottla_protocol.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla_protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from ottla_protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from ottla_protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

from ..errors import ConfigurationError
from .base import AdminBase
from .values import DelegationToken

_USER = "User"


class TokenCalls(AdminBase):
    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = -1,
        timeout: float | None = None,
    ) -> DelegationToken:
        """Make a token that logs in as its owner, which is this client's user unless ``owner`` names another.

        ``renewers`` may renew and expire it, too. Users are names such as ``alice`` or ``User:alice``. -1 is the
        brokers' longest lifetime.

        Raises BrokerError: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if this client hasn't
        logged in, or has by a token, DELEGATION_TOKEN_AUTHORIZATION_FAILED, …
        """
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, renewers)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type, request.owner_principal_name = _principal(owner)
        answer = await self._ask_once("create the delegation token", request, timeout)
        named = [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]
        return DelegationToken(
            id=answer.token_id,
            hmac=answer.hmac,
            owner=f"{answer.principal_type}:{answer.principal_name}",
            requester=_requester(answer),
            renewers=tuple(named),
            issued_ms=answer.issue_timestamp_ms,
            expires_ms=answer.expiry_timestamp_ms,
            max_ms=answer.max_timestamp_ms,
        )

    async def renew_delegation_token(
        self, hmac: bytes | str, *, period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Let a token last ``period_ms`` from now, -1 for the brokers' default; never beyond its longest lifetime.

        ``hmac`` is the token's secret, as bytes or in base64. Returns the token's end in milliseconds since the epoch.
        Raises BrokerError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_OWNER_MISMATCH, DELEGATION_TOKEN_EXPIRED, …
        """
        request = RenewDelegationTokenRequest(hmac=_secret(hmac), renew_period_ms=period_ms)
        return int((await self._ask_once("renew the delegation token", request, timeout)).expiry_timestamp_ms)

    async def expire_delegation_token(
        self, hmac: bytes | str, *, period_ms: int = -1, timeout: float | None = None
    ) -> int:
        """Let a token end ``period_ms`` from now, or at once for -1. As :meth:`renew_delegation_token`."""
        request = ExpireDelegationTokenRequest(hmac=_secret(hmac), expiry_time_period_ms=period_ms)
        return int(
            (await self._ask_once("expire the delegation token", request, timeout)).expiry_timestamp_ms
        )

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None, *, timeout: float | None = None
    ) -> list[DelegationToken]:
        """The tokens that this client may see, with their secrets, or only those of some owners; sorted by owner.

        Raises BrokerError: DELEGATION_TOKEN_AUTH_DISABLED, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
        """
        request = DescribeDelegationTokenRequest(owners=None)
        if owners is not None:
            request.owners = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_principal, owners)
            ]
        answer = await self._ask_once("describe delegation tokens", request, timeout)
        found = [
            DelegationToken(
                id=each.token_id,
                hmac=each.hmac,
                owner=f"{each.principal_type}:{each.principal_name}",
                requester=_requester(each),
                renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in each.renewers),
                issued_ms=each.issue_timestamp,
                expires_ms=each.expiry_timestamp,
                max_ms=each.max_timestamp,
            )
            for each in answer.tokens
        ]
        return sorted(found, key=lambda token: (token.owner, token.issued_ms, token.id))


def _principal(text: str) -> tuple[str, str]:
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = _USER, text
    if not kind or not name:
        raise ConfigurationError(f"{text!r} is no principal such as alice or User:alice")
    return kind, name


def _requester(answer: Any) -> str:
    """Brokers before Kafka 3.3 don't report it: then it is the owner."""
    if not answer.token_requester_principal_name:
        return f"{answer.principal_type}:{answer.principal_name}"
    return f"{answer.token_requester_principal_type}:{answer.token_requester_principal_name}"


def _secret(hmac: bytes | str) -> bytes:
    if isinstance(hmac, bytes):
        return hmac
    try:
        return b64decode(hmac, validate=True)
    except ValueError:
        raise ConfigurationError("hmac is not base64: give the token's HMAC as it was printed") from None
