"""Keys of a broker in a cluster: ZooKeeper, replication, the controller, shutting down. None acts in a broker alone."""

from __future__ import annotations

from ottla_broker.config.model import (
    INT,
    STRING,
    Key,
    at_least,
    boolean,
    integer,
    long,
)


class ClusterKeys:
    """See above."""

    zookeeper_connect: Key[str | None] = Key(
        STRING,
        None,
        "The ZooKeeper servers that hold the cluster's state, as host:port separated by commas, with a path behind"
        " them if the state is to be below one.",
        note="Without it the broker is a cluster of its own, with its state in the data folder.",
    )
    zookeeper_session_timeout_ms = integer(
        6000,
        "After how long without a sign of life ZooKeeper takes a broker for gone.",
        at_least(1),
        note="Ottla's own default; Kafka's is 18000. A process that dies is noticed at once; this is for machines"
        " that freeze and networks that are cut.",
    )
    zookeeper_connection_timeout_ms: Key[int | None] = Key(
        INT,
        None,
        "How long the first connection to ZooKeeper, and any request to it, may take; unless given, as long as a"
        " session lasts.",
    )
    zookeeper_set_acl = boolean(
        False, "Whether new znodes may be changed by this broker's ZooKeeper user alone."
    )
    num_replica_fetchers = integer(1, "How many fetches from each leader are under way at once.", at_least(1))
    replica_fetch_backoff_ms = integer(
        1000, "How long a partition is not asked for after a fetch of it has failed.", at_least(0)
    )
    replica_fetch_max_bytes = integer(1048576, "How much a follower fetches of a partition.", at_least(0))
    replica_fetch_min_bytes = integer(1, "How little a follower waits for.", at_least(0))
    replica_fetch_response_max_bytes = integer(10485760, "How much a follower fetches at once.", at_least(0))
    replica_fetch_wait_max_ms = integer(500, "How long a follower's fetch waits at the leader.", at_least(0))
    replica_lag_time_max_ms = long(
        30000, "A follower that has not caught up for so long is no longer in sync.", at_least(1)
    )
    replica_socket_timeout_ms = integer(30000, "How long a follower's request may take.", at_least(1))
    auto_leader_rebalance_enable = boolean(
        True, "Whether the controller gives leadership back to preferred replicas from time to time."
    )
    leader_imbalance_check_interval_seconds = long(
        300, "How often the controller looks for brokers that lead too little.", at_least(1)
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "Of the partitions that a broker should lead, the share that others may lead meanwhile.",
        at_least(0),
    )
    controlled_shutdown_enable = boolean(
        True, "Whether a broker that stops hands its leaderships over first."
    )
    controlled_shutdown_max_retries = integer(3, "How often handing over is tried again.", at_least(0))
    controlled_shutdown_retry_backoff_ms = long(5000, "The wait between two such attempts.", at_least(0))
