"""The settings of a topic that its log uses; the broker's config package makes these objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

NO_LIMIT: Final = 2**63 - 1
_DAY_MS: Final = 24 * 60 * 60 * 1000

_MOST_REPACKED: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one topic, with Apache Kafka 3.9's defaults; the names are Kafka's with underscores.

    Times are milliseconds, sizes bytes; -1 for a retention means no limit. To change a log's config, replace it with
    ``dataclasses.replace``: each operation reads it again.
    """

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = NO_LIMIT
    flush_ms: int = NO_LIMIT
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = -1
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = NO_LIMIT
    compact: bool = False
    delete: bool = True
    max_message_bytes: int = (1 << 20) + 12
    # "CreateTime" or "LogAppendTime"
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = NO_LIMIT
    message_timestamp_after_max_ms: int = NO_LIMIT
    min_insync_replicas: int = 1
    preallocate: bool = False
    # "producer", "uncompressed", "gzip", "snappy", "lz4" or "zstd"
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    unclean_leader_election_enable: bool = False
    message_downconversion_enable: bool = True

    @property
    def max_segment_ms(self) -> int:
        """The time for which a segment is written to; a compacted one at most as long as its records may wait."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @property
    def max_repacked_bytes(self) -> int:
        """The largest size of a batch's records, decompressed, if the broker compresses them again."""
        return max(_MOST_REPACKED, 4 * self.max_message_bytes)

    @property
    def log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"
