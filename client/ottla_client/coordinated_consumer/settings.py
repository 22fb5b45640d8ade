"""The coordinated consumer's options and their checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..group.settings import check_numbers
from ..zookeeper_consumer.settings import StreamsOptions, StreamsSettings, check_node_names

_NAME = re.compile("[a-zA-Z0-9._-]{1,200}")


class CoordinatedConsumerOptions(StreamsOptions, total=False):
    """The keyword arguments of CoordinatedConsumer."""

    bootstrap_servers: str | Sequence[str] | None
    session_timeout_ms: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class CoordinatedConsumerSettings(StreamsSettings):
    """The options' values; ``CoordinatedConsumer`` has their meaning. Raises ConfigurationError for invalid values."""

    client_id: str = "ottla-coordinated-consumer"
    bootstrap_servers: str | Sequence[str] | None = None
    session_timeout_ms: int = 6_000

    def __post_init__(self) -> None:
        StreamsSettings.__post_init__(self)
        check_numbers(self, ("session_timeout_ms", "default_api_timeout_ms"), 1)
        check_node_names(self.group_id, self.consumer_id, _NAME, "a node in the store: up to 200 letters")
