"""Keys of a broker in a cluster: ZooKeeper, replication, the controller, shutting down. None acts in a broker alone."""

from __future__ import annotations

from ottla_broker.config.model import (
    INT,
    LONG_MAX,
    PASSWORD,
    PER_BROKER,
    STRING,
    Key,
    Validator,
    at_least,
    between,
    boolean,
    integer,
    long,
    one_of,
    string,
)

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only replica selector that Kafka brings along (KIP-392)."""

_OURS = "Ottla's own key; Kafka has none of this name."
_PEM = Validator(
    lambda kind: (
        None
        if kind is None or kind.upper() == "PEM"
        else f"Ottla reads PEM files only; a {kind} store can be converted:"
        " keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12, then"
        " openssl pkcs12 -in NEW.p12 -out NEW.pem"
    ),
    "PEM",
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
    zookeeper_max_in_flight_requests = integer(
        10,
        "How many requests to ZooKeeper may be under way at once.",
        between(1, 200),
    )
    zookeeper_set_acl = boolean(
        False,
        "Whether new znodes may be changed by this broker's ZooKeeper user alone; all may read them, except those of"
        " users, brokers' configs and delegation tokens.",
        note="The user is that of zookeeper.digest.user, or the certificate in zookeeper.ssl.keystore.location.",
    )
    zookeeper_digest_user: Key[str | None] = Key(
        STRING, None, "The user that this broker is for ZooKeeper, in its scheme digest.", note=_OURS
    )
    zookeeper_digest_password: Key[str | None] = Key(PASSWORD, None, "That user's password.", note=_OURS)
    zookeeper_ssl_client_enable = boolean(False, "Whether ZooKeeper is spoken to over TLS.")
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "HTTPS",
        "How ZooKeeper's certificate is checked against the host's name: HTTPS, or empty for not at all.",
        Validator(
            lambda name: None if name.upper() in ("HTTPS", "") else "String must be HTTPS or empty",
            "HTTPS or empty",
        ),
    )
    zookeeper_ssl_keystore_location: Key[str | None] = Key(
        STRING,
        None,
        "A PEM file with this broker's private key and certificates, for ZooKeepers that ask for one.",
    )
    zookeeper_ssl_keystore_password: Key[str | None] = Key(
        PASSWORD, None, "The password of the key in it, if it is encrypted."
    )
    zookeeper_ssl_keystore_type: Key[str | None] = Key(
        STRING, None, "The type of that file: PEM, which is also taken if nothing is given.", _PEM
    )
    zookeeper_ssl_truststore_location: Key[str | None] = Key(
        STRING,
        None,
        "A PEM file with the certificates that ZooKeeper's must be signed by; without it, those that the system"
        " trusts.",
    )
    zookeeper_ssl_truststore_password: Key[str | None] = Key(
        PASSWORD, None, "Refused, as certificates in PEM files have no password."
    )
    zookeeper_ssl_truststore_type: Key[str | None] = Key(
        STRING, None, "The type of that file: PEM, which is also taken if nothing is given.", _PEM
    )
    num_replica_fetchers = integer(1, "How many fetches from each leader are under way at once.", at_least(1))
    replica_fetch_backoff_ms = integer(
        1000,
        "How long a partition is not asked for after a fetch of it has failed; at most, where its leader has not heard"
        " of it yet.",
        at_least(0),
    )
    leader_replication_throttled_rate = long(
        LONG_MAX,
        "How many bytes a second this broker sends to followers that are not in sync, of the replicas that topics"
        " name in leader.replication.throttled.replicas.",
        at_least(0),
        PER_BROKER,
    )
    follower_replication_throttled_rate = long(
        LONG_MAX,
        "How many bytes a second this broker fetches of replicas that are not in sync, of those that topics name in"
        " follower.replication.throttled.replicas.",
        at_least(0),
        PER_BROKER,
    )
    replication_quota_window_num = integer(
        11, "Windows that the rates of replication are measured by.", at_least(1)
    )
    replication_quota_window_size_seconds = integer(1, "How long such a window is.", at_least(1))
    replica_fetch_max_bytes = integer(1048576, "How much a follower fetches of a partition.", at_least(0))
    replica_fetch_min_bytes = integer(1, "How little a follower waits for.", at_least(0))
    replica_fetch_response_max_bytes = integer(10485760, "How much a follower fetches at once.", at_least(0))
    replica_fetch_wait_max_ms = integer(500, "How long a follower's fetch waits at the leader.", at_least(0))
    replica_lag_time_max_ms = long(
        30000, "A follower that has not caught up for so long is no longer in sync.", at_least(1)
    )
    replica_socket_timeout_ms = integer(30000, "How long a follower's request may take.", at_least(1))
    replica_selector_class: Key[str | None] = Key(
        STRING,
        None,
        "What chooses the replica that a consumer reads from, by the name of Kafka's class: the one in its rack, or,"
        " unless given, the leader.",
        one_of(RACK_AWARE),
    )
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
