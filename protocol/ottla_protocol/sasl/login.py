"""A user's login by SASL, for clients and for brokers that connect to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from .mechanism import OAUTHBEARER, PLAIN, SaslClient
from .oauthbearer import OAuthClient
from .plain import PlainClient
from .scram import ScramClient, salt_password
from .token_endpoint import checked

RENEWED: Final = 0.85
"""The share of a session's lifetime after which to log in again (KIP-368), as Java's clients do."""
_REMEMBERED: Final = 16


class Login(Protocol):
    """How to log in.

    Attributes:
        mechanism: the name of the SASL mechanism.
        user: for messages; empty where the login doesn't know it.
    """

    @property
    def mechanism(self) -> str: ...

    @property
    def user(self) -> str: ...

    async def client(self) -> SaslClient:
        """The client's side of a new login. Raises SaslError."""
        ...


class SaslLogin:
    """A user's name and password. Remembers salted passwords, which take milliseconds to compute.

    ``nonce`` gives a new random text for each login. ``tokenauth``: they are a delegation token's id and HMAC.
    """

    def __init__(
        self, mechanism: str, user: str, password: str, nonce: Callable[[], str], *, tokenauth: bool = False
    ) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password
        self._nonce = nonce
        self._tokenauth = tokenauth
        self._salted: dict[tuple[bytes, int], bytes] = {}

    async def client(self) -> SaslClient:
        """See :meth:`Login.client`."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self._password)
        return ScramClient(
            self.mechanism,
            self.user,
            self._password,
            self._nonce(),
            self._salt,
            tokenauth=self._tokenauth,
        )

    def _salt(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = salt, iterations
        if key not in self._salted:
            if len(self._salted) >= _REMEMBERED:
                self._salted.clear()
            self._salted[key] = salt_password(mechanism, password, salt, iterations)
        return self._salted[key]


GetToken = Callable[[], Awaitable[tuple[str, float]]]
"""Returns a token, and for how many seconds to keep it. Raises SaslError."""


class OAuthLogin:
    """A login by a token. ``fetch`` gets one, and ``lock`` keeps others from getting another meanwhile."""

    mechanism = OAUTHBEARER
    user = ""

    def __init__(
        self,
        fetch: GetToken,
        extensions: Callable[[], Mapping[str, str]],
        lock: AbstractAsyncContextManager[Any],
        monotonic: Callable[[], float],
    ) -> None:
        self._fetch = fetch
        self._extensions = extensions
        self._lock = lock
        self._monotonic = monotonic
        self._token = ""
        self._renew_at = 0.0

    async def client(self) -> SaslClient:
        """See :meth:`Login.client`."""
        async with self._lock:
            if not self._token or self._monotonic() >= self._renew_at:
                token, seconds = await self._fetch()
                self._token, self._renew_at = checked(token), self._monotonic() + seconds
        return OAuthClient(self._token, self._extensions())
