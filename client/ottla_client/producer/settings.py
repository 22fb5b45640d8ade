"""A producer's options, checked before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.compression import CODEC_NAMES, check_level

from ..errors import ConfigurationError
from .sequences import MAX_OUTSTANDING

REQUEST_OVERHEAD = 512
"""Bytes of a request besides its records, with some to spare for long names of topics."""

_ACKS = {0: 0, 1: 1, -1: -1, "0": 0, "1": 1, "-1": -1, "all": -1}


@dataclass(frozen=True, slots=True)
class Settings:
    """Options in the units that the code uses: seconds, bytes, the codec's number."""

    acks: int
    idempotent: bool
    linger: float
    batch_size: int
    max_request_size: int
    codec: int
    compression_level: int | None
    buffer_memory: int
    max_block: float
    delivery_timeout: float
    request_timeout: float
    max_in_flight: int
    auto_create: bool


def checked(
    *,
    acks: Any,
    enable_idempotence: bool | None,
    linger_ms: float,
    batch_size: int,
    max_request_size: int,
    compression_type: str | None,
    compression_level: int | None,
    buffer_memory: int,
    max_block_ms: float,
    delivery_timeout_ms: float,
    request_timeout_ms: float,
    max_in_flight_requests_per_connection: int,
    allow_auto_create_topics: bool,
) -> Settings:
    """The settings of these options. Raises ConfigurationError, which names the option and what it may be."""
    level = _ACKS.get(acks) if isinstance(acks, int | str) and not isinstance(acks, bool) else None
    if level is None:
        raise ConfigurationError(f'acks is {acks!r}; it may be 0, 1 or "all"')
    in_flight = max_in_flight_requests_per_connection
    _number("linger_ms", linger_ms, at_least=0)
    _number("max_block_ms", max_block_ms, at_least=0)
    _number("request_timeout_ms", request_timeout_ms, at_least=1)
    _number("delivery_timeout_ms", delivery_timeout_ms, at_least=1)
    for name, value, least in (
        ("batch_size", batch_size, 0),
        ("max_request_size", max_request_size, 1),
        ("buffer_memory", buffer_memory, 1),
        ("max_in_flight_requests_per_connection", in_flight, 1),
    ):
        if not isinstance(value, int):
            raise ConfigurationError(f"{name} is {value!r}; a whole number is needed")
        _number(name, value, at_least=least)
    if delivery_timeout_ms < linger_ms + request_timeout_ms:
        raise ConfigurationError(
            f"delivery_timeout_ms is {delivery_timeout_ms}; it has to be at least linger_ms + request_timeout_ms, "
            f"which is {linger_ms + request_timeout_ms}"
        )
    if enable_idempotence:
        if level != -1:
            raise ConfigurationError(
                f'enable_idempotence=True needs acks="all", not {acks!r}: what only the leader has can be lost'
            )
        if in_flight > MAX_OUTSTANDING:
            raise ConfigurationError(
                "enable_idempotence=True allows max_in_flight_requests_per_connection up to "
                f"{MAX_OUTSTANDING}, not {in_flight}: a broker remembers no more batches"
            )
    codec = 0
    if compression_type is not None:
        if compression_type not in CODEC_NAMES:
            raise ConfigurationError(
                f"compression_type is {compression_type!r}; it may be {', '.join(CODEC_NAMES[1:])} or none"
            )
        codec = CODEC_NAMES.index(compression_type)
    if compression_level is not None:
        try:
            check_level(codec, compression_level)
        except LocalProtocolError as error:
            raise ConfigurationError(f"compression_level: {error}") from None
    return Settings(
        acks=level,
        idempotent=enable_idempotence is not False and level == -1 and in_flight <= MAX_OUTSTANDING,
        linger=linger_ms / 1000,
        batch_size=max(1, min(batch_size, max_request_size - REQUEST_OVERHEAD)),
        max_request_size=max_request_size,
        codec=codec,
        compression_level=compression_level,
        buffer_memory=buffer_memory,
        max_block=max_block_ms / 1000,
        delivery_timeout=delivery_timeout_ms / 1000,
        request_timeout=request_timeout_ms / 1000,
        max_in_flight=in_flight,
        auto_create=bool(allow_auto_create_topics),
    )


def _number(name: str, value: Any, *, at_least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not at_least <= value < inf:
        raise ConfigurationError(f"{name} is {value!r}; a number from {at_least} up is needed")
