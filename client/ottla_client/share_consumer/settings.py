"""The share consumer's options and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Required, TypeAlias, get_args

from ..consumer.settings import Deserializer
from ..errors import ConfigurationError
from ..group.settings import MemberSettings, check_numbers
from ..settings import ConnectionOptions, ConnectionSettings

AcknowledgementMode: TypeAlias = Literal["implicit", "explicit"]
AcquireMode: TypeAlias = Literal["batch_optimized", "record_limit"]
ACQUIRE_MODES: Final[tuple[AcquireMode, ...]] = get_args(AcquireMode)
"""The index of a mode is its number in requests (KIP-1206)."""

_POSITIVE = (
    "fetch_min_bytes",
    "fetch_max_bytes",
    "max_poll_records",
    "max_poll_interval_ms",
    "request_timeout_ms",
    "default_api_timeout_ms",
)


class ShareConsumerOptions(ConnectionOptions, total=False):
    """The keyword arguments of ShareConsumer."""

    group_id: Required[str]
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_poll_records: int
    max_poll_interval_ms: int
    key_deserializer: Deserializer | None
    value_deserializer: Deserializer | None
    check_crcs: bool
    client_rack: str
    default_api_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ShareConsumerSettings(ConnectionSettings):
    """The options' values; ``ShareConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-share-consumer"

    group_id: str = ""
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    share_acquire_mode: AcquireMode = "batch_optimized"
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 52_428_800
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    check_crcs: bool = True
    client_rack: str = ""
    default_api_timeout_ms: int = 60_000

    def __post_init__(self) -> None:
        ConnectionSettings.__post_init__(self)
        check_numbers(self, ("fetch_max_wait_ms",), 0)
        check_numbers(self, _POSITIVE, 1)
        for name, allowed in (
            ("share_acknowledgement_mode", get_args(AcknowledgementMode)),
            ("share_acquire_mode", ACQUIRE_MODES),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigurationError(
                    f"{name} is {getattr(self, name)!r}; it must be one of {', '.join(map(repr, allowed))}"
                )
        for name in ("key_deserializer", "value_deserializer"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ConfigurationError(f"{name} must be a callable that takes bytes")
        if not self.group_id or not isinstance(self.group_id, str):
            raise ConfigurationError("a share consumer needs a group_id")
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigurationError(
                f"fetch_max_wait_ms ({self.fetch_max_wait_ms}) must be below request_timeout_ms "
                f"({self.request_timeout_ms})"
            )

    @property
    def explicit(self) -> bool:
        return self.share_acknowledgement_mode == "explicit"

    @property
    def read_committed(self) -> bool:
        """Whether to filter aborted records here: never, because the broker does it, by the group's config."""
        return False

    def of_member(self) -> MemberSettings:
        """The settings of the group's member."""
        return MemberSettings(max_poll_interval_ms=self.max_poll_interval_ms, client_rack=self.client_rack)
