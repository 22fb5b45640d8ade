"""The broker's settings that the coordinator uses."""

from __future__ import annotations

from typing import NamedTuple

from ottla_broker.config import BrokerConfig
from ottla_broker.coordinator.group.modern.assignors import assignor_names
from ottla_broker.coordinator.group.modern.settings import ConsumerGroupSettings


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
    max_groups: int = 100_000
    max_pending_members: int = 20_000
    max_metadata_bytes: int = 256 * 1024 * 1024
    topic_partitions: int = 50
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    """Of groups of the consumer protocol."""

    @classmethod
    def from_config(cls, config: BrokerConfig) -> GroupSettings:
        return cls(
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            codec=config.offsets_topic_compression_codec,
            topic_partitions=config.offsets_topic_num_partitions,
            max_groups=config.max_groups,
            max_pending_members=config.max_pending_members,
            max_metadata_bytes=config.max_group_metadata_bytes,
            consumer=ConsumerGroupSettings(
                max_size=config.group_consumer_max_size,
                assignors=assignor_names(config.group_consumer_assignors),
                migration_policy=config.group_consumer_migration_policy.lower(),
            ),
        )
