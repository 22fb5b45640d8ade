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
    PER_BROKER,
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
    optional_string,
    string,
)

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")


class TopicDefaultKeys:
    """Defaults of topic configs. A change takes effect at once."""

    message_max_bytes = integer(
        1048588,
        "The largest record batch that the broker accepts, after compression.",
        at_least(0),
        CLUSTER_WIDE,
    )
    min_insync_replicas = integer(
        1, "In-sync replicas that a write with acks=all needs.", at_least(1), CLUSTER_WIDE
    )
    unclean_leader_election_enable = Key(
        BOOLEAN,
        False,
        "Let a replica that isn't in sync become leader when no other is left. The records that it lacks"
        " are lost.",
        None,
        CLUSTER_WIDE,
        note="A standalone broker has no other replica to elect.",
    )
    compression_type = string(
        "producer",
        "Compression of batches on disk; producer keeps the producer's.",
        one_of(*COMPRESSION_TYPES),
        CLUSTER_WIDE,
    )
    compression_gzip_level = integer(
        -1,
        "The gzip level when the broker compresses; -1 is the library's default.",
        between_or(1, 9, -1),
        CLUSTER_WIDE,
    )
    compression_lz4_level = integer(
        9, "The lz4 level when the broker compresses.", between(1, 17), CLUSTER_WIDE
    )
    compression_zstd_level = integer(
        3, "The zstd level when the broker compresses.", between(-131072, 22), CLUSTER_WIDE
    )
    log_segment_bytes = integer(
        1 << 30,
        "The largest segment. A batch that doesn't fit starts a new one.",
        at_least(14),
        CLUSTER_WIDE,
    )
    log_roll_ms = optional(
        LONG, "The greatest age of the active segment before a new one is started.", at_least(1), CLUSTER_WIDE
    )
    log_roll_hours = integer(168, "The same in hours, used when log.roll.ms isn't set.", at_least(1))
    log_roll_jitter_ms = optional(
        LONG,
        "The most that is subtracted from log.roll.ms at random, so that logs don't roll together.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_roll_jitter_hours = integer(
        0, "The same in hours, used when log.roll.jitter.ms isn't set.", at_least(0)
    )
    log_retention_ms = optional(
        LONG, "Delete segments whose newest record is older than this; -1 keeps them.", None, CLUSTER_WIDE
    )
    log_retention_minutes = optional(INT, "The same in minutes, used when log.retention.ms isn't set.")
    log_retention_hours = integer(
        168, "The same in hours, used when neither log.retention.ms nor log.retention.minutes is set."
    )
    log_retention_bytes = long(
        -1,
        "Delete the oldest segments of a partition while it is larger than this; -1 sets no limit.",
        mode=CLUSTER_WIDE,
    )
    log_index_size_max_bytes = integer(
        10 << 20, "The largest offset index of a segment.", at_least(4), CLUSTER_WIDE
    )
    log_index_interval_bytes = integer(
        4096, "Bytes of batches between two index entries.", at_least(0), CLUSTER_WIDE
    )
    log_flush_interval_messages = long(
        LONG_MAX,
        "Flush a log to disk after this many records. With 1, every acknowledged record is on disk.",
        at_least(1),
        CLUSTER_WIDE,
    )
    log_flush_interval_ms = optional(
        LONG,
        "Flush a log to disk when its oldest unflushed record reaches this age.",
        at_least(0),
        CLUSTER_WIDE,
        note="The default is log.flush.scheduler.interval.ms.",
    )
    log_cleanup_policy: Key[tuple[str, ...]] = Key(
        LIST,
        ("delete",),
        "Treatment of old segments: delete removes them, compact keeps the last record of each key.",
        each_of("compact", "delete"),
        CLUSTER_WIDE,
    )
    log_cleaner_delete_retention_ms = long(
        86400000, "Time to keep the tombstones of a compacted log.", at_least(0), CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio = Key(
        DOUBLE,
        0.5,
        "The share of a log that must be uncompacted before it is compacted again.",
        between(0, 1),
        CLUSTER_WIDE,
    )
    log_cleaner_min_compaction_lag_ms = long(
        0, "Don't compact records younger than this.", at_least(0), CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms = long(
        LONG_MAX,
        "Compact records older than this, however clean their log is.",
        at_least(1),
        CLUSTER_WIDE,
    )
    log_segment_delete_delay_ms = long(
        60000,
        "Time to keep the files of a deleted segment, for clients that are reading them.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_preallocate = boolean(
        False, "Allocate the full size of a segment's file when it is created.", CLUSTER_WIDE
    )
    log_message_timestamp_type = string(
        "CreateTime",
        "The timestamp of a record: its producer's, or the time of its arrival.",
        one_of(*TIMESTAMP_TYPES),
        CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms = long(
        LONG_MAX,
        "The most that a record's timestamp may lie behind the broker's clock.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_message_timestamp_after_max_ms = long(
        LONG_MAX,
        "The most that a record's timestamp may lie ahead of the broker's clock.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_message_timestamp_difference_max_ms = long(
        LONG_MAX,
        "The older key for both directions, used for each of log.message.timestamp.before.max.ms and"
        " log.message.timestamp.after.max.ms that isn't set.",
        at_least(0),
        CLUSTER_WIDE,
    )
    log_message_downconversion_enable = boolean(
        True,
        "Convert records for consumers that know only older message formats (Fetch 0 to 3). With false, they get"
        " UNSUPPORTED_VERSION.",
        CLUSTER_WIDE,
    )


class LogKeys:
    """The data folder and background work."""

    log_dir = string(
        "./ottla-data",
        "The data folder, used when log.dirs isn't set.",
        note="Kafka's default is /tmp/kafka-logs.",
    )
    log_dirs = optional_string(
        "The data folders, separated by commas. New partitions go to the one with the fewest."
    )
    log_retention_check_interval_ms = long(
        300000, "Time between two checks for segments to delete.", at_least(1)
    )
    log_initial_task_delay_ms = long(30000, "Delay of background work after the start.", at_least(0))
    log_flush_scheduler_interval_ms = long(LONG_MAX, "Time between two checks for logs to flush.")
    log_flush_offset_checkpoint_interval_ms = integer(
        60000, "Time between two writes of the recovery points.", at_least(0)
    )
    log_flush_start_offset_checkpoint_interval_ms = integer(
        60000, "Time between two writes of the log start offsets.", at_least(0)
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        5000, "Time between two writes of the high watermarks."
    )
    num_recovery_threads_per_data_dir = integer(
        1, "Threads per data folder that recover logs after an unclean stop.", at_least(1)
    )
    log_cleaner_enable = boolean(True, "Compact logs with cleanup.policy=compact.")
    log_cleaner_threads = integer(1, "Threads that compact logs.", at_least(1))
    log_cleaner_backoff_ms = long(
        15000, "Pause of a compaction thread that finds nothing to do.", at_least(0), CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size = long(
        134217728, "Memory for the map of keys, shared by all compaction threads."
    )
    log_cleaner_io_buffer_size = integer(
        524288, "Memory for reading and writing, shared by all compaction threads.", at_least(0)
    )
    log_cleaner_io_buffer_load_factor = Key(
        DOUBLE,
        0.9,
        "The greatest load of the map of keys. A higher load takes more keys per run, with more collisions.",
    )
    log_cleaner_io_max_bytes_per_second = Key(
        DOUBLE, 1.7976931348623157e308, "The most bytes per second that compaction reads and writes."
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        LONG_MAX,
        "The most bytes per second that moves between the folders of log.dirs copy.",
        at_least(0),
        PER_BROKER,
    )
    producer_id_expiration_ms = integer(
        86400000,
        "Time to keep the state of an idempotent producer that has stopped writing.",
        at_least(1),
        CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms = integer(
        600000, "Time between two checks for expired producer state.", at_least(1)
    )
