"""Invalid options are refused when the producer is made, with the allowed values."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_client.errors import ClosedError, ConfigurationError
from ottla_client.producer import Producer


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"acks": 2}, 'acks is 2; it must be 0, 1 or "all"'),
        ({"acks": True}, "acks is True"),
        ({"acks": 1, "enable_idempotence": True}, 'needs acks="all"'),
        ({"acks": 0, "enable_idempotence": True}, 'needs acks="all"'),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "up to 5"),
        ({"linger_ms": -1}, "linger_ms is -1"),
        ({"batch_size": 1.5}, "batch_size is 1.5"),
        ({"compression_type": "brotli"}, "gzip, snappy, lz4, zstd or none"),
        ({"compression_type": "zstd", "compression_level": 99}, "compression_level"),
        ({"compression_level": 3}, "compression_level"),
        ({"delivery_timeout_ms": 1000}, "at least linger_ms"),
        ({"partitioner": 3}, "partitioner is 3"),
        ({"value_serializer": "json"}, "value_serializer"),
        ({"security_protocol": "SASL_SSL"}, "SASL_SSL"),
    ],
)
def test_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says.replace("(", r"\(")):
        Producer(**options)


@pytest.mark.parametrize(
    ("options", "idempotent"),
    [
        ({}, True),
        ({"acks": "all"}, True),
        ({"acks": -1}, True),
        ({"acks": 1}, False),
        ({"acks": 0}, False),
        ({"enable_idempotence": False}, False),
        ({"max_in_flight_requests_per_connection": 6}, False),
    ],
)
def test_other_options_switch_idempotence_off_by_default(options: dict[str, Any], idempotent: bool) -> None:
    assert Producer(**options)._settings.idempotent is idempotent


async def test_says_that_it_is_not_started() -> None:
    producer = Producer()
    with pytest.raises(ClosedError, match="async with"):
        await producer.send("t", b"v")
    await producer.close()
    with pytest.raises(ClosedError):
        await producer.start()
