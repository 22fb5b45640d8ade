"""How this broker authenticates to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.sasl.mechanism import PLAIN, SaslClient
from ottla_protocol.sasl.plain import PlainClient
from ottla_protocol.sasl.scram import ScramClient, salt_password

if TYPE_CHECKING:
    from random import Random


class PeerLogin:
    """How this broker authenticates to others. Remembers salted passwords, which take milliseconds to compute."""

    def __init__(self, mechanism: str, user: str, password: str, random: Random) -> None:
        self.mechanism = mechanism
        self._user = user
        self._password = password
        self._random = random
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def client(self) -> SaslClient:
        """The client's side of a new login."""
        if self.mechanism == PLAIN:
            return PlainClient(self._user, self._password)
        nonce = f"{self._random.getrandbits(128):032x}"
        return ScramClient(self.mechanism, self._user, self._password, nonce, self._salt)

    def _salt(self, mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
        key = salt, iterations
        if key not in self._salted:
            if len(self._salted) > 16:
                self._salted.clear()
            self._salted[key] = salt_password(mechanism, password, salt, iterations)
        return self._salted[key]
