"""A user's login by SASL, for clients and for brokers that connect to others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .mechanism import PLAIN, SaslClient
from .plain import PlainClient
from .scram import ScramClient, salt_password

RENEWED: Final = 0.85
"""The share of a session's lifetime after which to log in again (KIP-368), as Java's clients do."""
_REMEMBERED: Final = 16


class SaslLogin:
    """A user's name and password. Remembers salted passwords, which take milliseconds to compute.

    ``nonce`` gives a new random text for each login.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: Callable[[], str]) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password
        self._nonce = nonce
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def client(self) -> SaslClient:
        """The client's side of a new login."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self._password)
        return ScramClient(self.mechanism, self.user, self._password, self._nonce(), self._salt)

    def _salt(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = salt, iterations
        if key not in self._salted:
            if len(self._salted) >= _REMEMBERED:
                self._salted.clear()
            self._salted[key] = salt_password(mechanism, password, salt, iterations)
        return self._salted[key]
