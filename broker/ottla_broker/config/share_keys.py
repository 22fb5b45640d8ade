"""Keys of share groups (KIP-932), with the names, limits and defaults of Kafka 4.2."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.group_keys import TIMES
from ottla_broker.config.model import SHORT, Key, at_least, between, boolean, integer
from ottla_broker.config.server_keys import MOST_NEW_PARTITIONS

SHARE_TIMES: Final = (*TIMES, "record.lock.duration")


class ShareKeys:
    """Share groups, the locks on their records, and the topic that stores what is done."""

    group_share_enable = boolean(
        True,
        "Serve share groups (KIP-932).",
        note="Kafka's default is false up to 4.1.",
    )
    group_share_max_size: Key[int] = Key(SHORT, 200, "The most members of a share group.", between(1, 1000))
    group_share_session_timeout_ms = integer(
        45000, "The session timeout of a share group's members.", at_least(1)
    )
    group_share_min_session_timeout_ms = integer(
        45000, "The shortest session timeout that a group's own config may set.", at_least(1)
    )
    group_share_max_session_timeout_ms = integer(
        60000, "The longest session timeout that a group's own config may set.", at_least(1)
    )
    group_share_heartbeat_interval_ms = integer(
        5000, "The heartbeat interval of a share group's members.", at_least(1)
    )
    group_share_min_heartbeat_interval_ms = integer(
        5000, "The shortest heartbeat interval that a group's own config may set.", at_least(1)
    )
    group_share_max_heartbeat_interval_ms = integer(
        15000, "The longest heartbeat interval that a group's own config may set.", at_least(1)
    )
    group_share_record_lock_duration_ms = integer(
        30000,
        "How long an acquired record is locked: it is delivered again unless it is acknowledged by then.",
        between(1000, 3600000),
    )
    group_share_min_record_lock_duration_ms = integer(
        15000, "The shortest lock that a group's own config may set.", between(1000, 30000)
    )
    group_share_max_record_lock_duration_ms = integer(
        60000, "The longest lock that a group's own config may set.", between(30000, 3600000)
    )
    group_share_delivery_count_limit = integer(
        5, "The most deliveries of a record: after the last, it is archived.", between(2, 10)
    )
    group_share_partition_max_record_locks = integer(
        2000,
        "The most records of a partition that are in flight for a group, from the first that isn't done with.",
        between(100, 10000),
        note="Kafka's default is 200 in 3.9, and 2000 from 4.0 on.",
    )
    group_share_max_share_sessions = integer(
        2000, "The most share sessions, one for each consumer that reads from this broker.", at_least(1)
    )
    share_coordinator_state_topic_num_partitions = integer(
        50,
        "Partitions of the topic of share groups' state. Don't change this later.",
        between(1, MOST_NEW_PARTITIONS),
    )
    share_coordinator_state_topic_replication_factor: Key[int] = Key(
        SHORT,
        3,
        "Replicas of the topic of share groups' state.",
        at_least(1),
        note="A standalone broker makes one replica.",
    )
    share_coordinator_state_topic_min_isr: Key[int] = Key(
        SHORT,
        2,
        "In-sync replicas that the topic needs: its `min.insync.replicas` when it is created.",
        at_least(1),
    )
    share_coordinator_state_topic_segment_bytes = integer(
        104857600, "The segment size of the topic of share groups' state.", at_least(1)
    )
    share_coordinator_state_topic_compression_codec = integer(
        0,
        "Compression of the topic of share groups' state: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        between(0, 4),
    )
    share_coordinator_state_topic_prune_interval_ms = integer(
        300000,
        "Time between two deletions of what isn't needed: records, and state of deleted topics.",
        at_least(1),
    )
    share_coordinator_snapshot_update_records_per_snapshot = integer(
        500, "Updates of a share partition's state between two snapshots.", between(0, 500)
    )
    share_coordinator_write_timeout_ms = integer(
        5000, "The longest wait of a write for the topic's replicas.", at_least(1)
    )
