"""The consumer's options and their checks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeAlias, get_args

from ..errors import ConfigurationError
from ..group.assignors import Assignor
from ..group.settings import MemberSettings, check_choices, check_numbers
from ..settings import ConnectionOptions, ConnectionSettings
from ..types import ISOLATION_LEVELS, IsolationLevel

Deserializer: TypeAlias = Callable[[bytes], Any]
"""Makes an object from a record's key or value. Null stays None without a call."""

OffsetReset: TypeAlias = Literal["earliest", "latest", "none"]
GroupProtocol: TypeAlias = Literal["classic", "consumer"]
"""The one that assigns partitions: a consumer of the group, or the broker (KIP-848)."""


class Decoding(Protocol):
    """The options by which fetched bytes become records."""

    @property
    def key_deserializer(self) -> Deserializer | None: ...
    @property
    def value_deserializer(self) -> Deserializer | None: ...
    @property
    def check_crcs(self) -> bool: ...
    @property
    def read_committed(self) -> bool: ...


_CLASSIC_ONLY = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")
"""Options that the broker decides about in the consumer protocol."""

_POSITIVE = (
    "auto_commit_interval_ms",
    "fetch_min_bytes",
    "fetch_max_bytes",
    "max_partition_fetch_bytes",
    "max_poll_records",
    "request_timeout_ms",
    "default_api_timeout_ms",
    "metadata_max_age_ms",
)


class ReadingOptions(ConnectionOptions, total=False):
    """The keyword arguments of `ReadingSettings`."""

    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ReadingSettings(ConnectionSettings):
    """The options of all clients that read; `ConsumerSettings` has the same, with a member's."""

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    check_crcs: bool = True
    client_rack: str = ""
    default_api_timeout_ms: int = 60_000


def check_reading(settings: ReadingSettings | ConsumerSettings) -> None:
    """Check the options of reading that aren't numbers, and those that depend on others. Raises ConfigurationError."""
    for name in ("key_deserializer", "value_deserializer"):
        if getattr(settings, name) is not None and not callable(getattr(settings, name)):
            raise ConfigurationError(f"{name} must be a callable that takes bytes")
    if settings.fetch_max_wait_ms >= settings.request_timeout_ms:
        raise ConfigurationError(
            f"fetch_max_wait_ms ({settings.fetch_max_wait_ms}) must be below request_timeout_ms "
            f"({settings.request_timeout_ms})"
        )


class ConsumerOptions(ReadingOptions, total=False):
    """The keyword arguments of Consumer."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: GroupProtocol
    group_remote_assignor: str | None
    auto_offset_reset: OffsetReset
    auto_offset_reset_new_partitions: OffsetReset | None
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    isolation_level: IsolationLevel
    max_partition_fetch_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    partition_assignment_strategy: Sequence[str | Assignor]
    exclude_internal_topics: bool
    allow_auto_create_topics: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ConsumerSettings(MemberSettings):
    """The options' values; ``Consumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-consumer"

    group_id: str | None = None
    group_protocol: GroupProtocol = "classic"
    group_remote_assignor: str | None = None
    auto_offset_reset: OffsetReset = "latest"
    auto_offset_reset_new_partitions: OffsetReset | None = None
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    isolation_level: IsolationLevel = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500
    partition_assignment_strategy: Sequence[str | Assignor] = ("range", "cooperative-sticky")
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    check_crcs: bool = True
    exclude_internal_topics: bool = True
    allow_auto_create_topics: bool = False
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        MemberSettings.__post_init__(self)
        check_numbers(self, ("fetch_max_wait_ms",), 0)
        check_numbers(self, _POSITIVE, 1)
        check_choices(
            self,
            auto_offset_reset=get_args(OffsetReset),
            isolation_level=ISOLATION_LEVELS,
            group_protocol=get_args(GroupProtocol),
        )
        if self.auto_offset_reset_new_partitions is not None:
            check_choices(self, auto_offset_reset_new_partitions=get_args(OffsetReset))
        if self.group_id is not None and not self.group_id:
            raise ConfigurationError("group_id is empty; leave it out to read without a group")
        if self.group_instance_id is not None and self.group_id is None:
            raise ConfigurationError("group_instance_id needs a group_id")
        self._check_protocol()
        check_reading(self)

    def _check_protocol(self) -> None:
        """Refuse options that the chosen protocol ignores."""
        if self.group_protocol == "classic":
            if self.group_remote_assignor is not None:
                raise ConfigurationError("group_remote_assignor needs group_protocol='consumer'")
            return
        for name in _CLASSIC_ONLY:
            if getattr(self, name) != _DEFAULTS[name]:
                raise ConfigurationError(
                    f"{name} can't be set with group_protocol='consumer': the broker decides about it; leave it out"
                )

    @property
    def reset_of_new_partitions(self) -> OffsetReset:
        """Where new partitions begin: nothing was in them, so that "latest" would skip their first records."""
        if self.auto_offset_reset_new_partitions is not None:
            return self.auto_offset_reset_new_partitions
        return "earliest" if self.auto_offset_reset == "latest" else self.auto_offset_reset

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    @property
    def isolation(self) -> int:
        """The isolation level's number in requests."""
        return ISOLATION_LEVELS.index(self.isolation_level)


_DEFAULTS = {each.name: each.default for each in fields(ConsumerSettings)}
