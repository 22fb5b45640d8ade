"""Logging in at an OpenID Connect provider: authorization code with PKCE (RFC 7636), state and nonce.

1. ``begin`` sends the browser to the provider, with a state, a nonce, and the digest of a verifier. A login under way
   is in the browser's cookie, signed: the console keeps nothing of it, so that no one can push others' logins out.
2. ``finish`` gets the browser back with a code, which it exchanges for tokens. The ID token says who the person is; it
   must be signed by the provider, for this console, with this nonce.
3. ``UserTokens`` gives the access token to the cluster, by OAUTHBEARER, and refreshes it. The cluster decides by it
   what the person may do; the console never looks inside.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import secrets
import ssl
import time
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp

from ottla_client.errors import ConfigurationError
from ottla_protocol.http_client import HttpError, provider_tls

LOGIN_SECONDS: Final = 600.0
"""The longest time for the provider's own pages."""
_MOST_TARGET: Final = 1_000
"""A longer path to go on with is left out: cookies have 4 KB."""
_SECONDS: Final = 10.0
_MOST_BYTES: Final = 256 << 10
_MOST_TOKEN: Final = 64 << 10
_SKEW_SECONDS: Final = 30.0
_KEEP_SECONDS: Final = 3600.0
"""The time for which the provider's description and keys are kept."""
_AGAIN_SECONDS: Final = 60.0
"""The least time between two reads of keys for a key that is unknown."""
_EARLY_SECONDS: Final = 30.0
_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)
"""Never HMAC: its key would be something public."""
_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key by the first letters of an algorithm."""
_MOST_KEYS: Final = 128
_ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class OidcError(Exception):
    """The login failed; the message says why, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """Raises ConfigurationError.

    Attributes:
        issuer: the provider's URL, whose ``/.well-known/openid-configuration`` describes it.
        secret: of a confidential client, None for a public one.
        scope: ``openid`` is added.
        authorities: a PEM file with the authorities of the provider's certificate; None trusts the system's.
    """

    issuer: str
    client_id: str
    secret: str | None = None
    scope: str = "openid"
    authorities: str | None = None

    def __post_init__(self) -> None:
        if not self.client_id:
            raise ConfigurationError(
                "--oidc-issuer needs --oidc-client-id, the console's name at the provider"
            )
        if not _is_safe(self.issuer):
            raise ConfigurationError(
                f"--oidc-issuer {self.issuer}: an https: URL is needed; http: only on this machine"
            )

    @property
    def scopes(self) -> str:
        return " ".join(dict.fromkeys(["openid", *self.scope.split()]))

    @property
    def host(self) -> str:
        return urlsplit(self.issuer).hostname or ""


class Started(NamedTuple):
    """A login that has begun: the address to send the browser to, and the value of its cookie."""

    url: str
    cookie: str


class _Login(NamedTuple):
    """A login under way. Only the browser that began it may finish it: it has this in a cookie."""

    state: str
    redirect: str
    next: str
    at: float
    """On the clock of this process, as the key of the signature is."""


def _bytes(text: str) -> bytes:
    """Text of a stranger, which may have halves of surrogates."""
    return text.encode("utf-8", "surrogatepass")


class _Signer:
    """Signs logins under way, and derives their secrets, with a key of this process."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def secret(self, purpose: str, state: str) -> str:
        """43 characters that only this process can make."""
        digest = hmac.digest(self._key, _bytes(f"{purpose} {state}"), "sha256")
        return urlsafe_b64encode(digest).rstrip(b"=").decode()

    def sign(self, login: _Login) -> str:
        """The cookie's value."""
        text = urlsafe_b64encode(json.dumps(login).encode()).decode()
        return f"{text}.{self.secret('login', text)}"

    def opened(self, cookie: str) -> _Login | None:
        """The login of a cookie; None if this process has not signed it."""
        text, _, signature = cookie.partition(".")
        if not hmac.compare_digest(_bytes(signature), self.secret("login", text).encode()):
            return None
        return _Login(*json.loads(urlsafe_b64decode(text)))


class Person(NamedTuple):
    """The user who has logged in. ``name`` is for people, and ends with the provider's subject, which is unique."""

    name: str
    tokens: UserTokens
    next: str


class OidcProvider:
    """A provider, as one console uses it. Belongs to one event loop."""

    def __init__(self, settings: OidcSettings) -> None:
        """Raises ConfigurationError for authorities that can't be used, or without the package for tokens."""
        self.settings = settings
        try:
            import jwt
        except ImportError:
            raise ConfigurationError(
                "--oidc-issuer needs the package pyjwt: pip install 'ottla[web]'"
            ) from None
        try:
            self._tls: ssl.SSLContext = provider_tls(settings.authorities)
        except HttpError as error:
            raise ConfigurationError(str(error)) from None
        self._jwt = jwt
        self._session: aiohttp.ClientSession | None = None
        self._signer = _Signer()
        # Of logins that have succeeded, until their cookies are too old.
        self._finished: dict[str, float] = {}
        self._metadata: dict[str, Any] = {}
        self._metadata_until = 0.0
        self._keys: list[dict[str, Any]] = []
        self._keys_at = 0.0
        self._reading = asyncio.Lock()

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def begin(self, redirect: str, target: str) -> Started:
        """Begin a login that comes back to ``redirect``, and ends on the page ``target``. Raises OidcError."""
        metadata = await self._described()
        state = secrets.token_urlsafe(32)
        target = target if len(target) <= _MOST_TARGET else ""
        login = _Login(state, redirect, target, asyncio.get_running_loop().time())
        digest = hashlib.sha256(self._signer.secret("verifier", state).encode()).digest()
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.settings.client_id,
                "redirect_uri": redirect,
                "scope": self.settings.scopes,
                "state": state,
                "nonce": self._signer.secret("nonce", state),
                "code_challenge": urlsafe_b64encode(digest).rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        endpoint = str(metadata["authorization_endpoint"])
        return Started(f"{endpoint}{'&' if '?' in endpoint else '?'}{query}", self._signer.sign(login))

    async def finish(self, query: Mapping[str, str], cookie: str) -> Person:
        """The person whose browser comes back with this query and cookie. Raises OidcError."""
        login = self._signer.opened(cookie)
        now = asyncio.get_running_loop().time()
        if (
            login is None
            or now - login.at >= LOGIN_SECONDS
            or not hmac.compare_digest(login.state.encode(), _bytes(query.get("state", "")))
            or login.state in self._finished
        ):
            raise OidcError("this login wasn't begun in this browser, or took too long; log in again")
        if query.get("iss", self.settings.issuer) != self.settings.issuer:
            raise OidcError("another provider answers (iss); log in again")
        if "error" in query or not query.get("code"):
            raise OidcError(f"the provider refuses the login: {_said(query)}")
        answer = await self._token(
            {
                "grant_type": "authorization_code",
                "code": query["code"],
                "redirect_uri": login.redirect,
                "code_verifier": self._signer.secret("verifier", login.state),
            }
        )
        claims = await self._claims(answer.get("id_token"))
        nonce, expected = claims.get("nonce"), self._signer.secret("nonce", login.state)
        if not isinstance(nonce, str) or not hmac.compare_digest(_bytes(nonce), expected.encode()):
            raise OidcError("the ID token is of another login (nonce)")
        self._finished = {state: at for state, at in self._finished.items() if now - at < LOGIN_SECONDS}
        self._finished[login.state] = now
        subject = str(claims["sub"])
        called = claims.get("preferred_username") or claims.get("email")
        name = f"{called[:100]} ({subject})" if isinstance(called, str) and called != subject else subject
        return Person(
            "".join(each for each in name if each.isprintable()), UserTokens(self, answer), login.next
        )

    async def refreshed(self, token: str) -> dict[str, Any]:
        """Raises OidcError."""
        return await self._token({"grant_type": "refresh_token", "refresh_token": token})

    async def _token(self, form: dict[str, str]) -> dict[str, Any]:
        """The answer of the token endpoint, which has an access token. Raises OidcError."""
        metadata, settings = await self._described(), self.settings
        headers = {"Accept": "application/json"}
        methods = metadata.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if settings.secret is None:
            form["client_id"] = settings.client_id
        elif (
            isinstance(methods, list)
            and "client_secret_basic" not in methods
            and "client_secret_post" in methods
        ):
            form |= {"client_id": settings.client_id, "client_secret": settings.secret}
        else:
            pair = f"{quote_plus(settings.client_id)}:{quote_plus(settings.secret)}"
            headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
        status, found = await self._ask("POST", str(metadata["token_endpoint"]), data=form, headers=headers)
        if status != 200:
            raise OidcError(f"the provider gives no token: {_said(found) or f'status {status}'}")
        token = found.get("access_token")
        if not isinstance(token, str) or not 0 < len(token) <= _MOST_TOKEN:
            raise OidcError("the provider's answer has no access token")
        return found

    async def _claims(self, token: object) -> dict[str, Any]:
        """The claims of an ID token after every check but the nonce. Raises OidcError."""
        jwt = self._jwt
        if not isinstance(token, str) or len(token) > _MOST_TOKEN:
            raise OidcError("the provider's answer has no ID token; does the scope have openid?")
        try:
            header = jwt.get_unverified_header(token)
            claims = jwt.decode(
                token,
                await self._key(header),
                algorithms=[header["alg"]],
                audience=self.settings.client_id,
                issuer=self.settings.issuer,
                leeway=_SKEW_SECONDS,
                options={"require": ["iss", "sub", "aud", "exp", "iat"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise OidcError(f"the ID token isn't valid: {error}"[:300]) from None
        several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if (several or "azp" in claims) and claims.get("azp") != self.settings.client_id:
            raise OidcError("the ID token is for another client (azp)")
        return dict(claims)

    async def _key(self, header: Mapping[str, Any]) -> Any:
        """The public key that a token names. Raises OidcError, PyJWTError."""
        algorithm, number = header.get("alg"), header.get("kid")
        kind = _KINDS.get(algorithm[:2]) if algorithm in _ALGORITHMS else None
        if kind is None:
            raise OidcError(f"the ID token's algorithm {str(algorithm)[:20]!r} isn't accepted")
        for attempt in range(2):
            async with self._reading:
                now = asyncio.get_running_loop().time()
                age = now - self._keys_at
                if not self._keys or age > (_AGAIN_SECONDS if attempt else _KEEP_SECONDS):
                    self._keys = await self._read_keys()
                    self._keys_at = now
                keys = self._keys
            for key in keys:
                if (
                    key.get("kty") == kind
                    and key.get("use", "sig") == "sig"
                    and key.get("alg", algorithm) == algorithm
                    and number in (None, key.get("kid"))
                ):
                    return self._jwt.PyJWK(key, algorithm).key
        raise OidcError("the ID token is signed by a key that the provider doesn't publish")

    async def _read_keys(self) -> list[dict[str, Any]]:
        """Raises OidcError."""
        status, found = await self._ask("GET", str((await self._described())["jwks_uri"]))
        keys = found.get("keys")
        if status != 200 or not isinstance(keys, list):
            raise OidcError(f"the provider's keys can't be read (status {status})")
        return [each for each in keys[:_MOST_KEYS] if isinstance(each, dict)]

    async def _described(self) -> dict[str, Any]:
        """The provider's own description (OpenID Connect Discovery). Raises OidcError."""
        now = asyncio.get_running_loop().time()
        if self._metadata and now < self._metadata_until:
            return self._metadata
        url = self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration"
        status, found = await self._ask("GET", url)
        if status != 200:
            raise OidcError(f"{self.settings.host} isn't an OpenID Connect provider (status {status})")
        if found.get("issuer") != self.settings.issuer:
            raise OidcError(
                f"the provider calls itself {str(found.get('issuer'))[:100]!r}: give it as --oidc-issuer"
            )
        for name in _ENDPOINTS:
            if not _is_safe(str(found.get(name, ""))):
                raise OidcError(f"the provider's {name} isn't an https: URL")
        self._metadata, self._metadata_until = found, now + _KEEP_SECONDS
        return found

    async def _ask(self, method: str, url: str, **options: Any) -> tuple[int, dict[str, Any]]:
        """The status and the object of an answer; an empty one for anything else. Raises OidcError."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_SECONDS), cookie_jar=aiohttp.DummyCookieJar()
            )
        try:
            async with self._session.request(
                method, url, allow_redirects=False, ssl=self._tls, **options
            ) as answer:
                data = b""
                while len(data) <= _MOST_BYTES and not answer.content.at_eof():
                    data += await answer.content.read(_MOST_BYTES + 1)
                status = answer.status
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            why = str(error) or f"no answer within {_SECONDS:.0f} s"
            raise OidcError(f"the provider {self.settings.host} can't be reached: {why}"[:300]) from None
        if len(data) > _MOST_BYTES:
            raise OidcError(f"the provider's answer is longer than {_MOST_BYTES:,} bytes")
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = {}
        return status, found if isinstance(found, dict) else {}


class UserTokens:
    """A person's access token for the cluster, refreshed in time. A token provider of the client."""

    def __init__(self, provider: OidcProvider, answer: Mapping[str, Any]) -> None:
        self._provider = provider
        self._refresh: str | None = None
        self._until = 0.0
        self._token = ""
        self._take(answer)
        self._busy = asyncio.Lock()

    def _take(self, answer: Mapping[str, Any]) -> None:
        self._token = str(answer["access_token"])
        seconds = answer.get("expires_in")
        known = isinstance(seconds, (int, float)) and 0 < seconds < 10**9
        self._until = time.monotonic() + float(seconds if known else _KEEP_SECONDS)  # type: ignore[arg-type]
        again = answer.get("refresh_token")
        if isinstance(again, str) and len(again) <= _MOST_TOKEN:
            self._refresh = again

    @property
    def ended(self) -> bool:
        """Whether the token has expired, and can't be refreshed."""
        return self._refresh is None and time.monotonic() >= self._until

    async def token(self) -> str:
        """Raises OidcError."""
        async with self._busy:
            if time.monotonic() >= self._until - _EARLY_SECONDS and self._refresh is not None:
                try:
                    self._take(await self._provider.refreshed(self._refresh))
                except OidcError:
                    if time.monotonic() >= self._until:
                        self._refresh = None
                        raise
            if time.monotonic() >= self._until:
                raise OidcError("the login at the provider has ended; log in again")
            return self._token


def _said(answer: Mapping[str, Any]) -> str:
    """The error that a provider names (RFC 6749, 4.1.2.1), in one line."""
    parts = [answer.get(name) for name in ("error", "error_description")]
    text = ": ".join(str(each) for each in parts if each)
    return "".join(each for each in text if each.isprintable())[:200]


def _is_safe(url: str) -> bool:
    """Whether what is sent to a URL can't be read on the way."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if parts.scheme == "https":
        return bool(host)
    try:
        return parts.scheme == "http" and ipaddress.ip_address(host).is_loopback
    except ValueError:
        return parts.scheme == "http" and host == "localhost"
