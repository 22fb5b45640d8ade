"""Keys of the group coordinator and of committed offsets."""

from __future__ import annotations

from ottla_broker.config.model import INT_MAX, SHORT, Key, Validator, at_least, integer, long


class GroupKeys:
    """Groups, their offsets, and the topic that both are kept in."""

    group_min_session_timeout_ms = integer(6000, "The shortest session timeout that a member may ask for.")
    group_max_session_timeout_ms = integer(1800000, "The longest session timeout that a member may ask for.")
    group_initial_rebalance_delay_ms = integer(
        3000, "How long an empty group waits for further members before its first rebalance."
    )
    group_max_size = integer(INT_MAX, "How many members a group may have.", at_least(1))
    offset_metadata_max_bytes = integer(4096, "The longest text that may go with a committed offset.")
    offsets_topic_replication_factor: Key[int] = Key(
        SHORT,
        3,
        "How many replicas the offsets topic gets.",
        at_least(1),
        note="Where fewer brokers are there, as many as there are.",
    )
    offsets_topic_num_partitions = integer(
        50, "How many partitions the offsets topic gets; not to be changed later.", at_least(1)
    )
    offsets_topic_segment_bytes = integer(104857600, "The size of the offsets topic's segments.", at_least(1))
    offsets_topic_compression_codec = integer(
        0, "How the offsets topic is compressed: 0 not, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        Validator(lambda v: None if 0 <= v <= 4 else f"Unknown compression type id: {v}", "0 to 4"),
    )  # fmt: skip
    offsets_retention_minutes = integer(
        10080, "How long the offsets of a group without members are kept.", at_least(1)
    )
    offsets_retention_check_interval_ms = long(
        600000, "How often expired offsets are looked for.", at_least(1)
    )
    offsets_commit_timeout_ms = integer(
        5000, "How long a commit waits for the replicas of the offsets topic.", at_least(1)
    )
