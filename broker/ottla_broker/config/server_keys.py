"""Keys of the broker and its network."""

from __future__ import annotations

import re
from typing import Final

from ottla_broker.config.model import (
    CLUSTER_WIDE,
    INT,
    INT_MAX,
    LIST,
    Key,
    Validator,
    at_least,
    between,
    boolean,
    integer,
    long,
    one_of,
    optional_string,
    string,
)
from ottla_broker.config.security_keys import PROTOCOLS

MOST_NEW_PARTITIONS: Final = 10_000
"""The most partitions that one request may create."""


class ServerKeys:
    """Identity, topics and fetching."""

    broker_id = integer(
        -1,
        "This broker's number in its cluster.",
        note="Without this key and node.id, the broker takes the number in its data folder's"
        " meta.properties, or reserved.broker.max.id + 1 for a new folder.",
    )
    node_id = integer(-1, "The newer name of broker.id. If you set both, they must be equal.")
    broker_id_generation_enable = boolean(
        True, "Choose a number above reserved.broker.max.id for a broker that has none."
    )
    reserved_broker_max_id = integer(1000, "The highest number that you may set as broker.id.", at_least(0))
    broker_rack = optional_string("The rack or zone of this broker, which clients see.")
    background_threads = integer(
        10,
        "Threads for blocking work: flushing, deleting and checkpointing.",
        at_least(1),
    )
    auto_create_topics_enable = boolean(True, "Create a missing topic when a client requests its metadata.")
    delete_topic_enable = boolean(True, "Allow clients to delete topics.")
    num_partitions = integer(
        1, "Partitions of a new topic whose creator gives no number.", between(1, MOST_NEW_PARTITIONS)
    )
    default_replication_factor = integer(
        1,
        "Replicas of each partition of a new topic whose creator gives no number.",
        between(1, 32767),
        note="Creating a topic fails if there are fewer brokers than this.",
    )
    fetch_max_bytes = integer(57671680, "The most bytes of records in one Fetch response.", at_least(1024))
    max_incremental_fetch_session_cache_slots = integer(
        1000, "The most incremental fetch sessions (KIP-227) that the broker keeps.", at_least(0)
    )
    max_request_partition_size_limit = integer(
        2000, "The most partitions in one DescribeTopicPartitions response.", at_least(1)
    )


_OVERRIDE: Final = re.compile(r"\s*[-%._:0-9A-Za-z]+\s*:\s*([0-9]{1,10})\s*")


def _overrides(text: str) -> str | None:
    for part in text.split(",") if text else ():
        found = _OVERRIDE.fullmatch(part)
        if found is None or int(found[1]) > INT_MAX:
            return "Entries must have the form host:count, separated by commas"
    return None


class NetworkKeys:
    """Listeners, sockets and their limits."""

    listeners = string(
        "PLAINTEXT://127.0.0.1:9092",
        "The addresses to listen on, as NAME://HOST:PORT separated by commas. An empty host or 0.0.0.0"
        " means all addresses; port 0 means any free port.",
        note="Kafka's default, PLAINTEXT://:9092, is open to the network.",
    )
    advertised_listeners = optional_string(
        "The addresses that clients connect to, one per listener. The default is listeners."
    )
    allow_anonymous_network: Key[tuple[str, ...]] = Key(
        LIST,
        (),
        "The listeners that other machines may reach without a login: their names, metrics for metrics.listener,"
        " coordinator for coordinator.listener, or true for all.",
        note="Kafka has no such key. Without it, the broker refuses to start with such a listener.",
    )
    listener_security_protocol_map = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as NAME:PROTOCOL separated by commas.",
    )
    inter_broker_listener_name = optional_string(
        "The advertised listener for traffic between brokers. The default is the one that is named as"
        " security.inter.broker.protocol."
    )
    security_inter_broker_protocol = string(
        "PLAINTEXT",
        "The security protocol between brokers, if inter.broker.listener.name isn't set.",
        one_of(*PROTOCOLS),
    )
    num_network_threads = integer(
        3,
        "Processors that share the connections of a listener.",
        at_least(1),
        note="All of them run in one event loop.",
    )
    socket_send_buffer_bytes = integer(
        102400, "The send buffer (SO_SNDBUF) of each connection; -1 keeps the system's default."
    )
    socket_receive_buffer_bytes = integer(
        102400, "The receive buffer (SO_RCVBUF) of each connection; -1 keeps the system's default."
    )
    socket_listen_backlog_size = integer(
        4096,
        "The most connections that may wait to be accepted. The system may allow fewer.",
        at_least(1),
        note="Kafka's default is 50. If thousands of clients connect at once, the system drops what finds no place.",
    )
    socket_request_max_bytes = integer(
        104857600,
        "The largest request that the broker accepts. A larger one closes its connection.",
        at_least(1),
    )
    max_connections = Key(
        INT,
        INT_MAX,
        "The most connections at a time. Further ones wait until another closes.",
        at_least(0),
        CLUSTER_WIDE,
    )
    max_connections_per_ip = Key(
        INT, INT_MAX, "The most connections from one address.", at_least(0), CLUSTER_WIDE
    )
    max_connections_per_ip_overrides = string(
        "",
        "Limits for particular addresses, as host:count separated by commas.",
        Validator(_overrides, "host:count, …"),
        CLUSTER_WIDE,
    )
    connections_max_idle_ms = long(600000, "Close a connection after this time without a request.")
    queued_max_requests = integer(
        500,
        "Stop reading from a connection while this many of its requests wait for responses, or 8 of them and 2,000 of"
        " its network thread's connections.",
        at_least(1),
    )
    queued_max_request_bytes = long(
        -1,
        "Stop reading large requests while pending ones hold this many bytes; -1 for 256 MiB, or for twice"
        " socket.request.max.bytes if that is more.",
    )
