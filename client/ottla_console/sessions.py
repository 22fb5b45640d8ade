"""Sessions: who is logged in, with a client of their own, and the changes that wait to be confirmed."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from ottla_client.admin import Admin
from ottla_client.errors import AuthenticationError, BootstrapError, ClientError, ConnectError

from .watch import ClusterWatch

if TYPE_CHECKING:
    from .oidc import UserTokens

_LOG: Final = logging.getLogger("ottla.console")

MOST_SESSIONS: Final = 200
MOST_PENDING: Final = 20
PENDING_SECONDS: Final = 900.0
LONGEST_SECONDS: Final = 12 * 3600.0
"""A session ends then, however busy it is."""
_TRIES: Final = 5
_TRY_SECONDS: Final = 60.0
_MOST_ADDRESSES: Final = 10_000
_START_SECONDS: Final = 10.0
_FIRST_SECONDS: Final = 2.0
"""How long the console waits for a broker before it serves pages that say that there is none."""
_AGAIN_SECONDS: Final = 1.0


@dataclass(slots=True)
class Change:
    """Something that is made when its person confirms it.

    Attributes:
        what: one line, imperative.
        details: exactly what changes, one line each.
        run: makes the change; what it raises ends up on the page.
        back: the page to go to afterwards.
        audit: fields of the audit log.
    """

    what: str
    details: list[str]
    run: Callable[[], Awaitable[object]]
    back: str
    audit: Mapping[str, object]
    warning: str = ""
    at: float = 0.0


@dataclass(slots=True, eq=False)
class Session:
    """One person at one browser. ``user`` is "" where no one has to log in."""

    token: str
    csrf: str
    user: str
    watch: ClusterWatch
    client: Mapping[str, Any]
    began: float
    used: float
    pending: dict[str, Change] = field(default_factory=dict)
    busy: int = 0
    ended: bool = False
    over: Callable[[], bool] = bool
    """Whether its login has ended by itself, as that of a token without another one."""

    @property
    def admin(self) -> Admin:
        return self.watch.admin

    def matches(self, token: str) -> bool:
        """Whether a form came from a page of this session."""
        return hmac.compare_digest(self.csrf.encode(), token.encode())

    def propose(self, change: Change) -> str:
        """Keep a change until it is confirmed. Returns its token."""
        now = change.at = asyncio.get_running_loop().time()
        self.pending = {
            token: each for token, each in self.pending.items() if now - each.at < PENDING_SECONDS
        }
        while len(self.pending) >= MOST_PENDING:
            del self.pending[next(iter(self.pending))]
        token = secrets.token_urlsafe(16)
        self.pending[token] = change
        return token

    def confirm(self, token: str) -> Change | None:
        """The change with this token, which is made at most once; None if it is too old or was made."""
        change = self.pending.pop(token, None)
        if change is None or asyncio.get_running_loop().time() - change.at >= PENDING_SECONDS:
            return None
        return change


class TooManyTriesError(Exception):
    """Logins from this address have failed too often; the message says when to try again."""


class Sessions:
    """All sessions of the console. Bounded: the one that was used longest ago makes room."""

    def __init__(
        self,
        client: Mapping[str, Any],
        timeout: float,
        minutes: float,
        refresh: float,
        *,
        logs_in: bool,
        zookeeper: str | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self._client = dict(client)
        self._timeout = timeout
        self._idle = minutes * 60
        self._refresh = refresh
        self._logs_in = logs_in
        self._shared: ClusterWatch | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._unreachable = ""
        self._all: dict[str, Session] = {}
        self._failures: dict[str, list[float]] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def _admin(self, options: Mapping[str, Any]) -> Admin:
        return Admin(**options, default_api_timeout_ms=max(1, round(self._timeout * 1000)))

    async def start(self) -> None:
        """Connect, where the console has one user for everyone; if no broker answers soon, go on in the background.

        Raises ClientError for what won't change by itself, such as a wrong name of a broker or a refused login.
        """
        if self._logs_in:
            return
        admin = self._admin(self._client)
        try:
            await self._connect(admin, min(self._timeout, _FIRST_SECONDS))
        except BootstrapError as error:
            if error.__cause__ is not None or not await _has_known_name(admin._cluster.bootstrap):
                raise
            _LOG.warning("%s; the console goes on trying", error)
            self._connecting = asyncio.get_running_loop().create_task(self._keep_connecting(str(error)))

    async def _connect(self, admin: Admin, seconds: float) -> None:
        await admin.start(seconds)
        self._shared = ClusterWatch(admin, self._refresh, self._zookeeper, self._timeout)

    async def _keep_connecting(self, why: str) -> None:
        while self._shared is None:
            self._unreachable = why
            await asyncio.sleep(_AGAIN_SECONDS)
            try:
                await self._connect(self._admin(self._client), min(self._timeout, _START_SECONDS))
            except ClientError as error:
                why = str(error)

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        for session in list(self._all.values()):
            self.end(session)
        while self._closing:
            await asyncio.gather(*self._closing)
        if self._shared is not None:
            await self._shared.close()
            await self._shared.admin.close()

    def find(self, token: str, *, touch: bool = True) -> Session | None:
        """The session with this token unless it has ended."""
        now = asyncio.get_running_loop().time()
        session = self._all.get(token)
        if session is None:
            return None
        if self._is_over(session, now):
            self.end(session)
            return None
        if touch:
            session.used = now
            self._all[token] = self._all.pop(token)  # the last one is the last to make room
        return session

    def open(self) -> Session:
        """A session without login. Raises ConnectError while no broker has answered since the start."""
        if self._shared is None:
            raise ConnectError(f"no broker can be reached: {self._unreachable}")
        return self._add("", self._shared, self._client)

    async def log_in(self, user: str, password: str, address: str) -> Session:
        """Connect to the cluster as this user. Raises ClientError, AuthenticationError; TooManyTriesError."""
        now = asyncio.get_running_loop().time()
        recent = [at for at in self._failures.get(address, ()) if now - at < _TRY_SECONDS]
        if len(recent) >= _TRIES:
            left = round(_TRY_SECONDS - (now - recent[0])) + 1
            raise TooManyTriesError(f"too many failed logins from this address; try again in {left} s")
        # Counted before the broker answers, so that tries at the same time count as well.
        self._failures.pop(address, None)
        self._failures[address] = [*recent, now]
        while len(self._failures) > _MOST_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        options = {**self._client, "sasl_plain_username": user, "sasl_plain_password": password}
        watch = await self._connected(options)
        self._failures.pop(address, None)
        return self._add(user, watch, options)

    async def log_in_by_token(self, user: str, tokens: UserTokens) -> Session:
        """Connect to the cluster by a person's tokens. Raises ClientError, AuthenticationError."""
        options = {**self._client, "sasl_oauth_token_provider": tokens}
        session = self._add(user, await self._connected(options), options)
        session.over = lambda: tokens.ended
        return session

    async def _connected(self, options: Mapping[str, Any]) -> ClusterWatch:
        """Raises ClientError, AuthenticationError."""
        admin = self._admin(options)
        try:
            await admin.start(min(self._timeout, _START_SECONDS))
        except BootstrapError as error:
            if isinstance(error.__cause__, AuthenticationError):
                raise error.__cause__ from None
            raise
        return ClusterWatch(admin, self._refresh)

    def _is_over(self, session: Session, now: float) -> bool:
        return now - session.used > self._idle or now - session.began > LONGEST_SECONDS or session.over()

    def _add(self, user: str, watch: ClusterWatch, client: Mapping[str, Any]) -> Session:
        now = asyncio.get_running_loop().time()
        # The cookies of browsers that were closed don't come back.
        for each in [each for each in self._all.values() if self._is_over(each, now)]:
            self.end(each)
        while len(self._all) >= MOST_SESSIONS:
            self.end(next(iter(self._all.values())))
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32), user, watch, client, now, now)
        self._all[session.token] = session
        return session

    def end(self, session: Session) -> None:
        """End a session. A change that is being made is finished first."""
        self._all.pop(session.token, None)
        session.ended = True
        session.pending.clear()
        if session.watch is self._shared:
            return
        task = asyncio.get_running_loop().create_task(self._close(session))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, session: Session) -> None:
        deadline = asyncio.get_running_loop().time() + self._timeout
        while session.busy and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.05)
        # The brokers may be gone; the connections are closed all the same.
        with suppress(ClientError):
            await session.watch.close()
        with suppress(ClientError):
            await session.admin.close()


async def _has_known_name(addresses: Sequence[tuple[str, int]]) -> bool:
    """Whether one of these names of hosts can be resolved."""
    for host, port in addresses:
        with suppress(OSError):
            await asyncio.get_running_loop().getaddrinfo(host, port)
            return True
    return False
