"""Quotas of clients: which one applies to a user and a client id, and how long a client that exceeds it must wait.

A quota is set for a user, for a client id, or for both, or for the default of either. The most specific one applies
(KIP-13, KIP-55), and clients with the same user or client id share it where it names only that. Kafka's
``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.

Names are sanitized, as in the nodes of the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from math import floor, inf
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from ottla_broker.store.keys import DEFAULT_ENTITY

_MOST_METERS: Final = 10_000
"""How many clients' rates are kept; those that were silent for longest go first."""
_MOST_RESOLVED: Final = 4096
_LONGEST_NAME: Final = 1024
"""Characters of a user's name or a client id."""
_MOST_MS: Final = 2**31 - 1


class QuotaKind(StrEnum):
    """A quantity that is limited, by the names of the settings."""

    PRODUCE = "producer_byte_rate"
    FETCH = "consumer_byte_rate"
    REQUEST = "request_percentage"
    MUTATION = "controller_mutation_rate"


class QuotaEntity(NamedTuple):
    """The entity of a quota: sanitized names, ``<default>``, or None for a part that it doesn't have."""

    user: str | None
    client: str | None


class Limit(NamedTuple):
    """A quota in force: the rate, and the clients that share it."""

    rate: float
    shared_by: QuotaEntity


@lru_cache(4096)
def sanitize(name: str) -> str:
    """A name as part of a path (Kafka's ``Sanitizer``)."""
    return quote(name, safe="")


def desanitize(name: str) -> str:
    return unquote(name)


class Rate:
    """A rate over windows: Kafka's ``Rate`` of a ``WindowedSum``. Times are in milliseconds."""

    __slots__ = ("_current", "_samples", "_starts", "_sums", "_touched", "_window_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        # Of each window: when it began, when something was last added, and the sum.
        self._starts: list[int] = []
        self._touched: list[int] = []
        self._sums: list[float] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self._starts:
            self._begin(0, now_ms)
        elif now_ms - self._starts[self._current] >= self._window_ms:
            self._current = (self._current + 1) % (self._samples + 1)
            self._begin(self._current, now_ms)
        self._sums[self._current] += value
        self._touched[self._current] = now_ms

    def _begin(self, index: int, now_ms: int) -> None:
        if index >= len(self._starts):
            self._starts.append(now_ms)
            self._touched.append(now_ms)
            self._sums.append(0.0)
        else:
            self._starts[index] = self._touched[index] = now_ms
            self._sums[index] = 0.0

    def measure(self, now_ms: int) -> tuple[float, int]:
        """The rate per second, and the milliseconds over which it is measured."""
        if not self._starts:
            self._begin(0, now_ms)
        expired = self._samples * self._window_ms
        for index, touched in enumerate(self._touched):
            if now_ms - touched >= expired:
                self._begin(index, now_ms)
        elapsed = now_ms - min(self._starts)
        missing = self._samples - 1 - elapsed // self._window_ms
        window = max(elapsed + max(0, missing) * self._window_ms, 1)
        return sum(self._sums) * 1000 / window, window

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long to wait until the rate is down to ``limit``; 0 if it isn't above."""
        rate, window = self.measure(now_ms)
        if rate <= limit:
            return 0
        if limit <= 0:
            return self._samples * self._window_ms
        return min(floor((rate - limit) / limit * window + 0.5), _MOST_MS)


class TokenBucket:
    """Tokens that refill at a rate; a burst may use what has gathered (KIP-599)."""

    __slots__ = ("_span_seconds", "_tokens", "_updated_ms")

    def __init__(self, samples: int, window_ms: int) -> None:
        self._span_seconds = samples * window_ms / 1000
        self._tokens = inf
        self._updated_ms = 0

    def tokens(self, rate: float, now_ms: int) -> float:
        burst = self._span_seconds * rate
        self._tokens = min(burst, self._tokens + rate * (now_ms - self._updated_ms) / 1000)
        self._updated_ms = now_ms
        return self._tokens

    def take(self, count: float, rate: float, now_ms: int) -> None:
        self._tokens = self.tokens(rate, now_ms) - count

    def throttle_ms(self, rate: float, now_ms: int) -> int:
        """Return how long to wait until there are no tokens owed; 0 if there are none."""
        owed = -self.tokens(rate, now_ms)
        if owed <= 0:
            return 0
        return _MOST_MS if rate <= 0 else min(floor(owed / rate * 1000 + 0.5), _MOST_MS)


class Windows(NamedTuple):
    """Over how many windows a rate is measured, and how long they are."""

    samples: int = 11
    window_ms: int = 1000


DEFAULT_WINDOWS: Final = Windows()


class ClientQuotas:
    """All quotas in force. Owned by the loop thread; times are passed in.

    Attributes:
        enabled: whether any quota is set; without one nothing is measured.
    """

    def __init__(
        self, windows: Windows = DEFAULT_WINDOWS, mutation_windows: Windows = DEFAULT_WINDOWS
    ) -> None:
        self.enabled = False
        self._windows = windows
        self._mutation_windows = mutation_windows
        self._limits: dict[QuotaKind, dict[QuotaEntity, float]] = {kind: {} for kind in QuotaKind}
        self._resolved: dict[tuple[QuotaKind, str, str], Limit | None] = {}
        self._rates: OrderedDict[tuple[QuotaKind, QuotaEntity], Rate] = OrderedDict()
        self._buckets: OrderedDict[QuotaEntity, TokenBucket] = OrderedDict()

    def set(self, entity: QuotaEntity, values: Mapping[str, float]) -> None:
        for kind, limits in self._limits.items():
            if kind.value in values:
                limits[entity] = values[kind.value]
            else:
                limits.pop(entity, None)
        self.enabled = any(self._limits.values())
        self._resolved.clear()

    def limit(self, kind: QuotaKind, user: str, client_id: str) -> Limit | None:
        """The quota that applies to a client; None if none does."""
        # Longer names share what their beginning has; a stranger's names of 32 KiB would take a gigabyte.
        user, client_id = user[:_LONGEST_NAME], client_id[:_LONGEST_NAME]
        key = (kind, user, client_id)
        try:
            return self._resolved[key]
        except KeyError:
            if len(self._resolved) >= _MOST_RESOLVED:
                self._resolved.clear()
            found = self._resolved[key] = self._resolve(kind, sanitize(user), sanitize(client_id))
            return found

    def _resolve(self, kind: QuotaKind, user: str, client: str) -> Limit | None:
        limits = self._limits[kind]
        if not limits:
            return None
        both, users, clients = QuotaEntity(user, client), QuotaEntity(user, None), QuotaEntity(None, client)
        for entity, shared_by in (
            (both, both),
            (QuotaEntity(user, DEFAULT_ENTITY), both),
            (users, users),
            (QuotaEntity(DEFAULT_ENTITY, client), both),
            (QuotaEntity(DEFAULT_ENTITY, DEFAULT_ENTITY), both),
            (QuotaEntity(DEFAULT_ENTITY, None), users),
            (clients, clients),
            (QuotaEntity(None, DEFAULT_ENTITY), clients),
        ):
            rate = limits.get(entity)
            if rate is not None:
                return Limit(rate, shared_by)
        return None

    def record(self, kind: QuotaKind, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count ``value``; returns how many milliseconds the client must wait, 0 if it is within its quota."""
        limit = self.limit(kind, user, client_id)
        if limit is None:
            return 0
        key = (kind, limit.shared_by)
        rate = self._rates.get(key)
        if rate is None:
            if len(self._rates) >= _MOST_METERS:
                self._rates.popitem(last=False)
            rate = self._rates[key] = Rate(*self._windows)
        else:
            self._rates.move_to_end(key)
        rate.record(value, now_ms)
        throttle = rate.throttle_ms(limit.rate, now_ms)
        # As in Kafka, the share of time is limited more gently: a window at a time.
        return min(throttle, self._windows.window_ms) if kind is QuotaKind.REQUEST else throttle

    def most_bytes(self, user: str, client_id: str) -> int | None:
        """Return the bytes of a fetch that isn't throttled for longer than the windows last; None: no limit."""
        limit = self.limit(QuotaKind.FETCH, user, client_id)
        if limit is None:
            return None
        samples, window_ms = self._windows
        return max(1, int(limit.rate * max(1, samples - 1) * window_ms / 1000))

    def mutations(self, user: str, client_id: str) -> MutationQuota | None:
        """The quota for one request that changes topics; None if none applies."""
        limit = self.limit(QuotaKind.MUTATION, user, client_id)
        if limit is None:
            return None
        bucket = self._buckets.get(limit.shared_by)
        if bucket is None:
            if len(self._buckets) >= _MOST_METERS:
                self._buckets.popitem(last=False)
            bucket = self._buckets[limit.shared_by] = TokenBucket(*self._mutation_windows)
        else:
            self._buckets.move_to_end(limit.shared_by)
        return MutationQuota(bucket, limit.rate)


class MutationQuota:
    """The allowance of one request to create and delete.

    Attributes:
        throttle_ms: how long its client must wait after the response.
    """

    __slots__ = ("_bucket", "_rate", "throttle_ms")

    def __init__(self, bucket: TokenBucket, rate: float) -> None:
        self._bucket = bucket
        self._rate = rate
        self.throttle_ms = 0

    def accept(self, partitions: int, now_ms: int, *, strict: bool) -> bool:
        """Count partitions that are to be created or deleted.

        ``strict``: what comes while the quota is exhausted is refused; otherwise it is done, and the client waits.
        """
        if strict:
            self.throttle_ms = self._bucket.throttle_ms(self._rate, now_ms)
            if self.throttle_ms:
                return False
            self._bucket.take(partitions, self._rate, now_ms)
            return True
        self._bucket.take(partitions, self._rate, now_ms)
        self.throttle_ms = self._bucket.throttle_ms(self._rate, now_ms)
        return True
