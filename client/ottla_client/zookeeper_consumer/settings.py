"""The ZooKeeper consumer's options and their checks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal, Required, TypeAlias, get_args

from ..consumer.settings import ConsumerSettings, ReadingOptions, ReadingSettings
from ..errors import ConfigurationError
from ..group.settings import check_choices, check_numbers
from ..types import ISOLATION_LEVELS, IsolationLevel

SmallestOrLargest: TypeAlias = Literal["smallest", "largest"]
OffsetsStorage: TypeAlias = Literal["zookeeper", "kafka"]
Strategy: TypeAlias = Literal["range", "roundrobin"]

_POSITIVE = (
    "auto_commit_interval_ms",
    "zookeeper_session_timeout_ms",
    "zookeeper_connection_timeout_ms",
    "rebalance_max_retries",
    "rebalance_backoff_ms",
    "default_api_timeout_ms",
)
_OF_READING = (
    *ReadingSettings.__dataclass_fields__,
    "max_partition_fetch_bytes",
    "max_poll_records",
    "isolation_level",
)
_NAME = re.compile("[a-zA-Z0-9._-]+")
_RESETS = {"smallest": "earliest", "largest": "latest"}


class StreamsOptions(ReadingOptions, total=False):
    """The keyword arguments of both consumers that read in streams."""

    group_id: Required[str]
    consumer_id: str | None
    enable_auto_commit: bool
    auto_offset_reset: SmallestOrLargest
    isolation_level: IsolationLevel
    max_partition_fetch_bytes: int
    max_poll_records: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class StreamsSettings(ReadingSettings):
    """The options' values. Raises ConfigurationError for invalid values."""

    group_id: str = ""
    consumer_id: str | None = None
    enable_auto_commit: bool = True
    auto_offset_reset: SmallestOrLargest = "largest"
    isolation_level: IsolationLevel = "read_uncommitted"
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500

    def __post_init__(self) -> None:
        ReadingSettings.__post_init__(self)
        check_choices(self, auto_offset_reset=get_args(SmallestOrLargest), isolation_level=ISOLATION_LEVELS)
        self.of_reading()

    def of_reading(self) -> ConsumerSettings:
        """The settings of a stream's own reader, which has no group. Raises ConfigurationError."""
        shared: dict[str, Any] = {name: getattr(self, name) for name in _OF_READING}
        begins: Any = _RESETS[self.auto_offset_reset]
        return ConsumerSettings(**shared, auto_offset_reset=begins)


class ZookeeperConsumerOptions(StreamsOptions, total=False):
    """The keyword arguments of ZookeeperConsumer."""

    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    rebalance_max_retries: int
    rebalance_backoff_ms: int
    partition_assignment_strategy: Strategy
    auto_commit_interval_ms: int
    offsets_storage: OffsetsStorage
    dual_commit_enabled: bool
    exclude_internal_topics: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ZookeeperConsumerSettings(StreamsSettings):
    """The options' values; ``ZookeeperConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-zookeeper-consumer"
    zookeeper_session_timeout_ms: int = 6_000
    zookeeper_connection_timeout_ms: int = 6_000
    rebalance_max_retries: int = 4
    rebalance_backoff_ms: int = 2_000
    partition_assignment_strategy: Strategy = "range"
    auto_commit_interval_ms: int = 60_000
    offsets_storage: OffsetsStorage = "zookeeper"
    dual_commit_enabled: bool = False
    exclude_internal_topics: bool = True

    def __post_init__(self) -> None:
        StreamsSettings.__post_init__(self)
        check_numbers(self, _POSITIVE, 1)
        check_choices(
            self,
            offsets_storage=get_args(OffsetsStorage),
            partition_assignment_strategy=get_args(Strategy),
        )
        check_node_names(self.group_id, self.consumer_id, _NAME, "a node in ZooKeeper: letters")


def check_node_names(group_id: object, consumer_id: str | None, allowed: re.Pattern[str], what: str) -> None:
    """Raises ConfigurationError if one of them can't name ``what``."""
    for option, value in (
        ("group_id", group_id),
        ("consumer_id", "_" if consumer_id is None else consumer_id),
    ):
        if not isinstance(value, str) or not allowed.fullmatch(value) or value in (".", ".."):
            raise ConfigurationError(f"{option} is {value!r}; it names {what}, digits, '.', '_' and '-'")
