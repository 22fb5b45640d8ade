"""The coordinated consumer's options and their checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Required, get_args

from ..consumer.settings import ConsumerSettings, ReadingOptions, ReadingSettings
from ..group.settings import check_choices, check_numbers
from ..types import ISOLATION_LEVELS, IsolationLevel
from ..zookeeper_consumer.settings import SmallestOrLargest, check_node_names, reading_settings

_NAME = re.compile("[a-zA-Z0-9._-]{1,200}")


class CoordinatedConsumerOptions(ReadingOptions, total=False):
    """The keyword arguments of CoordinatedConsumer."""

    group_id: Required[str]
    consumer_id: str | None
    bootstrap_servers: str | Sequence[str] | None
    session_timeout_ms: int
    enable_auto_commit: bool
    auto_offset_reset: SmallestOrLargest
    isolation_level: IsolationLevel
    max_partition_fetch_bytes: int
    max_poll_records: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoordinatedConsumerSettings(ReadingSettings):
    """The options' values; ``CoordinatedConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-coordinated-consumer"

    group_id: str = ""
    consumer_id: str | None = None
    bootstrap_servers: str | Sequence[str] | None = None
    session_timeout_ms: int = 6_000
    enable_auto_commit: bool = True
    auto_offset_reset: SmallestOrLargest = "largest"
    isolation_level: IsolationLevel = "read_uncommitted"
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500

    def __post_init__(self) -> None:
        ReadingSettings.__post_init__(self)
        check_numbers(self, ("session_timeout_ms", "default_api_timeout_ms"), 1)
        check_choices(
            self,
            auto_offset_reset=get_args(SmallestOrLargest),
            isolation_level=ISOLATION_LEVELS,
        )
        check_node_names(self.group_id, self.consumer_id, _NAME, "a node in the store: up to 200 letters")
        self.of_reading()

    def of_reading(self) -> ConsumerSettings:
        """The settings of a stream's own reader. Raises ConfigurationError."""
        return reading_settings(self, self.auto_offset_reset)
