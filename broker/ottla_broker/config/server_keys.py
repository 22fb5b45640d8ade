"""Keys of the broker as a whole and of its network."""

from __future__ import annotations

from ottla_broker.config.model import (
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    STRING,
    Key,
    Validator,
    at_least,
    boolean,
    integer,
    long,
    string,
)


class ServerKeys:
    """Identity, topics in general, fetching."""

    broker_id = integer(
        -1,
        "The number of this broker in its cluster.",
        note="Where neither this key nor node.id is given, the number in the data folder's meta.properties is"
        " taken, and for a new folder reserved.broker.max.id + 1.",
    )
    node_id = integer(-1, "The newer name of broker.id. If both are given they must be equal.")
    broker_id_generation_enable = boolean(
        True, "Whether a broker without a number of its own chooses one, above reserved.broker.max.id."
    )
    reserved_broker_max_id = integer(1000, "The highest number that may be given as broker.id.", at_least(0))
    broker_rack: Key[str | None] = Key(
        STRING, None, "The rack (or zone) that this broker tells clients it stands in."
    )
    background_threads = integer(
        10,
        "Threads for work that would block the event loop: flushing, deleting and checkpointing.",
        at_least(1),
    )
    auto_create_topics_enable = boolean(
        True, "Whether a topic that a client asks for by Metadata, and that isn't there, is created."
    )
    delete_topic_enable = boolean(True, "Whether topics can be deleted; if not, they can only be created.")
    num_partitions = integer(
        1, "How many partitions a topic gets whose creator names no number.", at_least(1)
    )
    default_replication_factor = integer(
        1,
        "How many replicas a partition gets where the topic's creator names no number.",
        note="More than there are brokers makes such creations fail.",
    )
    fetch_max_bytes = integer(
        57671680, "The most bytes of records that one Fetch is answered with.", at_least(1024)
    )
    max_incremental_fetch_session_cache_slots = integer(
        1000, "How many incremental fetch sessions (KIP-227) are kept.", at_least(0)
    )
    max_request_partition_size_limit = integer(
        2000, "The most partitions in one answer to DescribeTopicPartitions.", at_least(1)
    )


def _overrides(text: str) -> str | None:
    for part in text.split(",") if text else ():
        host, colon, count = part.strip().rpartition(":")
        if not colon or not host or not count.strip().isdigit():
            return "Entries must have the form host:count, separated by commas"
    return None


class NetworkKeys:
    """Listeners, sockets and what bounds them."""

    listeners = string(
        "PLAINTEXT://127.0.0.1:9092",
        "Where the broker listens, as NAME://HOST:PORT separated by commas. An empty host or 0.0.0.0 means"
        " all addresses, port 0 any free port.",
        note="Ottla's own default; Kafka's is PLAINTEXT://:9092, which is open to the network.",
    )
    advertised_listeners: Key[str | None] = Key(
        STRING,
        None,
        "Addresses that clients are told to connect to, a listener each; unless given, those of listeners.",
    )
    listener_security_protocol_map = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol a listener's name stands for, as NAME:PROTOCOL separated by commas.",
        note="Only PLAINTEXT can be listened with.",
    )
    inter_broker_listener_name: Key[str | None] = Key(
        STRING,
        None,
        "The advertised listener for traffic between brokers; the one named PLAINTEXT unless given.",
    )
    num_network_threads = integer(
        3,
        "How many processors the connections of a listener are dealt out to.",
        at_least(1),
        note="They share one event loop.",
    )
    socket_send_buffer_bytes = integer(
        102400, "SO_SNDBUF of a connection's socket; -1 leaves the system's own."
    )
    socket_receive_buffer_bytes = integer(
        102400, "SO_RCVBUF of a connection's socket; -1 leaves the system's own."
    )
    socket_listen_backlog_size = integer(50, "How many connections may wait to be accepted.", at_least(1))
    socket_request_max_bytes = integer(
        104857600, "The largest request that is read; a larger one closes its connection.", at_least(1)
    )
    max_connections = Key(
        INT,
        INT_MAX,
        "How many connections the broker has at once; a further one waits until there is room.",
        at_least(0),
        CLUSTER_WIDE,
    )
    max_connections_per_ip = Key(
        INT, INT_MAX, "How many connections one address may have.", at_least(0), CLUSTER_WIDE
    )
    max_connections_per_ip_overrides = string(
        "",
        "Other limits for some addresses, as host:count separated by commas.",
        Validator(_overrides, "host:count, …"),
        CLUSTER_WIDE,
    )
    connections_max_idle_ms = long(600000, "A connection that has been silent for so long is closed.")
    queued_max_requests = integer(
        500, "How many requests may wait for their answers before no more are read.", at_least(1)
    )
    queued_max_request_bytes = long(
        -1, "How many bytes of requests may be held before no more are read; -1 for no bound."
    )
