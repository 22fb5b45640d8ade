"""The broker's settings that the coordinator uses."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class ConfigLike(Protocol):
    """A mapping of config keys to typed values."""

    def get(self, key: str, /) -> object: ...


class GroupSettings(NamedTuple):
    """Times are in ms, sizes in bytes; the defaults are Kafka 3.9's."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60_000
    retention_check_interval_ms: int = 600_000
    commit_timeout_ms: int = 5_000
    codec: int = 0
    """The codec of record batches: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
    topic_partitions: int = 50

    @classmethod
    def from_config(cls, config: ConfigLike) -> GroupSettings:
        """Read a broker's configuration, which declares each key with its default."""

        def number(key: str) -> int:
            value = config.get(key)
            if not isinstance(value, int):
                raise TypeError(f"{key} is {value!r}, not a whole number")
            return value

        return cls(
            min_session_timeout_ms=number("group.min.session.timeout.ms"),
            max_session_timeout_ms=number("group.max.session.timeout.ms"),
            max_size=number("group.max.size"),
            initial_rebalance_delay_ms=number("group.initial.rebalance.delay.ms"),
            offset_metadata_max_bytes=number("offset.metadata.max.bytes"),
            offsets_retention_ms=number("offsets.retention.minutes") * 60_000,
            retention_check_interval_ms=number("offsets.retention.check.interval.ms"),
            commit_timeout_ms=number("offsets.commit.timeout.ms"),
            codec=number("offsets.topic.compression.codec"),
            topic_partitions=number("offsets.topic.num.partitions"),
        )
