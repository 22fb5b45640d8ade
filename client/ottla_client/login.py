"""How a client logs in by SASL."""

from __future__ import annotations

import secrets

from ottla_protocol.sasl.mechanism import PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, SaslClient
from ottla_protocol.sasl.plain import PlainClient
from ottla_protocol.sasl.scram import ScramClient, salt_password

MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)

_REMEMBERED = 16


class Login:
    """A user's name and password. Remembers salted passwords, which take milliseconds to compute."""

    def __init__(self, mechanism: str, user: str, password: str) -> None:
        self.mechanism = mechanism
        self.user = user
        self._password = password
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def client(self) -> SaslClient:
        """The client's side of a new login."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self._password)
        return ScramClient(self.mechanism, self.user, self._password, secrets.token_hex(16), self._salt)

    def _salt(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = salt, iterations
        if key not in self._salted:
            if len(self._salted) >= _REMEMBERED:
                self._salted.clear()
            self._salted[key] = salt_password(mechanism, password, salt, iterations)
        return self._salted[key]
