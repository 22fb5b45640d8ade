"""Keys of the log: the defaults of topics, retention, flushing, recovery, compaction."""

from __future__ import annotations

from ottla_broker.config.model import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    Key,
    at_least,
    between,
    between_or,
    boolean,
    each_of,
    integer,
    long,
    one_of,
    optional,
    string,
)

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class TopicDefaultKeys:
    """What topics have that say nothing else themselves. All of these act at once when they are changed."""

    message_max_bytes = integer(
        1048588, "The largest record batch that is taken, after compression.", at_least(0), CLUSTER_WIDE
    )
    min_insync_replicas = integer(
        1, "How many in-sync replicas acks=all needs before it is acknowledged.", at_least(1), CLUSTER_WIDE
    )
    unclean_leader_election_enable = Key(
        BOOLEAN,
        False,
        "Whether a replica that isn't in sync may become leader when no other is left: records that it lacks are"
        " lost then.",
        None,
        CLUSTER_WIDE,
        note="In a broker alone there is nobody else to elect.",
    )
    compression_type = string(
        "producer",
        "How batches are compressed on disk; producer leaves them as they come.",
        one_of(*COMPRESSION_TYPES),
        CLUSTER_WIDE,
    )
    compression_gzip_level = integer(
        -1,
        "The level for gzip where the broker compresses; -1 is the library's own choice.",
        between_or(1, 9, -1),
        CLUSTER_WIDE,
    )
    compression_lz4_level = integer(
        9, "The level for lz4 where the broker compresses.", between(1, 17), CLUSTER_WIDE
    )
    compression_zstd_level = integer(
        3, "The level for zstd where the broker compresses.", between(-131072, 22), CLUSTER_WIDE
    )
    log_segment_bytes = integer(
        1 << 30,
        "A segment that would grow larger is closed and the next one begun.",
        at_least(14),
        CLUSTER_WIDE,
    )
    log_roll_ms = optional(
        LONG, "A segment older than this is closed and the next one begun.", at_least(1), CLUSTER_WIDE
    )
    log_roll_hours = integer(168, "log.roll.ms in hours; counts where that one isn't given.", at_least(1))
    log_roll_jitter_ms = optional(
        LONG,
        "Up to so much is taken off log.roll.ms at random, so that logs don't roll together.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_roll_jitter_hours = integer(
        0, "log.roll.jitter.ms in hours; counts where that one isn't given.", at_least(0)
    )
    log_retention_ms = optional(
        LONG, "Segments whose newest record is older are deleted; -1 keeps them for ever.", None, CLUSTER_WIDE
    )
    log_retention_minutes = optional(INT, "log.retention.ms in minutes; counts where that one isn't given.")
    log_retention_hours = integer(
        168, "log.retention.ms in hours; counts where neither of the other two is given."
    )
    log_retention_bytes = long(
        -1,
        "A partition's oldest segments are deleted while it is larger than this; -1 for no bound.",
        mode=CLUSTER_WIDE,
    )
    log_index_size_max_bytes = integer(
        10 << 20, "The largest offset index of a segment.", at_least(4), CLUSTER_WIDE
    )
    log_index_interval_bytes = integer(
        4096, "How many bytes of batches go by between two entries of an index.", at_least(0), CLUSTER_WIDE
    )
    log_flush_interval_messages = long(
        LONG_MAX,
        "A log is flushed to disk after so many records; with 1 each acknowledgement is durable.",
        at_least(1),
        CLUSTER_WIDE,
    )
    log_flush_interval_ms = optional(
        LONG,
        "A log is flushed to disk when its oldest unflushed record is so old.",
        at_least(0),
        CLUSTER_WIDE,
        note="log.flush.scheduler.interval.ms counts where it isn't given.",
    )
    log_cleanup_policy: Key[tuple[str, ...]] = Key(
        LIST,
        ("delete",),
        "What happens to old segments: delete removes them, compact keeps the last record of each key.",
        each_of("compact", "delete"),
        CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms = long(
        86400000, "How long a compacted log keeps its tombstones.", at_least(0), CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio = Key(
        DOUBLE,
        0.5,
        "The share of a log that must be uncompacted before it is compacted again.",
        between(0, 1),
        CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        0, "Records younger than this are not compacted.", at_least(0), CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms = long(
        LONG_MAX,
        "Records older than this are compacted however clean their log is.",
        at_least(1),
        CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms = long(
        60000,
        "How long a deleted segment's files stay, for those who are reading them.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_preallocate = boolean(False, "Whether a new segment's file gets its full size at once.", CLUSTER_WIDE)
    log_message_timestamp_type = string(
        "CreateTime",
        "Whether a record's timestamp is its producer's or that of its arrival.",
        one_of(*TIMESTAMP_TYPES),
        CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms = long(
        LONG_MAX,
        "How far behind the broker's clock a producer's timestamp may lie.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms = long(
        LONG_MAX,
        "How far ahead of the broker's clock a producer's timestamp may lie.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_message_timestamp_difference_max_ms = long(
        LONG_MAX,
        "The older key for both directions: counts for each of log.message.timestamp.before.max.ms and"
        " after.max.ms that is not given.",
        at_least(0),
        CLUSTER_WIDE,
    )


class LogKeys:
    """The data folder and the work in the background."""

    log_dir = string(
        "./ottla-data",
        "The data folder; counts where log.dirs isn't given.",
        note="Ottla's own default; Kafka's is /tmp/kafka-logs.",
    )
    log_dirs: Key[str | None] = Key(
        STRING, None, "The data folders, separated by commas. New partitions go to the one that has fewest."
    )
    log_retention_check_interval_ms = long(
        300000, "How often segments are looked at for deletion.", at_least(1)
    )
    log_initial_task_delay_ms = long(
        30000, "How long after the start the work in the background begins.", at_least(0)
    )
    log_flush_scheduler_interval_ms = long(LONG_MAX, "How often logs are looked at for flushing by time.")
    log_flush_offset_checkpoint_interval_ms = integer(
        60000, "How often recovery points are written to the data folder.", at_least(0)
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        60000, "How often log start offsets are written to the data folder.", at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        5000, "How often high watermarks are written to the data folder."
    )
    num_recovery_threads_per_data_dir = integer(
        1, "Threads that recover the logs of a data folder at start after an unclean stop.", at_least(1)
    )
    log_cleaner_enable = boolean(True, "Whether logs with cleanup.policy=compact are compacted.")
    log_cleaner_threads = integer(1, "Threads that compact logs.", at_least(0))
    log_cleaner_backoff_ms = long(
        15000, "How long a compaction thread that found nothing to do rests.", at_least(0), CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size = long(
        134217728, "Memory for the map of keys, of all compaction threads together."
    )
    log_cleaner_io_buffer_size = integer(
        524288, "Memory for reading and writing, of all compaction threads together.", at_least(0)
    )
    log_cleaner_io_buffer_load_factor = Key(
        DOUBLE, 0.9, "How full the map of keys may get; fuller means more keys in a run and more collisions."
    )
    log_cleaner_io_max_bytes_per_second = Key(
        DOUBLE, 1.7976931348623157e308, "How many bytes a second compaction may read and write."
    )
    producer_id_expiration_ms = integer(
        86400000,
        "How long the state of an idempotent producer that writes nothing more is kept.",
        at_least(1),
    )
    producer_id_expiration_check_interval_ms = integer(
        600000, "How often such state is looked for.", at_least(1)
    )
