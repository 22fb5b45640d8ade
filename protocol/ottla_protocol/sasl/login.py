"""A user's login by SASL, for clients and for brokers that connect to others."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Protocol

from ..errors import error_code
from ..messages.sasl_authenticate import SaslAuthenticateRequest
from ..messages.sasl_handshake import SaslHandshakeRequest
from ..schema import Message
from .mechanism import OAUTHBEARER, PLAIN, SaslClient, SaslError
from .oauthbearer import OAuthClient
from .plain import PlainClient
from .scram import ScramClient, salt_password
from .token_endpoint import checked

RENEWED: Final = 0.85
"""The share of a session's lifetime after which to log in again (KIP-368), as Java's clients do."""
LOGIN: Final = (SaslHandshakeRequest, SaslAuthenticateRequest)
"""The requests of a login; others wait while a connection logs in again."""
_REMEMBERED: Final = 16


class Login(Protocol):
    """A way to log in.

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


Ask = Callable[[Message], Awaitable[Any]]
"""Sends a request, and returns its response."""
InThread = Callable[[Callable[[bytes], bytes | None], bytes], Awaitable[bytes | None]]
"""Calls a function outside the event loop's thread: hashing a password takes milliseconds."""


class MechanismRefused(Exception):
    """The peer does not offer the mechanism, or its listener has no logins.

    Attributes:
        code: UNSUPPORTED_SASL_MECHANISM, or why there are no logins.
        offered: the mechanisms that it offers.
    """

    def __init__(self, code: int, offered: Sequence[str]) -> None:
        super().__init__(error_code(code).name)
        self.code = code
        self.offered = offered


async def authenticate(mechanism: str, client: SaslClient, ask: Ask, in_thread: InThread) -> float:
    """Log in on a connection: SaslHandshake, then the client's messages in SaslAuthenticate (KIP-152).

    Returns the seconds after which to log in again (KIP-368), or 0 for never. Raises MechanismRefused, SaslError, and
    what ``ask`` raises.
    """
    chosen = await ask(SaslHandshakeRequest(mechanism=mechanism))
    if chosen.error_code:
        raise MechanismRefused(chosen.error_code, chosen.mechanisms)
    message: bytes | None = client.first()
    lifetime = 0
    while message is not None:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=message))
        if answer.error_code:
            raise SaslError(answer.error_message or error_code(answer.error_code).name)
        lifetime = answer.session_lifetime_ms
        message = await in_thread(client.respond, answer.auth_bytes)
    if not client.complete:
        raise SaslError("the broker ended the login early")
    return max(0, lifetime) / 1000 * RENEWED


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
