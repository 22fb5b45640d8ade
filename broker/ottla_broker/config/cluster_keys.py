"""Keys of a broker in a cluster: ZooKeeper, replication, the controller, shutdown. A standalone broker ignores them."""

from __future__ import annotations

from ottla_broker.config.model import (
    INT,
    LONG_MAX,
    PASSWORD,
    PER_BROKER,
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

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The only replica selector that comes with Kafka (KIP-392)."""

_OURS = "Kafka has no such key."
PEM = Validator(
    lambda kind: (
        None
        if kind is None or kind.upper() == "PEM"
        else f"Ottla reads PEM files only; convert a {kind} store:"
        " keytool -importkeystore -srckeystore OLD -destkeystore NEW.p12 -deststoretype PKCS12, then"
        " openssl pkcs12 -in NEW.p12 -out NEW.pem"
    ),
    "PEM",
)


class ClusterKeys:
    """ZooKeeper, replication, the controller and shutdown."""

    zookeeper_connect = optional_string(
        "The cluster's ZooKeeper servers, as host:port separated by commas, optionally followed by a path.",
        note="Without it the broker is standalone and keeps this state in its data folder.",
    )
    zookeeper_session_timeout_ms = integer(
        6000,
        "Time without a heartbeat after which ZooKeeper removes a broker's registration.",
        at_least(1),
        note="Kafka's default is 18000. The cluster notices a dead process at once; this timeout is for"
        " frozen machines and cut networks.",
    )
    zookeeper_connection_timeout_ms: Key[int | None] = Key(
        INT,
        None,
        "The timeout of the first connection to ZooKeeper and of each request. The default is"
        " zookeeper.session.timeout.ms.",
    )
    zookeeper_max_in_flight_requests = integer(
        10,
        "The most concurrent requests to ZooKeeper.",
        between(1, 200),
    )
    zookeeper_set_acl = boolean(
        False,
        "Let only this broker's ZooKeeper user change new znodes. Anyone can read them, except users,"
        " broker configs and delegation tokens.",
        note="The user is zookeeper.sasl.user, zookeeper.digest.user, or the certificate in"
        " zookeeper.ssl.keystore.location.",
    )
    zookeeper_digest_user = optional_string("This broker's ZooKeeper user, in the digest scheme.", note=_OURS)
    zookeeper_digest_password = optional_string(
        "The password of zookeeper.digest.user.", note=_OURS, kind=PASSWORD
    )
    zookeeper_sasl_user = optional_string(
        "This broker's ZooKeeper user, which logs in by SASL's DIGEST-MD5, as with Kafka's JAAS file.",
        note=_OURS,
    )
    zookeeper_sasl_password = optional_string(
        "The password of zookeeper.sasl.user.", note=_OURS, kind=PASSWORD
    )
    zookeeper_ssl_client_enable = boolean(False, "Connect to ZooKeeper over TLS.")
    zookeeper_ssl_endpoint_identification_algorithm = string(
        "HTTPS",
        "Check of the host name in ZooKeeper's certificate: HTTPS, or empty for none.",
        Validator(
            lambda name: None if name.upper() in ("HTTPS", "") else "String must be HTTPS or empty",
            "HTTPS or empty",
        ),
    )
    zookeeper_ssl_keystore_location = optional_string(
        "A PEM file with this broker's private key and certificates, for ZooKeeper servers that require one."
    )
    zookeeper_ssl_keystore_password = optional_string(
        "The password of the private key, if it is encrypted.", kind=PASSWORD
    )
    zookeeper_ssl_keystore_type = optional_string("The type of that file. PEM is the default.", PEM)
    zookeeper_ssl_truststore_location = optional_string(
        "A PEM file with the trusted certificates. The default is the system's."
    )
    zookeeper_ssl_truststore_password = optional_string(
        "Refused, because PEM files with certificates have no password.", kind=PASSWORD
    )
    zookeeper_ssl_truststore_type = optional_string("The type of that file. PEM is the default.", PEM)
    num_replica_fetchers = integer(1, "Concurrent fetches from each leader.", at_least(1))
    replica_fetch_backoff_ms = integer(
        1000,
        "Pause after a failed fetch of a partition. It is shorter while the partition's leader is new.",
        at_least(0),
    )
    leader_replication_throttled_rate = long(
        LONG_MAX,
        "The most bytes per second that this broker sends to out-of-sync followers, for the replicas in"
        " leader.replication.throttled.replicas.",
        at_least(0),
        PER_BROKER,
    )
    follower_replication_throttled_rate = long(
        LONG_MAX,
        "The most bytes per second that this broker fetches for out-of-sync replicas in"
        " follower.replication.throttled.replicas.",
        at_least(0),
        PER_BROKER,
    )
    replication_quota_window_num = integer(
        11, "Windows over which replication rates are measured.", at_least(1)
    )
    replication_quota_window_size_seconds = integer(1, "The length of such a window.", at_least(1))
    replica_fetch_max_bytes = integer(
        1048576, "The most bytes of a partition in a follower's fetch.", at_least(0)
    )
    replica_fetch_min_bytes = integer(1, "The bytes that a follower's fetch waits for.", at_least(0))
    replica_fetch_response_max_bytes = integer(10485760, "The most bytes in a follower's fetch.", at_least(0))
    replica_fetch_wait_max_ms = integer(
        500, "The longest wait of a follower's fetch at the leader.", at_least(0)
    )
    replica_lag_time_max_ms = long(
        30000, "A follower is out of sync when it hasn't caught up for this time.", at_least(1)
    )
    replica_socket_timeout_ms = integer(30000, "The timeout of a follower's request.", at_least(1))
    replica_selector_class = optional_string(
        "The Kafka class that chooses a consumer's replica: RackAwareReplicaSelector takes one in the"
        " consumer's rack. The default is the leader.",
        one_of(RACK_AWARE),
    )
    auto_leader_rebalance_enable = boolean(
        True, "Let the controller return leadership to preferred replicas."
    )
    leader_imbalance_check_interval_seconds = long(
        300, "Time between two checks for brokers that lead too few partitions.", at_least(1)
    )
    leader_imbalance_per_broker_percentage = integer(
        10,
        "The share of a broker's preferred partitions that others may lead before the controller moves them"
        " back.",
        at_least(0),
    )
    controlled_shutdown_enable = boolean(True, "Hand over leadership before stopping.")
    controlled_shutdown_max_retries = integer(3, "Retries of the handover.", at_least(0))
    controlled_shutdown_retry_backoff_ms = long(5000, "Pause between two such retries.", at_least(0))
