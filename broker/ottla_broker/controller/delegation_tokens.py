"""Delegation tokens: kept in the store without their secrets, and in memory for logins.

A token's secret is the HMAC of its id with ``delegation.token.secret.key``; it is the password of a login by SCRAM. Any
broker changes tokens: it writes the node, then a notification, which makes the others read the node again. Kafka:
``DelegationTokenManagerZk``, ``DelegationTokenCache``.
"""

from __future__ import annotations

import asyncio
import hmac
from base64 import b64encode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.controller.bootstrap import ensure_paths
from ottla_broker.events import get_logger
from ottla_broker.store.api import NoNodeError, Store, StoreError
from ottla_broker.store.keys import BadNodeError
from ottla_broker.store.notifications import NotificationListener, Notifications
from ottla_broker.store.token_nodes import PATHS, TokenChangeNode, TokenInfo, TokenNode
from ottla_broker.tasks import unhurried
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.sasl.mechanism import MIN_ITERATIONS, Deferred
from ottla_protocol.sasl.scram import ScramCredential, TokenCredential, credential, salt_password

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.clock import Clock

_log = get_logger()

_DIGEST: Final = "sha512"
_SLICE: Final = 256
MOST_RENEWERS: Final = 32
"""The renewers of a token."""
_MOST_OF_RENEWERS: Final = 8192
"""Bytes of the names of a token's renewers."""
_BYTES: Final = 640
"""What a token may take on average, of those of an owner and of all: it and its names, as in an answer."""
_TOKEN: Final = 150
"""What a token has besides its names, in bytes, and ``_RENEWER`` a renewer."""
_RENEWER: Final = 8
MOST_HASHED: Final = 8192
"""The secrets of which the hashes are kept."""
_SECONDS: Final = 60.0
"""The least time between two lines about refused tokens."""


class Lifetimes(NamedTuple):
    """In milliseconds: the longest life, the time until a token must be renewed, and between removals."""

    longest: int
    renewal: int
    check: int


class _Taken:
    """How many tokens there are, and their bytes: of an owner, or all."""

    __slots__ = ("bytes", "count", "most")

    def __init__(self, most: int) -> None:
        self.most = most
        self.count = self.bytes = 0

    def has_room(self, size: int) -> bool:
        """For a token of ``size`` bytes more."""
        return self.count < self.most and self.bytes + size <= self.most * _BYTES

    def add(self, size: int, count: int) -> None:
        self.bytes += size * count
        self.count += count


class DelegationTokens:
    """Owned by the loop thread. :meth:`load` first, then :meth:`start`."""

    def __init__(
        self,
        store: Store,
        secret: str,
        lifetimes: Lifetimes,
        clock: Clock,
        random: Random,
        *,
        notifies: bool,
        removes: Callable[[], bool],
        most: int = 50_000,
        most_of_owner: int = 5_000,
    ) -> None:
        """``notifies``: there are other brokers. ``removes``: whether this one removes expired tokens now.

        ``most``: the tokens that there may be (``max.delegation.tokens``); ``most_of_owner``: those that one user may
        have (``max.delegation.tokens.per.owner``). Both limit their bytes, too.
        """
        self._store = store
        self._secret = secret.encode()
        self._lifetimes = lifetimes
        self._clock = clock
        self._random = random
        self._notifies = notifies
        self._removes = removes
        self._taken = _Taken(most)
        self._most_of_owner = most_of_owner
        self._by_owner: dict[str, _Taken] = {}
        self._refused_at = -inf
        self._tokens: dict[str, TokenInfo] = {}
        self._ids_by_hmac: dict[bytes, str] = {}
        # By mechanism and secret, the last ones, because hashing takes milliseconds; also of ids that no token has.
        self._credentials: OrderedDict[tuple[str, bytes], ScramCredential] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()
        self._notifications = Notifications(
            store, TokenChangeNode.PARENT, TokenChangeNode.NAME, self._read_change
        )
        self._listener = NotificationListener(
            store,
            clock,
            [self._notifications],
            self.load,
            self._lock,
            "changes of delegation tokens can't be read, trying again",
        )

    async def load(self) -> None:
        """Read all tokens. Raises StoreError."""
        await ensure_paths(self._store, PATHS)
        await self._notifications.skip()
        found = await self._store.children(TokenNode.PARENT)
        for gone in self._tokens.keys() - set(found):
            self._forget(gone)
        async for token_id in unhurried(found, _SLICE):
            await self._reload(token_id)

    def start(self) -> None:
        """Remove expired tokens from time to time, and follow the changes that other brokers make."""
        self._task = asyncio.get_running_loop().create_task(self._remove_expired())
        if self._notifies:
            self._listener.start()

    async def close(self) -> None:
        await self._listener.close()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def hmac_of(self, token_id: str) -> bytes:
        """A token's secret."""
        return hmac.digest(self._secret, token_id.encode(), _DIGEST)

    def find(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return what a login by a token is checked against; None for an unknown or expired token.

        Raises Deferred at a login by an id that wasn't there lately, also by an unknown one: both take as long.
        """
        secret = self.hmac_of(token_id)
        key = mechanism, secret
        made = self._credentials.get(key)
        if made is None:
            salt = hmac.digest(self._secret, f"{mechanism} {token_id}".encode(), _DIGEST)[:26]
            password = b64encode(secret).decode()
            raise Deferred(partial(_hashed, mechanism, password, salt), partial(self._learn, key, token_id))
        self._credentials.move_to_end(key)
        token = self._tokens.get(token_id)
        if token is None or token.is_expired(self._clock.now_ms()):
            return None
        return TokenCredential(made, token.owner.partition(":")[2], token.expires_ms)

    def _learn(self, key: tuple[str, bytes], token_id: str, made: ScramCredential) -> TokenCredential | None:
        """Keep what was hashed for further logins."""
        self._credentials[key] = made
        if len(self._credentials) > MOST_HASHED:
            self._credentials.popitem(last=False)
        return self.find(key[0], token_id)

    def tokens(self) -> Iterable[TokenInfo]:
        """All tokens, also expired ones that aren't removed yet."""
        return self._tokens.values()

    async def create(
        self, owner: str, requester: str, renewers: Sequence[str], max_lifetime_ms: int
    ) -> TokenInfo:
        """A new token, once it is durable.

        Raises StoreError; KafkaError: POLICY_VIOLATION if there are too many, or too many renewers.
        """
        if len(renewers) > MOST_RENEWERS or sum(map(_length, renewers)) > _MOST_OF_RENEWERS:
            raise self._refusal(
                f"a token has at most {MOST_RENEWERS} renewers, with names of {_MOST_OF_RENEWERS} bytes"
            )
        token_id = urlsafe_b64encode(self._random.getrandbits(128).to_bytes(16, "big")).decode().rstrip("=")
        now, limits = self._clock.now_ms(), self._lifetimes
        end = now + (limits.longest if max_lifetime_ms <= 0 else min(max_lifetime_ms, limits.longest))
        expires = min(end, now + limits.renewal)
        token = TokenInfo(token_id, owner, requester, tuple(renewers), now, expires, end)
        async with self._lock:
            self._check_room(token)
            await self._write(token)
        _log.info("delegation token created", token=token_id, owner=owner, requester=requester)
        return token

    def _check_room(self, token: TokenInfo) -> None:
        """Raises KafkaError: POLICY_VIOLATION."""
        size = size_of(token)
        if not self._taken.has_room(size):
            raise self._refusal("there are as many, or as large ones, as max.delegation.tokens allows")
        own = self._by_owner.get(token.owner) or _Taken(self._most_of_owner)
        if not own.has_room(size):
            raise self._refusal(
                f"{token.owner} has as many, or as large ones, as max.delegation.tokens.per.owner allows"
            )

    def _refusal(self, reason: str) -> KafkaError:
        """The error of a token that isn't made; the answer has no text, so the log has it."""
        now = self._clock.monotonic()
        if now - self._refused_at >= _SECONDS:
            self._refused_at = now
            _log.warning("delegation token refused", reason=reason)
        return KafkaError(ErrorCode.POLICY_VIOLATION, reason)

    async def renew(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Give a token more time; returns its end. Raises KafkaError, StoreError."""
        async with self._lock:
            token = self._allowed(principal, secret)
            now = self._clock.now_ms()
            self._check_end(token, now)
            expires = min(token.max_ms, now + (self._lifetimes.renewal if period_ms < 0 else period_ms))
            await self._write(token._replace(expires_ms=expires))
        _log.info("delegation token renewed", token=token.token_id, owner=token.owner)
        return expires

    async def expire(self, principal: str, secret: bytes, period_ms: int) -> int:
        """Give a token less time, none if it is negative; returns its end. Raises KafkaError, StoreError."""
        async with self._lock:
            token = self._allowed(principal, secret)
            now = self._clock.now_ms()
            if period_ms < 0:
                await self._remove(token)
                return now
            self._check_end(token, now)
            expires = min(token.max_ms, now + period_ms)
            await self._write(token._replace(expires_ms=expires))
        _log.info("delegation token shortened", token=token.token_id, owner=token.owner)
        return expires

    def _allowed(self, principal: str, secret: bytes) -> TokenInfo:
        token = self._tokens.get(self._ids_by_hmac.get(secret, ""))
        if token is None:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        if not token.belongs_to(principal):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        return token

    def _check_end(self, token: TokenInfo, now_ms: int) -> None:
        if token.is_expired(now_ms):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_EXPIRED)

    async def _write(self, token: TokenInfo) -> None:
        path, data = TokenNode.path(token.token_id), TokenNode.encode(token)
        try:
            await self._store.set(path, data)
        except NoNodeError:
            await self._store.create(path, data)
        self._put(token)
        await self._notify(token.token_id)

    async def _remove(self, token: TokenInfo) -> None:
        with suppress(NoNodeError):
            await self._store.delete(TokenNode.path(token.token_id))
        self._forget(token.token_id)
        _log.info("delegation token removed", token=token.token_id, owner=token.owner)
        await self._notify(token.token_id)

    async def _notify(self, token_id: str) -> None:
        if self._notifies:
            await self._store.create(TokenChangeNode.PREFIX, token_id.encode(), sequence=True)

    def _put(self, token: TokenInfo) -> None:
        self._forget(token.token_id)
        self._tokens[token.token_id] = token
        self._ids_by_hmac[self.hmac_of(token.token_id)] = token.token_id
        self._count(token, 1)

    def _forget(self, token_id: str) -> None:
        token = self._tokens.pop(token_id, None)
        if token is not None:
            self._ids_by_hmac.pop(self.hmac_of(token_id), None)
            self._count(token, -1)

    def _count(self, token: TokenInfo, count: int) -> None:
        size = size_of(token)
        self._taken.add(size, count)
        own = self._by_owner.setdefault(token.owner, _Taken(self._most_of_owner))
        own.add(size, count)
        if not own.count:
            del self._by_owner[token.owner]

    async def _reload(self, token_id: str) -> None:
        path = TokenNode.path(token_id)
        try:
            data, _ = await self._store.get(path)
            self._put(TokenNode.decode(path, data))
        except NoNodeError:
            self._forget(token_id)
        except BadNodeError as error:
            _log.error("a delegation token can't be read", reason=str(error))
            self._forget(token_id)

    async def _remove_expired(self) -> None:
        while True:
            await self._clock.sleep(self._lifetimes.check / 1000)
            if not self._removes():
                continue
            now = self._clock.now_ms()
            try:
                async with self._lock:
                    for token in [each for each in self._tokens.values() if each.is_expired(now)]:
                        await self._remove(token)
            except StoreError as error:
                _log.warning("expired delegation tokens can't be removed, trying again", reason=str(error))

    async def _read_change(self, _path: str, data: bytes) -> None:
        token_id = data.decode("utf-8", "replace")
        if token_id and "/" not in token_id and token_id.isprintable():
            await self._reload(token_id)


def _hashed(mechanism: str, password: str, salt: bytes) -> ScramCredential:
    """Touches nothing else: it runs on a thread."""
    return credential(
        mechanism, salt_password(mechanism, password, salt, MIN_ITERATIONS), salt, MIN_ITERATIONS
    )


def _length(text: str) -> int:
    """In bytes."""
    return len(text.encode())


def size_of(token: TokenInfo) -> int:
    """About how many bytes a token takes in an answer."""
    renewers = sum(_RENEWER + _length(each) for each in token.renewers)
    return _TOKEN + _length(token.owner) + _length(token.requester) + renewers
