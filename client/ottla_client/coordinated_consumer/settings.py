"""The coordinated consumer's options and their checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Required, get_args

from ..consumer.settings import ConsumerSettings, Deserializer
from ..errors import ConfigurationError
from ..group.settings import check_numbers
from ..settings import ConnectionOptions, ConnectionSettings
from ..types import ISOLATION_LEVELS, IsolationLevel
from ..zookeeper_consumer.settings import SmallestOrLargest, reading_settings

_NAME = re.compile("[a-zA-Z0-9._-]{1,200}")


class CoordinatedConsumerOptions(ConnectionOptions, total=False):
    """The keyword arguments of CoordinatedConsumer."""

    group_id: Required[str]
    consumer_id: str | None
    bootstrap_servers: str | Sequence[str] | None
    session_timeout_ms: int
    enable_auto_commit: bool
    auto_offset_reset: SmallestOrLargest
    isolation_level: IsolationLevel
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoordinatedConsumerSettings(ConnectionSettings):
    """The options' values; ``CoordinatedConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-coordinated-consumer"

    group_id: str = ""
    consumer_id: str | None = None
    bootstrap_servers: str | Sequence[str] | None = None
    session_timeout_ms: int = 6_000
    enable_auto_commit: bool = True
    auto_offset_reset: SmallestOrLargest = "largest"
    isolation_level: IsolationLevel = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    check_crcs: bool = True
    client_rack: str = ""
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        check_numbers(self, ("session_timeout_ms", "default_api_timeout_ms"), 1)
        for name, allowed in (
            ("auto_offset_reset", get_args(SmallestOrLargest)),
            ("isolation_level", ISOLATION_LEVELS),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(map(repr, allowed))}"
                )
        for name in ("group_id", "consumer_id"):
            value = getattr(self, name)
            if value is None and name == "consumer_id":
                continue
            if not isinstance(value, str) or not _NAME.fullmatch(value) or value in (".", ".."):
                raise ConfigurationError(
                    f"{name} is {value!r}; it names a node in the store: up to 200 letters, digits, '.', '_' and '-'"
                )
        self.of_reading()

    def of_reading(self) -> ConsumerSettings:
        """The settings of a stream's own reader. Raises ConfigurationError."""
        return reading_settings(self, self.auto_offset_reset)
