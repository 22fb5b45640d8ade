"""PLAIN (RFC 4616): user and password in the first message. Only TLS keeps them secret.

::

    message: [authorization id] NUL user NUL password        UTF-8
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from .mechanism import SaslError

_INVALID = "Authentication failed: Invalid username or password"


class PlainClient:
    """See :class:`.mechanism.SaslClient`."""

    def __init__(self, user: str, password: str) -> None:
        self.complete = False
        self._message = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._message

    def respond(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslError("PLAIN has only one message, but the server sent another")
        self.complete = True
        return None


class PlainServer:
    """See :class:`.mechanism.SaslServer`. ``passwords`` are the users'."""

    expires_ms: int | None = None
    token_authenticated = False

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self.complete = False
        self.user = ""
        self._passwords = passwords

    def respond(self, message: bytes) -> bytes:
        try:
            # A fourth part is one too many.
            parts = message.decode().split("\0", 3)
        except UnicodeDecodeError:
            raise SaslError("Invalid SASL/PLAIN response: it is not UTF-8") from None
        if len(parts) != 3:
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {message.count(0) + 1}")
        identity, user, password = parts
        if not user:
            raise SaslError("Authentication failed: username not specified")
        self.user = user
        if not password:
            raise SaslError("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        # An unknown user's password is compared, too, so that both answers take the same time.
        right = hmac.compare_digest((expected or "\0").encode(), password.encode())
        if not right or expected is None:
            raise SaslError(_INVALID)
        if identity not in ("", user):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.complete = True
        return b""
