"""OAUTHBEARER (RFC 7628, KIP-255): the client sends a token, and the server says whom it names.

::

    client:           "n," ["a=" principal] "," SEP "auth=Bearer " token SEP *(name "=" value SEP) SEP     SEP: 0x01
    server, valid:    nothing
    server, invalid:  {"status":"invalid_token"}, which the client answers with one SEP; then the login fails
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from .mechanism import Deferred, SaslError

SEPARATOR: Final = b"\x01"
MOST_BYTES: Final = 16 * 1024
"""The most bytes of a client's message: large tokens have some thousand."""
INVALID_TOKEN: Final = "invalid_token"
INSUFFICIENT_SCOPE: Final = "insufficient_scope"

_FIRST: Final = re.compile(
    r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    r"((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01"
)
_AUTH: Final = re.compile(r"(\w+) +([-_.a-zA-Z0-9]+)", re.ASCII)
_EXTENSION: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
TOKEN: Final = re.compile(r"[-_.a-zA-Z0-9]+")
"""The form of a token in a message: parts in URL-safe base64, with dots between them."""

_REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism OAUTHBEARER"
)
"""Kafka's words for a message that isn't one of the mechanism's."""


class Token(NamedTuple):
    """The contents of a valid token. ``expires_ms`` is since the epoch."""

    principal: str
    expires_ms: int


class TokenError(Exception):
    """A token isn't accepted. The message is for the log alone: the client gets ``status`` and ``scope``."""

    def __init__(self, reason: str, status: str = INVALID_TOKEN, scope: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.scope = scope


def check_extensions(extensions: Mapping[str, str]) -> None:
    """Raise ValueError for SASL extensions that can't be sent."""
    for name, value in extensions.items():
        if name == "auth" or _EXTENSION.fullmatch(name) is None:
            raise ValueError(f"{name!r} can't be the name of a SASL extension: letters are, except for auth")
        if _EXTENSION_VALUE.fullmatch(value) is None:
            raise ValueError(f"the value of the SASL extension {name} must be printable ASCII text")


class OAuthClient:
    """See :class:`.mechanism.SaslClient`."""

    def __init__(self, token: str, extensions: Mapping[str, str]) -> None:
        self.complete = False
        pairs = {"auth": f"Bearer {token}", **extensions}
        text = "".join(f"{name}={value}\x01" for name, value in pairs.items())
        self._message = f"n,,\x01{text}\x01".encode()
        self._refusal = ""

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        if self._refusal:
            raise SaslError(self._refusal)
        if challenge:
            self._refusal = f"the server refuses the token: {challenge[:1024].decode(errors='replace')}"
            return SEPARATOR
        self.complete = True
        return None


class OAuthServer:
    """See :class:`.mechanism.SaslServer`. ``validate`` raises TokenError, or Deferred."""

    def __init__(self, validate: Callable[[str], Token]) -> None:
        self.complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.token_authenticated = False
        self._validate = validate
        # The answer to a token that wasn't accepted, and why.
        self._refusal: tuple[str, str] | None = None

    def respond(self, message: bytes) -> bytes:
        if self._refusal is not None:
            answer, reason = self._refusal
            if message == SEPARATOR:
                raise SaslError(answer, reason)
            raise SaslError(_REFUSED, "the client answers the refusal of its token with another message")
        if len(message) > MOST_BYTES:
            return self._refuse(
                TokenError(f"its message has {len(message)} bytes, at most {MOST_BYTES} are read")
            )
        identity, token = _parse(message)
        return self._judge(identity, partial(self._validate, token))

    def _judge(self, identity: str, validate: Callable[[], Token]) -> bytes:
        try:
            found = validate()
        except Deferred as later:
            then = later.then
            raise Deferred(later.work, lambda done: self._judge(identity, partial(then, done))) from None
        except TokenError as error:
            return self._refuse(error)
        if identity and identity != found.principal:
            raise SaslError(
                f"Authentication failed: Client requested an authorization id ({identity}) that is different from"
                f" the token's principal name ({found.principal})"
            )
        self.user, self.expires_ms, self.complete = found.principal, found.expires_ms, True
        return b""

    def _refuse(self, error: TokenError) -> bytes:
        body = {"status": error.status, **({"scope": error.scope} if error.scope else {})}
        answer = json.dumps(body, separators=(",", ":"))
        self._refusal = answer, f"the token is refused: {error}"
        return answer.encode()


def _parse(message: bytes) -> tuple[str, str]:
    """The authorization id and the token of a client's message. Raises SaslError."""
    try:
        match = _FIRST.fullmatch(message.decode("ascii"))
    except UnicodeDecodeError:
        match = None
    if match is None:
        raise SaslError(_REFUSED, "Invalid OAUTHBEARER client first message")
    pairs = dict(part.split("=", 1) for part in match[2].split("\x01") if part)
    if "auth" not in pairs:
        raise SaslError(_REFUSED, "Invalid OAUTHBEARER client first message: 'auth' not specified")
    auth = _AUTH.fullmatch(pairs["auth"].strip())
    if auth is None:
        raise SaslError(_REFUSED, "Invalid OAUTHBEARER client first message: invalid 'auth' format")
    if auth[1].lower() != "bearer":
        raise SaslError(_REFUSED, "Invalid scheme in OAUTHBEARER client first message")
    return (match[1] or "").replace("=2C", ",").replace("=3D", "="), auth[2]
