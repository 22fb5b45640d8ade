"""The share consumer's options and their checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, Required, TypeAlias, get_args

from ..consumer.settings import ReadingOptions, ReadingSettings, check_reading
from ..errors import ConfigurationError
from ..group.settings import MemberSettings, check_choices, check_numbers

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


class ShareConsumerOptions(ReadingOptions, total=False):
    """The keyword arguments of ShareConsumer."""

    group_id: Required[str]
    share_acknowledgement_mode: AcknowledgementMode
    share_acquire_mode: AcquireMode
    max_poll_records: int
    max_poll_interval_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class ShareConsumerSettings(ReadingSettings):
    """The options' values; ``ShareConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-share-consumer"

    group_id: str = ""
    share_acknowledgement_mode: AcknowledgementMode = "implicit"
    share_acquire_mode: AcquireMode = "batch_optimized"
    max_poll_records: int = 500
    max_poll_interval_ms: int = 300_000

    def __post_init__(self) -> None:
        ReadingSettings.__post_init__(self)
        check_numbers(self, ("fetch_max_wait_ms",), 0)
        check_numbers(self, _POSITIVE, 1)
        check_choices(
            self,
            share_acknowledgement_mode=get_args(AcknowledgementMode),
            share_acquire_mode=ACQUIRE_MODES,
        )
        if not self.group_id or not isinstance(self.group_id, str):
            raise ConfigurationError("a share consumer needs a group_id")
        check_reading(self)

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
