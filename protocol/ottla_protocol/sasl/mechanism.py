"""Parts that all mechanisms share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
MECHANISMS: Final = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)
"""The mechanisms that are built."""
DIGESTS: Final = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
"""The hash of each mechanism of SCRAM."""
CODES: Final = {1: SCRAM_SHA_256, 2: SCRAM_SHA_512}
"""The numbers of SCRAM's mechanisms in the protocol (KIP-554)."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""The limits for new passwords (``ScramMechanism``, ``ScramControlManager``)."""


class SaslError(Exception):
    """Authentication failed. The message is for the other side, too: it says nothing about which users exist.

    Attributes:
        reason: why, for this side's log.
    """

    def __init__(self, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.reason = reason or message


class Deferred(Exception):
    """Instead of a result: it needs work that takes milliseconds.

    Attributes:
        work: for another thread; it raises nothing.
        then: gets what ``work`` returned, on the thread of the caller, and returns the result or raises.
    """

    def __init__(self, work: Callable[[], Any], then: Callable[[Any], Any]) -> None:
        super().__init__("work for another thread")
        self.work = work
        self.then = then


class SaslClient(Protocol):
    """The client's side of one authentication.

    Attributes:
        complete: whether the server has proved all that the mechanism asks of it.
    """

    @property
    def complete(self) -> bool: ...

    def first(self) -> bytes:
        """The first message."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The answer to the server's message, None if nothing is to be sent. Raises SaslError."""
        ...


class SaslServer(Protocol):
    """The server's side of one authentication.

    Attributes:
        complete: whether the client has proved to be ``user``, whom it names before; empty while it hasn't.
        expires_ms: when its credential expires, in milliseconds since the epoch; None for never.
        token_authenticated: whether its credential is a delegation token.
    """

    @property
    def complete(self) -> bool: ...

    @property
    def user(self) -> str: ...

    @property
    def expires_ms(self) -> int | None: ...

    @property
    def token_authenticated(self) -> bool: ...

    def respond(self, message: bytes) -> bytes:
        """The answer to the client's message. Raises SaslError; Deferred if the answer needs a thread."""
        ...
