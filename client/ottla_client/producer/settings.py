"""The producer's options and their checks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any, TypeAlias

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.compression import CODEC_NAMES, check_level

from ..errors import ConfigurationError
from ..settings import ConnectionOptions, ConnectionSettings
from .partitioner import Partitioner
from .sequences import MAX_OUTSTANDING

Serializer: TypeAlias = Callable[[Any], bytes | None]
"""Makes bytes from a record's key or value; None is not passed to it."""

REQUEST_OVERHEAD = 512
"""Bytes of a request without its records, with a margin for long topic names."""

_ACKS = {0: 0, 1: 1, -1: -1, "0": 0, "1": 1, "-1": -1, "all": -1}


class ProducerOptions(ConnectionOptions, total=False):
    """The keyword arguments of Producer."""

    acks: int | str
    enable_idempotence: bool | None
    linger_ms: float
    batch_size: int
    max_request_size: int
    compression_type: str | None
    compression_level: int | None
    buffer_memory: int
    max_block_ms: float
    delivery_timeout_ms: float
    max_in_flight_requests_per_connection: int
    partitioner: Partitioner | None
    key_serializer: Serializer | None
    value_serializer: Serializer | None
    allow_auto_create_topics: bool
    transactional_id: str | None
    transaction_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ProducerSettings(ConnectionSettings):
    """The options' values; ``Producer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-producer"
    acks: int | str = "all"
    enable_idempotence: bool | None = None
    linger_ms: float = 5
    batch_size: int = 131_072
    max_request_size: int = 1_048_576
    compression_type: str | None = None
    compression_level: int | None = None
    buffer_memory: int = 33_554_432
    max_block_ms: float = 60_000
    delivery_timeout_ms: float = 120_000
    max_in_flight_requests_per_connection: int = 5
    partitioner: Partitioner | None = None
    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    allow_auto_create_topics: bool = True
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        if isinstance(self.acks, bool) or not isinstance(self.acks, int | str) or self.acks not in _ACKS:
            raise ConfigurationError(f'acks is {self.acks!r}; it must be 0, 1 or "all"')
        for name in ("linger_ms", "max_block_ms"):
            _number(name, getattr(self, name), at_least=0)
        for name in ("request_timeout_ms", "delivery_timeout_ms"):
            _number(name, getattr(self, name), at_least=1)
        for name, least in (
            ("transaction_timeout_ms", 1),
            ("batch_size", 0),
            ("max_request_size", 1),
            ("buffer_memory", 1),
            ("max_in_flight_requests_per_connection", 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise ConfigurationError(f"{name} is {value!r}; it must be a whole number")
            _number(name, value, at_least=least)
        needed = self.linger_ms + self.request_timeout_ms
        if self.delivery_timeout_ms < needed:
            raise ConfigurationError(
                f"delivery_timeout_ms is {self.delivery_timeout_ms}; it must be at least linger_ms + "
                f"request_timeout_ms, which is {needed}"
            )
        self._check_idempotence()
        self._check_transactions()
        self._check_compression()
        for name in ("partitioner", "key_serializer", "value_serializer"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise ConfigurationError(f"{name} is {value!r}; it must be callable")
        ConnectionSettings.__post_init__(self)

    def _check_idempotence(self) -> None:
        if not self.enable_idempotence:
            return
        if self.required_acks != -1:
            raise ConfigurationError(
                f'enable_idempotence=True needs acks="all", not {self.acks!r}: records that only the leader has can '
                "be lost"
            )
        if self.max_in_flight_requests_per_connection > MAX_OUTSTANDING:
            raise ConfigurationError(
                f"enable_idempotence=True allows max_in_flight_requests_per_connection up to {MAX_OUTSTANDING}, not "
                f"{self.max_in_flight_requests_per_connection}: a broker remembers no more batches"
            )

    def _check_transactions(self) -> None:
        name = self.transactional_id
        if name is None:
            return
        if not isinstance(name, str) or not name:
            raise ConfigurationError(f"transactional_id is {name!r}; it must be a name, or None")
        if not self.idempotent:
            raise ConfigurationError(
                'a transactional_id needs an idempotent producer: acks="all", enable_idempotence not False, and'
                f" max_in_flight_requests_per_connection up to {MAX_OUTSTANDING}"
            )
        if self.transaction_timeout_ms > 2**31 - 1:
            raise ConfigurationError(
                f"transaction_timeout_ms is {self.transaction_timeout_ms}; it must be below 2**31"
            )

    def _check_compression(self) -> None:
        if self.compression_type is not None and self.compression_type not in CODEC_NAMES:
            raise ConfigurationError(
                f"compression_type is {self.compression_type!r}; it must be {', '.join(CODEC_NAMES[1:])} or none"
            )
        if self.compression_level is not None:
            try:
                check_level(self.codec, self.compression_level)
            except LocalProtocolError as error:
                raise ConfigurationError(f"compression_level: {error}") from None

    @property
    def required_acks(self) -> int:
        """``acks`` in requests: -1 for "all"."""
        return _ACKS[self.acks]

    @property
    def idempotent(self) -> bool:
        """Whether the producer is idempotent: by default if the other options allow it."""
        in_flight = self.max_in_flight_requests_per_connection
        return (
            self.enable_idempotence is not False and self.required_acks == -1 and in_flight <= MAX_OUTSTANDING
        )

    @property
    def codec(self) -> int:
        """The codec's number in batches."""
        return 0 if self.compression_type is None else CODEC_NAMES.index(self.compression_type)

    @property
    def batch_bytes(self) -> int:
        """``batch_size``, limited by the room in a request."""
        return max(1, min(self.batch_size, self.max_request_size - REQUEST_OVERHEAD))

    @property
    def linger(self) -> float:
        return self.linger_ms / 1000

    @property
    def max_block(self) -> float:
        return self.max_block_ms / 1000

    @property
    def delivery_timeout(self) -> float:
        return self.delivery_timeout_ms / 1000


def _number(name: str, value: Any, *, at_least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not at_least <= value < inf:
        raise ConfigurationError(f"{name} is {value!r}; it must be a number of at least {at_least}")
