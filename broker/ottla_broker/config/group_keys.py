"""Keys of the group coordinator and of committed offsets."""

from __future__ import annotations

from ottla_broker.config.model import INT_MAX, SHORT, Key, Validator, at_least, integer, long


class GroupKeys:
    """Groups, their offsets, and the topic that stores both."""

    group_min_session_timeout_ms = integer(
        6000, "The shortest session timeout that a group member may request."
    )
    group_max_session_timeout_ms = integer(
        1800000, "The longest session timeout that a group member may request."
    )
    group_initial_rebalance_delay_ms = integer(
        3000, "Time that an empty group waits for further members before its first rebalance."
    )
    group_max_size = integer(INT_MAX, "The most members of a group.", at_least(1))
    offset_metadata_max_bytes = integer(4096, "The longest metadata text of a committed offset.")
    offsets_topic_replication_factor: Key[int] = Key(
        SHORT,
        3,
        "Replicas of the offsets topic.",
        at_least(1),
        note="With fewer brokers, the topic gets one replica on each.",
    )
    offsets_topic_num_partitions = integer(
        50, "Partitions of the offsets topic. Don't change this later.", at_least(1)
    )
    offsets_topic_segment_bytes = integer(104857600, "The segment size of the offsets topic.", at_least(1))
    offsets_topic_compression_codec = integer(
        0, "Compression of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        Validator(lambda v: None if 0 <= v <= 4 else f"Unknown compression type id: {v}", "0 to 4"),
    )  # fmt: skip
    offsets_retention_minutes = integer(
        10080, "Time to keep the offsets of a group without members.", at_least(1)
    )
    offsets_retention_check_interval_ms = long(
        600000, "Time between two checks for expired offsets.", at_least(1)
    )
    offsets_commit_timeout_ms = integer(
        5000, "The longest wait of a commit for the replicas of the offsets topic.", at_least(1)
    )
