"""The metrics that clients push (KIP-714): who is to push what, and the last numbers of each client.

An administrator subscribes to metrics of clients that match (``client-metrics`` resources). A client asks what is
subscribed for it (GetTelemetrySubscriptions), and pushes it each interval (PushTelemetry). Kafka hands pushes to a
plug-in and forgets them; Ottla keeps each client's last numbers in memory for ``/metrics``.

Everything is bounded: clients, series of a client and of all together, names, labels, bytes before and after
decompression. Kafka: ``ClientMetricsManager``.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from ottla_broker.clock import let_others_run
from ottla_broker.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    DEFAULT_INTERVAL_MS,
    INTERVAL_MS,
    MATCH,
    METRICS,
    read_match,
)
from ottla_broker.coordinator.group.modern.patterns import Matches, compile_pattern
from ottla_broker.events import get_logger
from ottla_broker.store.keys import encode_uuid, new_uuid
from ottla_protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla_protocol.otlp import Point, read_metrics
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.compression import DecompressedTooLargeError, decompress
from ottla_protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.background import Background
    from ottla_broker.clock import Clock
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.network.service import ClientConnection

_log = get_logger()

CODECS: Final = (4, 3, 1, 2)
"""zstd, lz4, gzip, snappy: as Kafka prefers them. Pushes without compression are accepted too."""
_NONE: Final = 0
_ALL: Final = "*"
MOST_CLIENTS: Final = 16_384
"""Kafka's ``CACHE_MAX_SIZE``."""
MOST_SERIES_A_CLIENT: Final = 1_000
_MOST_WAITING: Final = 64
"""Pushes that are decoded or wait for it."""
_LEAST_KEPT_MS: Final = 60_000
_LOOK_MS: Final = 10_000
_NEVER: Final = -(1 << 60)
_INTERVALS_KEPT: Final = 3
_LONGEST: Final = 200
"""Characters of a name, a label's value, and of what is matched."""
_MOST_LABELS: Final = 12
TAKEN: Final = frozenset({"client_id", "client_instance_id", "software"})
"""Labels that /metrics gives each series of a client."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED: Final = frozenset({ZERO_UUID, bytes(15) + b"\x01"})
"""``Uuid.RESERVED``."""

Labels = tuple[tuple[str, str], ...]


class Series(NamedTuple):
    """A series as /metrics names it: ``org_apache_kafka_producer_record_send_total`` and its own labels."""

    name: str
    labels: Labels


class Subscription(NamedTuple):
    """A ``client-metrics`` resource."""

    metrics: frozenset[str]
    interval_ms: int
    match: Mapping[str, Matches]


class About(NamedTuple):
    """The facts known of a client."""

    client_id: str
    software: tuple[str, str]
    address: str
    port: str


@dataclass(slots=True)
class Instance:
    """One client.

    Attributes:
        version: of the subscriptions that its own were made of.
        got_ms, pushed_ms: when it last asked and pushed, and was not throttled.
        values: its last numbers; ``counters``: those that only go up.
    """

    about: About
    subscription_id: int
    version: int
    metrics: tuple[str, ...]
    interval_ms: int
    expires_ms: int = 0
    got_ms: int = _NEVER
    pushed_ms: int = _NEVER
    terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE
    values: dict[Series, float] = field(default_factory=dict)
    counters: set[str] = field(default_factory=set)


class ClientTelemetry:
    """Owned by the loop thread; pushes are decoded on other threads.

    Attributes:
        most_series: of all clients together.
        pushes, throttled, unknown_subscriptions, refused: requests, counted.
        dropped_series: series that were left out because of a bound.
    """

    def __init__(
        self,
        metadata: MetadataCache,
        background: Background,
        clock: Clock,
        random: Random,
        max_bytes: int,
        most_series: int,
    ) -> None:
        self.most_series = most_series
        self.pushes = self.throttled = self.unknown_subscriptions = self.refused = self.dropped_series = 0
        self.max_bytes = max_bytes
        self._metadata = metadata
        self._background = background
        self._clock = clock
        self._random = random
        self._series = 0
        self._decoding = 0
        self._turn = asyncio.Lock()
        self._version = -1
        self._next_look_ms = _NEVER
        self._software: dict[str, tuple[str, str]] = {}
        self._subscriptions: dict[str, Subscription] = {}
        # By id, those that were heard of least recently first.
        self._instances: OrderedDict[bytes, Instance] = OrderedDict()

    def introduce(self, connection: ClientConnection, name: str, version: str) -> None:
        """Remember what software a connection's client is (KIP-511)."""
        self._software[connection.id] = name[:_LONGEST], version[:_LONGEST]
        connection.on_close[self] = partial(self._leave, connection.id)

    def _leave(self, connection_id: str) -> None:
        self._software.pop(connection_id, None)

    # GetTelemetrySubscriptions

    def subscribe(self, instance_id: bytes, connection: ClientConnection) -> tuple[bytes, Instance]:
        """The id and the subscriptions of a client. Raises KafkaError: THROTTLING_QUOTA_EXCEEDED."""
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        now_ms = self._now_ms()
        instance = self._instance(instance_id, connection, now_ms)
        waited = now_ms - max(instance.got_ms, instance.pushed_ms)
        if waited >= instance.interval_ms:
            instance.got_ms = now_ms
        elif instance.last_error not in (
            ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ):
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return instance_id, instance

    def _new_id(self) -> bytes:
        while (found := new_uuid(self._random)) in self._instances or found in _RESERVED:
            pass
        return found

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def _instance(self, instance_id: bytes, connection: ClientConnection, now_ms: int) -> Instance:
        self._refresh()
        self._expire(now_ms)
        found = self._instances.get(instance_id)
        if found is None or found.version < self._version:
            about = _about(connection, self._software.get(connection.id, ("", "")))
            made = self._made(instance_id, about)
            if found is not None:
                made.values, made.counters = found.values, found.counters
            elif len(self._instances) >= MOST_CLIENTS:
                self._drop(next(iter(self._instances)))
            found = self._instances[instance_id] = made
        self._instances.move_to_end(instance_id)
        found.expires_ms = now_ms + max(_LEAST_KEPT_MS, _INTERVALS_KEPT * found.interval_ms)
        return found

    def _made(self, instance_id: bytes, about: About) -> Instance:
        """A client with what all subscriptions that match it ask for."""
        facts = {
            "client_id": about.client_id,
            "client_instance_id": encode_uuid(instance_id),
            "client_software_name": about.software[0],
            "client_software_version": about.software[1],
            "client_source_address": about.address,
            "client_source_port": about.port,
        }
        metrics: set[str] = set()
        interval_ms = DEFAULT_INTERVAL_MS
        for each in self._subscriptions.values():
            if all(_matches(facts[name], matches) for name, matches in each.match.items()):
                metrics |= each.metrics
                interval_ms = min(interval_ms, each.interval_ms)
        wanted = (_ALL,) if _ALL in metrics else tuple(sorted(metrics))
        number = crc32(f"{wanted}{interval_ms}".encode()) ^ crc32(instance_id)
        return Instance(
            about, number - (1 << 32) if number >= 1 << 31 else number, self._version, wanted, interval_ms
        )

    def _refresh(self) -> None:
        """Read the subscriptions again if one has changed."""
        if self._version == self._metadata.client_metrics_version:
            return
        self._version = self._metadata.client_metrics_version
        self._subscriptions = {}
        for name, settings in self._metadata.client_metrics.items():
            try:
                self._subscriptions[name] = read_subscription(settings)
            except (ValueError, KafkaError) as error:
                _log.warning("client metrics subscription ignored", name=name, reason=str(error))

    def _expire(self, now_ms: int) -> None:
        """Forget clients that haven't been heard of."""
        if now_ms < self._next_look_ms:
            return
        self._next_look_ms = now_ms + _LOOK_MS
        for instance_id in [each for each, known in self._instances.items() if known.expires_ms <= now_ms]:
            self._drop(instance_id)

    def _drop(self, instance_id: bytes) -> None:
        self._series -= len(self._instances.pop(instance_id).values)

    # PushTelemetry

    async def push(
        self,
        instance_id: bytes,
        subscription_id: int,
        terminating: bool,
        codec: int,
        metrics: bytes,
        connection: ClientConnection,
    ) -> None:
        """Take a client's metrics.

        Raises KafkaError: INVALID_REQUEST, THROTTLING_QUOTA_EXCEEDED, UNKNOWN_SUBSCRIPTION_ID,
        UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, INVALID_RECORD.
        """
        if instance_id in _RESERVED:
            self.refused += 1
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        now_ms = self._now_ms()
        instance = self._instance(instance_id, connection, now_ms)
        try:
            self._check(instance, subscription_id, terminating, codec, len(metrics), now_ms)
        except KafkaError as error:
            instance.last_error = error.code
            raise
        finally:
            instance.terminating = terminating
        self.pushes += 1
        if metrics:
            try:
                pushed = await self._decoded(codec, metrics)
            except DecompressedTooLargeError as error:
                raise self._refusal(instance, ErrorCode.TELEMETRY_TOO_LARGE, error) from error
            except (CorruptRecordError, ProtocolError) as error:
                raise self._refusal(instance, ErrorCode.INVALID_RECORD, error) from error
            # It may have been forgotten meanwhile.
            if self._instances.get(instance_id) is instance:
                self._keep(instance, pushed)
        instance.last_error = ErrorCode.NONE
        if terminating and self._instances.get(instance_id) is instance:
            # Its last numbers stay until it expires.
            instance.expires_ms = now_ms + _LEAST_KEPT_MS

    async def _decoded(self, codec: int, metrics: bytes) -> Decoded:
        """Decode a push, one at a time: Python's threads keep each other and the event loop waiting.

        Raises as :func:`decode` does, and KafkaError.
        """
        if self._decoding >= _MOST_WAITING:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._decoding += 1
        try:
            async with self._turn:
                return await self._background.run(decode, codec, metrics, self.max_bytes)
        finally:
            self._decoding -= 1

    def _check(
        self, instance: Instance, subscription_id: int, terminating: bool, codec: int, size: int, now_ms: int
    ) -> None:
        if instance.terminating:
            self.refused += 1
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        # A client waits between half and one and a half intervals after it has asked.
        if instance.got_ms > instance.pushed_ms or now_ms - instance.pushed_ms >= instance.interval_ms:
            instance.pushed_ms = now_ms
        elif not terminating:
            self.throttled += 1
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
        if codec != _NONE and codec not in CODECS:
            self.refused += 1
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
        if size > self.max_bytes:
            self.refused += 1
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)

    def _refusal(self, instance: Instance, code: ErrorCode, error: Exception) -> KafkaError:
        self.refused += 1
        instance.last_error = code
        _log.debug("client metrics refused", client=instance.about.client_id, reason=str(error))
        return KafkaError(code)

    def _keep(self, instance: Instance, pushed: Decoded) -> None:
        """Keep the numbers; a client's series that no longer come stay as they were."""
        self.dropped_series += pushed.left_out
        own = instance.values
        for series, point in pushed.points:
            known = own.get(series)
            if known is None:
                if len(own) >= MOST_SERIES_A_CLIENT or self._series >= self.most_series:
                    self.dropped_series += 1
                    continue
                self._series += 1
            own[series] = point.value + (known or 0.0) if point.is_delta else point.value
            if point.is_counter:
                instance.counters.add(series.name)

    # For /metrics

    @property
    def series(self) -> int:
        """The number of series kept."""
        return self._series

    def instances(self) -> Iterator[tuple[str, Instance]]:
        """The clients that were heard of, by id in base64."""
        self._expire(self._now_ms())
        return iter([(encode_uuid(each), instance) for each, instance in self._instances.items()])


def read_subscription(settings: Mapping[str, str]) -> Subscription:
    """A subscription from its settings. Raises ValueError, or KafkaError for a regular expression."""
    values = {
        name: key.parse(settings[name]) if name in settings else key.default
        for name, key in CLIENT_METRICS_KEYS.items()
    }
    match = read_match(values[MATCH])
    return Subscription(
        frozenset(values[METRICS]),
        values[INTERVAL_MS],
        {name: compile_pattern(expression) for name, expression in match.items()},
    )


def _matches(fact: str, matches: Matches) -> bool:
    return len(fact) <= _LONGEST and matches(fact)


def _about(connection: ClientConnection, software: tuple[str, str]) -> About:
    # The id ends with the client's port, the processor and a number.
    port = connection.id.rsplit("-", 2)[0].rpartition(":")[2]
    return About(connection.client_id or "", software, connection.client_host, port)


class Decoded(NamedTuple):
    """A push's numbers, and how many points beyond the bound were left out."""

    points: list[tuple[Series, Point]]
    left_out: int


def decode(codec: int, data: bytes, max_bytes: int) -> Decoded:
    """Decompress and decode a push. May run on any thread.

    Raises DecompressedTooLargeError, CorruptRecordError, ProtocolError.
    """
    pushed = read_metrics(decompress(codec, data, max_bytes), MOST_SERIES_A_CLIENT, let_others_run)
    return Decoded([(series_of(point), point) for point in pushed.points], pushed.left_out)


def series_of(point: Point) -> Series:
    """Name and labels in Prometheus's alphabet; counters end with ``_total``."""
    name = _NOT_IN_NAMES.sub("_", point.name[:_LONGEST])
    if name[:1].isdecimal() or not name:
        name = f"_{name}"
    if point.is_counter and not name.endswith("_total"):
        name += "_total"
    labels = []
    for key, value in point.attributes[:_MOST_LABELS]:
        label = _NOT_IN_NAMES.sub("_", key[:_LONGEST])
        if label[:1].isdecimal() or label.startswith("__"):
            label = f"a{label}"
        if label not in TAKEN:
            labels.append((label, value[:_LONGEST]))
    # Two keys may have become one.
    return Series(name, tuple(sorted(dict(labels).items())))
