"""Values in force, priorities, refused settings and warnings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.config import BrokerConfig, ConfigError, InvalidValue, load_config
from ottla_broker.config.oauth_keys import UNSECURED_TOKENS
from ottla_broker.config.properties import read_properties
from ottla_protocol.sasl.jaas import parse_login


def config(**settings: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {name.replace("_", "."): value for name, value in settings.items()}, "server.properties"
    )


def test_defaults() -> None:
    made = config()
    assert [str(endpoint) for endpoint in made.endpoints] == ["PLAINTEXT://127.0.0.1:9092"]
    assert made.data_dirs == (Path("ottla-data"),)
    assert made.broker_id == 1001
    assert not made.broker_id_given
    assert made.warnings == []


def test_values_have_their_types() -> None:
    made = config(
        num_network_threads=" 5 ", auto_create_topics_enable="FALSE", log_cleanup_policy="compact, delete"
    )
    assert made.num_network_threads == 5
    assert made.auto_create_topics_enable is False
    assert made.log_cleanup_policy == ("compact", "delete")
    assert made.get("num.network.threads") == 5
    assert made.text("log.cleanup.policy") == "compact,delete"
    assert made.get("num.io.threads") == 8
    with pytest.raises(KeyError):
        made.get("no.such.key")


def test_kafkas_own_server_properties_start_with_warnings_only() -> None:
    made = config(
        broker_id="0",
        num_network_threads="3",
        num_io_threads="8",
        socket_send_buffer_bytes="102400",
        log_dirs="/tmp/kafka-logs",
        num_partitions="1",
        offsets_topic_replication_factor="1",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
        log_retention_hours="168",
        group_initial_rebalance_delay_ms="0",
        zookeeper_connection_timeout_ms="18000",
    )
    assert [line.partition("=")[0] for line in made.warnings] == [
        "zookeeper.connection.timeout.ms",
    ]


def test_more_replicas_than_brokers_are_warned_of() -> None:
    assert [line.partition(" is more")[0] for line in config(default_replication_factor="3").warnings] == [
        "default.replication.factor=3"
    ]
    assert config(default_replication_factor="3", zookeeper_connect="h").warnings == []


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"num_partitions": "x"},
            "num.partitions: 'x' is not allowed (Not a number of type INT); allowed: 1 to 10000",
        ),
        ({"num_partitions": "0"}, "num.partitions: '0' is not allowed (Value must be at least 1)"),
        (
            {"num_partitions": "10001"},
            "num.partitions: '10001' is not allowed (Value must be",
        ),
        ({"offsets_topic_num_partitions": "10001"}, "offsets.topic.num.partitions: '10001' is not allowed"),
        (
            {"default_replication_factor": "0"},
            "default.replication.factor: '0' is not allowed (Value must be at",
        ),
        ({"log_cleaner_threads": "0"}, "log.cleaner.threads: '0' is not allowed (Value must be at least 1)"),
        (
            {"connections_max_idle_ms": "100"},
            "connections.max.idle.ms: must be more than connection.failed.authentication.delay.ms (100), or -1",
        ),
        (
            {"zookeeper_connect": "h", "replica_lag_time_max_ms": "499"},
            "replica.fetch.wait.max.ms: 500 must not be more than replica.lag.time.max.ms (499)",
        ),
        (
            {"zookeeper_connect": "h", "replica_fetch_wait_max_ms": "30001"},
            "replica.fetch.wait.max.ms: 30001 must not be more than replica.socket.timeout.ms (30000)",
        ),
        ({"num_io_threads": "0"}, "num.io.threads: '0' is not allowed (Value must be at least 1)"),
        (
            {"inter_broker_protocol_version": "4.0"},
            "inter.broker.protocol.version: '4.0' is not allowed (Version",
        ),
        (
            {"advertised_listeners": ""},
            "advertised.listeners: names no listener; name one, or remove the key",
        ),
        ({"num_partitions": "1_0"}, "num.partitions: '1_0' is not allowed"),
        ({"message_max_bytes": "2147483648"}, "message.max.bytes: '2147483648' is not allowed (Not a number"),
        (
            {"delete_topic_enable": "yes"},
            "delete.topic.enable: 'yes' is not allowed (Expected value to be either",
        ),
        (
            {"log_cleanup_policy": "compact,keep"},
            "log.cleanup.policy: 'compact,keep' is not allowed (String must",
        ),
        (
            {"compression_type": "brotli"},
            "compression.type: 'brotli' is not allowed"
            " (String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer)",
        ),
        ({"log_cleaner_min_cleanable_ratio": "1.5"}, "log.cleaner.min.cleanable.ratio: '1.5' is not allowed"),
        ({"log_retention_hours": "0"}, "log.retention.hours: Value must be -1 (unlimited) or at least 1"),
        ({"log_roll_ms": "0"}, "log.roll.ms: '0' is not allowed"),
        ({"broker_id": "-2"}, "broker.id: -2 is not between -1 and reserved.broker.max.id (1000)"),
        ({"broker_id": "2000"}, "broker.id: 2000 is not between -1 and"),
        ({"broker_id": "1", "node_id": "2"}, "node.id: is 2 while broker.id is 1; set only one of them"),
        (
            {"broker_id_generation_enable": "false"},
            "broker.id: is missing, and broker.id.generation.enable is false",
        ),
        ({"listeners": ""}, "listeners: is empty"),
        ({"listeners": "localhost:9092"}, "listeners: localhost:9092 is not of the form NAME://HOST:PORT"),
        (
            {"listeners": "PLAINTEXT://h:70000"},
            "listeners: PLAINTEXT://h:70000 has no port between 0 and 65535",
        ),
        (
            {"listeners": "SASL_SSL://h:1"},
            "sasl.enabled.mechanisms: GSSAPI, the default, is not built; set it to what the listener SASL_SSL offers",
        ),
        (
            {"listeners": "SASL_SSL://h:1", "sasl_enabled_mechanisms": "GSSAPI"},
            "sasl.enabled.mechanisms: GSSAPI is not built; set it to what the listener SASL_SSL offers",
        ),
        (
            {"listeners": "SASL_SSL://h:1", "sasl_enabled_mechanisms": ""},
            "sasl.enabled.mechanisms: is empty; set it to what the listener SASL_SSL offers: PLAIN, SCRAM-SHA-256",
        ),
        (
            {"listeners": "SASL_SSL://h:1", "sasl_enabled_mechanisms": "SCRAM-SHA-256,PLAIN"},
            "listener.name.sasl_ssl.plain.sasl.jaas.config: has no users; write org.apache.kafka.common",
        ),
        (
            {"sasl_jaas_config": "a required;"},
            "sasl.jaas.config: is for one listener and one mechanism: write listener.name.<listener>",
        ),
        (
            {"listener_name_plaintext_plain_sasl_jaas_config": "a required secret"},
            "listener.name.plaintext.plain.sasl.jaas.config: the value is not allowed (a login has the form",
        ),
        (
            {
                "listeners": "SASL_SSL://h:1",
                "sasl_enabled_mechanisms": "SCRAM-SHA-256",
                "zookeeper_connect": "h",
            },
            "sasl.mechanism.inter.broker.protocol: GSSAPI, the default, is not built; set it to one of PLAIN",
        ),
        (
            {
                "listeners": "SASL_SSL://h:1",
                "sasl_enabled_mechanisms": "SCRAM-SHA-256",
                "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256",
                "zookeeper_connect": "h",
            },
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config: needs the options username and password",
        ),
        (
            {"listeners": "X://h:1"},
            "listeners: X has no security protocol; add X:PLAINTEXT to listener.security",
        ),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://a:2"}, "listeners: PLAINTEXT occurs twice"),
        (
            {"listeners": "A://h:1,B://h:1", "listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT"},
            "listeners: two listeners have the same host and port",
        ),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "listeners: clients can't connect to 0.0.0.0"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "advertised.listeners: clients can't connect"),
        (
            {
                "advertised_listeners": "X://h:1",
                "listener_security_protocol_map": "X:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            },
            "advertised.listeners: X is not among the listeners PLAINTEXT",
        ),
        ({"listener_security_protocol_map": "A"}, "listener.security.protocol.map: A is not NAME:PROTOCOL"),
        (
            {"listener_security_protocol_map": "A:SSL,a:SSL"},
            "listener.security.protocol.map: a occurs twice",
        ),
        ({"inter_broker_listener_name": "X"}, "inter.broker.listener.name: X is not among the listeners"),
        ({"log_dirs": " , "}, "log.dirs: names no folder"),
        (
            {"queued_max_request_bytes": "5"},
            "queued.max.request.bytes: must be at least socket.request.max.bytes",
        ),
        ({"max_connections_per_ip": "0"}, "max.connections.per.ip: may be 0 only if"),
        (
            {"max_connections_per_ip_overrides": "a b:5"},
            "max.connections.per.ip.overrides: 'a b:5' is not allowed",
        ),
        *(
            (
                {"max_connections_per_ip_overrides": f"host:{count}"},
                f"max.connections.per.ip.overrides: 'host:{count}' is not allowed",
            )
            for count in ("\u00b2", "\u0663", "-1", "2147483648", "9" * 5000)
        ),
        (
            {"max_connections_per_ip_overrides": "host"},
            "max.connections.per.ip.overrides: 'host' is not allowed",
        ),
        (
            {"log_cleaner_dedupe_buffer_size": "1000"},
            "log.cleaner.dedupe.buffer.size: must be more than 1 MiB",
        ),
        ({"group_min_session_timeout_ms": "2000000"}, "group.min.session.timeout.ms: must not be more than"),
        ({"offsets_topic_compression_codec": "5"}, "offsets.topic.compression.codec: '5' is not allowed"),
        ({"process_roles": "broker,controller"}, "process.roles: There is no KRaft quorum"),
        ({"zookeeper_connect": "a:b:c"}, "zookeeper.connect: 'a:b:c' is not HOST:PORT; write host:port"),
        ({"zookeeper_connect": "a:1/x//y"}, "zookeeper.connect: '/x//y' is not a path in ZooKeeper"),
        (
            {"zookeeper_connect": "a", "zookeeper_ssl_keystore_type": "JKS"},
            "zookeeper.ssl.keystore.type: 'JKS' is not allowed (Ottla reads PEM files only; convert a JKS store:"
            " keytool -importkeystore",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_ssl_truststore_location": "/etc/trust.jks"},
            "zookeeper.ssl.truststore.location: /etc/trust.jks: Ottla reads PEM files only; convert a JKS store",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_ssl_truststore_password": "x"},
            "zookeeper.ssl.truststore.password: PEM files with certificates have no password",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_ssl_endpoint_identification_algorithm": "x"},
            "zookeeper.ssl.endpoint.identification.algorithm: 'x' is not allowed (String must be HTTPS or",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_digest_user": "x"},
            "zookeeper.digest.password: is missing",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_digest_password": "x"},
            "zookeeper.digest.user: is missing",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_digest_user": "x:y", "zookeeper_digest_password": "x"},
            "zookeeper.digest.user: must not be empty or contain a colon",
        ),
        ({"zookeeper_connect": "a", "zookeeper_sasl_user": "x"}, "zookeeper.sasl.password: is missing"),
        (
            {"zookeeper_connect": "a", "zookeeper_sasl_user": "", "zookeeper_sasl_password": "x"},
            "zookeeper.sasl.user: must not be empty",
        ),
        (
            {
                "zookeeper_connect": "a",
                "zookeeper_sasl_user": "x",
                "zookeeper_sasl_password": "y",
                "zookeeper_digest_user": "x",
                "zookeeper_digest_password": "y",
            },
            "zookeeper.sasl.user: can't be set together with zookeeper.digest.user",
        ),
        ({"zookeeper_connect": "a", "zookeeper_set_acl": "true"}, "zookeeper.set.acl: needs an owner"),
        (
            {
                "zookeeper_connect": "a",
                "zookeeper_set_acl": "true",
                "zookeeper_ssl_keystore_location": "/key.pem",
            },
            "zookeeper.set.acl: needs an owner",
        ),
        ({"zookeeper_max_in_flight_requests": "1000"}, "zookeeper.max.in.flight.requests: '1000' is not"),
        (
            {"zookeeper_ssl_crl_enable": "true"},
            "zookeeper.ssl.crl.enable: Connections to ZooKeeper use TLS 1.2",
        ),
        (
            {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"},
            "authorizer.class.name: 'org.apache.kafka.metadata.authorizer.StandardAuthorizer' is not allowed",
        ),
        ({"sasl_kerberos_service_name": "kafka"}, "sasl.kerberos.service.name: Kerberos is not built yet"),
        ({"ssl_keystore_type": "BCFKS"}, "ssl.keystore.type: 'BCFKS' is not allowed (String must be one of"),
        ({"ssl_provider": "SunJSSE"}, "ssl.provider: TLS is OpenSSL's"),
        ({"ssl_enabled_protocols": "TLSv1.1"}, "ssl.enabled.protocols: 'TLSv1.1' is not allowed"),
        (
            {"ssl_principal_mapping_rules": "RULE:a/b"},
            "ssl.principal.mapping.rules: 'RULE:a/b' is not allowed ('RULE:a/b' is not RULE:pattern",
        ),
        (
            {"security_inter_broker_protocol": "SSL"},
            "security.inter.broker.protocol: there is no listener named SSL; add one",
        ),
        (
            {"security_inter_broker_protocol": "PLAINTEXT", "inter_broker_listener_name": "PLAINTEXT"},
            "security.inter.broker.protocol: only one of it and inter.broker.listener.name can be set",
        ),
        (
            {"metric_reporters": "com.example.Reporter"},
            "metric.reporters: This broker can't load Java classes",
        ),
        ({"remote_log_storage_system_enable": "true"}, "remote.log.storage.system.enable: Tiered storage"),
        (
            {"group_coordinator_rebalance_protocols": "consumer"},
            "group.coordinator.rebalance.protocols: 'consumer' is not allowed (classic can't be left out)",
        ),
        (
            {"group_consumer_assignors": "best"},
            "group.consumer.assignors: 'best' is not allowed (there is no assignor best",
        ),
        (
            {"group_consumer_heartbeat_interval_ms": "1000"},
            "group.consumer.heartbeat.interval.ms: is 1000, and must be between",
        ),
        (
            {"group_consumer_migration_policy": "sideways"},
            "group.consumer.migration.policy: 'sideways' is not allowed",
        ),
        (
            {"group_share_heartbeat_interval_ms": "1"},
            "group.share.heartbeat.interval.ms: is 1, and must be between group.share.min.heartbeat.interval.ms (5000)",
        ),
        (
            {"listener_name_plaintext_num_network_threads": "5"},
            "listener.name.plaintext.num.network.threads: num.network.threads can't be set for a single listener",
        ),
        (
            {"listener_name_plaintext_ssl_keystor_location": "5"},
            "listener.name.plaintext.ssl.keystor.location: ssl.keystor.location can't be set for a single"
            " listener; did you mean ssl.keystore.location?",
        ),
        (
            {"listener_name_plaintext_ssl_client_auth": "yes"},
            "listener.name.plaintext.ssl.client.auth: 'yes' is not allowed (String must be one of",
        ),
        ({"config_providers": "file"}, "config.providers: config providers are not built"),
    ],
)
def test_an_error_is_one_line_with_source_and_key(settings: dict[str, str], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config(**settings)
    text = str(caught.value)
    assert text.startswith(("server.properties: ", "configuration: "))
    assert text.partition(": ")[2].startswith(line)
    assert "\n" not in text
    assert not ("must be one of" in text and "; allowed: " in text)


@pytest.mark.parametrize(
    ("settings", "warning"),
    [
        ({"nm_partitions": "3"}, "nm.partitions is not a known key; did you mean num.partitions?"),
        ({"entirely_different": "3"}, "entirely.different is not a known key"),
        (
            {"num_io_threads": "9"},
            "num.io.threads=9 has no effect: it tunes an internal part of Apache Kafka",
        ),
        (
            {"replica_fetch_max_bytes": "9"},
            "replica.fetch.max.bytes=9 has no effect on a standalone broker",
        ),
        (
            {"offsets_topic_replication_factor": "3"},
            "offsets.topic.replication.factor=3 is more than the number of brokers",
        ),
        (
            {"zookeeper_digest_password": "secret"},
            "zookeeper.digest.password has no effect on a standalone broker",
        ),
        (
            {"zookeeper_connect": "a", "zookeeper_ssl_truststore_location": "/trust.pem"},
            "zookeeper.ssl.truststore.location has no effect: zookeeper.ssl.client.enable is not true",
        ),
    ],
)
def test_a_setting_without_effect_is_a_warning(settings: dict[str, str], warning: str) -> None:
    warnings = config(**settings).warnings
    assert len(warnings) == 1
    assert warnings[0].startswith(warning)


def test_a_member_of_a_cluster() -> None:
    made = config(
        zookeeper_connect="zk1:2181,[::1]:2182/kafka",
        zookeeper_clientCnxnSocket="org.apache.zookeeper.ClientCnxnSocketNetty",
        zookeeper_ssl_client_enable="true",
        zookeeper_ssl_keystore_location="/key.pem",
        zookeeper_ssl_keystore_type="pem",
        zookeeper_ssl_endpoint_identification_algorithm="",
        zookeeper_set_acl="true",
        zookeeper_session_timeout_ms="9000",
        replica_fetch_max_bytes="9",
    )
    assert made.warnings == []
    assert made.zookeeper_connect == "zk1:2181,[::1]:2182/kafka"
    assert made.zookeeper_ssl_endpoint_identification_algorithm == ""
    assert (
        config(zookeeper_connect="a", zookeeper_digest_user="u", zookeeper_digest_password="p").warnings == []
    )


def test_an_empty_zookeeper_connect_is_none() -> None:
    assert config(zookeeper_connect="").zookeeper_connect is None
    assert config(zookeeper_connect=" ").zookeeper_connect is None


def test_a_setting_that_requests_nothing_gives_no_warning() -> None:
    made = config(
        zookeeper_connect="", security_inter_broker_protocol="PLAINTEXT", process_roles="", num_io_threads="8"
    )
    assert made.warnings == []


def test_broker_id_and_node_id_are_one() -> None:
    assert config(broker_id="5").node_id == 5
    assert config(node_id="6").broker_id == 6
    assert config(broker_id="7", node_id="7").broker_id_given
    assert config(reserved_broker_max_id="10").broker_id == 11
    made = config()
    made.use_broker_id(3)
    assert (made.broker_id, made.node_id) == (3, 3)


def test_listeners() -> None:
    made = BrokerConfig.from_properties(
        {
            "listeners": "INSIDE://:9092,outside://[::1]:0, EXTRA://0.0.0.0:9094",
            "advertised.listeners": "OUTSIDE://example.org:19093,EXTRA://10.0.0.1:9094",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,EXTRA:PLAINTEXT,TLS:SSL",
            "inter.broker.listener.name": "INSIDE",
            "allow.anonymous.network": "inside,EXTRA",
        },
        hostname=lambda: "machine",
    )
    inside, outside, extra = made.endpoints
    assert (inside.name, inside.host, inside.port, inside.advertised) == (
        "INSIDE",
        "",
        9092,
        "INSIDE://machine:9092",
    )
    assert (outside.host, outside.port, outside.advertised) == ("::1", 0, "OUTSIDE://example.org:19093")
    assert (extra.host, extra.advertised) == ("", "EXTRA://10.0.0.1:9094")
    assert outside.bound(5000).port == 5000
    assert outside.bound(5000).advertised_port == 19093
    free = config(listeners="PLAINTEXT://127.0.0.1:0").endpoints[0].bound(4000)
    assert (free.port, free.advertised) == (4000, "PLAINTEXT://127.0.0.1:4000")


_TLS = {"listeners": "SSL://:9093", "ssl.keystore.location": "/broker.pem"}
_SCRAM = {"listeners": "SASL_PLAINTEXT://:9093", "sasl.enabled.mechanisms": "SCRAM-SHA-512"}
_UNSIGNED = {
    **_SCRAM,
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.oauthbearer.sasl.server.callback.handler.class": UNSECURED_TOKENS,
}
_METRICS = {"metrics.listener": "0.0.0.0:9404"}


@pytest.mark.parametrize(
    ("settings", "open_ones"),
    [
        ({}, []),
        ({"listeners": "PLAINTEXT://127.9.9.9:1"}, []),
        ({"listeners": "PLAINTEXT://[::1]:1"}, []),
        ({"listeners": "PLAINTEXT://localhost:1", "metrics.listener": "9404"}, []),
        ({"listeners": "PLAINTEXT://:1"}, ["listeners: PLAINTEXT://:1"]),
        ({"listeners": "PLAINTEXT://[::]:1"}, ["listeners: PLAINTEXT://[::]:1"]),
        ({"listeners": "PLAINTEXT://localhost.example.org:1"}, ["listeners: PLAINTEXT://localhost.exa"]),
        (_TLS, ["listeners: SSL://:9093"]),
        ({**_TLS, "ssl.client.auth": "requested"}, ["listeners: SSL://:9093"]),
        ({**_TLS, "ssl.client.auth": "required"}, []),
        (
            {**_TLS, "ssl.client.auth": "required", "listener.name.ssl.ssl.client.auth": "none"},
            ["listeners: SSL://:9093"],
        ),
        ({**_TLS, "listener.name.ssl.ssl.client.auth": "required"}, []),
        (_SCRAM, []),
        (_UNSIGNED, ["listeners: SASL_PLAINTEXT://:9093"]),
        (_METRICS, ["metrics.listener: 0.0.0.0:9404"]),
        (
            {**_METRICS, "listeners": "PLAINTEXT://10.0.0.1:1"},
            ["listeners: PLAINTEXT://10.0.0.1:1", "metrics.listener: 0.0.0.0:9404"],
        ),
    ],
)
def test_an_open_listener_needs_consent(settings: dict[str, str], open_ones: list[str]) -> None:
    allowed = BrokerConfig.from_properties({**settings, "allow.anonymous.network": "true"})
    assert len(allowed.warnings) == len(open_ones)
    for line, start in zip(allowed.warnings, open_ones, strict=True):
        assert line.startswith(start)
        assert "is open to the network without a login" in line
    for refused in ({}, {"allow.anonymous.network": "false"}):
        if not open_ones:
            assert BrokerConfig.from_properties({**settings, **refused}).warnings == []
            continue
        with pytest.raises(
            ConfigError, match=r"or accept the risk with allow\.anonymous\.network=true"
        ) as error:
            BrokerConfig.from_properties({**settings, **refused})
        assert open_ones[0] in str(error.value)


def test_consent_names_listeners() -> None:
    names = {"PLAINTEXT": "listeners: PLAINTEXT", "metrics": "metrics.listener"}
    open_ones = {"listeners": "PLAINTEXT://10.0.0.1:1", **_METRICS}
    for name in names:
        with pytest.raises(ConfigError) as error:
            BrokerConfig.from_properties({**open_ones, "allow.anonymous.network": name})
        (other,) = names.keys() - {name}
        assert names[other] in str(error.value)
    for wrong in ("yes", "PLAINTEXT,false", "CLIENTS"):
        with pytest.raises(ConfigError, match="is not true, metrics, coordinator or the name of a listener"):
            BrokerConfig.from_properties({"allow.anonymous.network": wrong})


def test_folders() -> None:
    assert config(log_dir="/a").data_dirs == (Path("/a"),)
    assert config(log_dir="/a", log_dirs="/b, /c,/b").data_dirs == (Path("/b"), Path("/c"))


def test_overrides_of_connections() -> None:
    made = config(max_connections_per_ip="0", max_connections_per_ip_overrides="127.0.0.1 : 5, host:2")
    assert made.connection_limits == {"127.0.0.1": 5, "host": 2}


@pytest.mark.parametrize("given", [{}, {"max_connections_per_ip": "9"}])
def test_limits_that_would_let_no_one_connect_stay_out_of_force(given: dict[str, str]) -> None:
    made = config(**given)
    usual = made.max_connections_per_ip
    made.apply_dynamic({"max.connections.per.ip": "0", "message.max.bytes": "6000"}, {})
    assert (made.max_connections_per_ip, made.message_max_bytes) == (usual, 6000)
    made.apply_dynamic({"max.connections.per.ip": "0"}, {"max.connections.per.ip.overrides": "a:1"})
    assert (made.max_connections_per_ip, made.connection_limits) == (0, {"a": 1})
    made.apply_dynamic({"max.connections.per.ip": "0"}, {})
    assert (made.max_connections_per_ip, made.connection_limits) == (usual, {})


def test_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("num.partitions=3\nnum.network.threads=2\n")
    made = load_config(path, {"num.partitions": "7"})
    assert (made.num_partitions, made.num_network_threads) == (7, 2)
    with pytest.raises(ConfigError, match=r"^command line: num\.partitions: 'x'"):
        load_config(path, {"num.partitions": "x"})
    path.write_text("num.partitions=x\n")
    with pytest.raises(ConfigError, match=r"server\.properties: num\.partitions: 'x'"):
        load_config(path, {})
    assert load_config(None, {}).num_partitions == 1


def test_dynamic_settings_take_effect_and_revert() -> None:
    made = config(message_max_bytes="5000", max_connections_per_ip_overrides="a:1")
    made.apply_dynamic({"message.max.bytes": "6000", "log.retention.ms": "9"}, {"message.max.bytes": "7000"})
    assert made.message_max_bytes == 7000
    assert made.log_retention_ms == 9
    made.apply_dynamic({"message.max.bytes": "6000"}, {"max.connections.per.ip.overrides": "b:2"})
    assert made.message_max_bytes == 6000
    assert made.log_retention_ms is None
    assert made.connection_limits == {"b": 2}
    made.apply_dynamic({}, {})
    assert made.message_max_bytes == 5000
    assert made.connection_limits == {"a": 1}
    assert made.text("message.max.bytes") == "5000"


def test_settings_that_are_not_dynamic() -> None:
    made = config()
    made.check_dynamic({"log.retention.ms": "5", "max.connections": "9"})
    with pytest.raises(ValueError, match=r"Cannot update these configs dynamically: num\.partitions"):
        made.check_dynamic({"num.partitions": "5"})
    with pytest.raises(ValueError, match=r"Cannot update these configs dynamically: num\.io\.threads"):
        made.check_dynamic({"num.io.threads": "5"})
    with pytest.raises(ValueError, match=r"Unknown broker config name: foo"):
        made.check_dynamic({"foo": "5"})
    for changes in (
        {"message.max.bytes": "x"},
        {"log.retention.ms": "0"},
    ):
        with pytest.raises(InvalidValue):
            made.check_dynamic(changes)


PREFIX = "ottla.retention.policy."


def policies(**given: str) -> BrokerConfig:
    return BrokerConfig.from_properties(
        {PREFIX + name.replace("__", "."): value for name, value in given.items()}, "server.properties"
    )


def test_settings_of_retention_policies() -> None:
    made = policies(b__topics="x.*|y", b__count="3", b__deep__option="text", a__topics="z")
    assert made.warnings == []
    first, second = made.retention_policies
    assert (first.name, first.topics.pattern, first.options) == ("a", "z", {})
    assert (second.name, second.topics.pattern) == ("b", "x.*|y")
    assert second.options == {"count": "3", "deep.option": "text"}
    assert config().retention_policies == ()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"a__count": "3"},
            f"a.count: the policy has no topics; set {PREFIX}a.topics to a regular expression",
        ),
        ({"a__topics": "("}, "a.topics: '(' is not a regular expression (missing ), unterminated subpattern"),
        ({"a": "x"}, "a: is no setting of a policy; write ottla.retention.policy.NAME.topics=REGEX"),
        ({"a__": "x"}, "a.: is no setting of a policy"),
    ],
)
def test_settings_of_retention_policies_that_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        policies(**given)
    assert str(refused.value).startswith(f"server.properties: {PREFIX}{why}")


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a.B required user_x=\"y z\" n='1';", {"user_x": "y z", "n": "1"}),
        ('a.B REQUIRED  user_x = "a;b=\\"c\\"" ; ', {"user_x": 'a;b="c"'}),
        ("a.B optional\n  k=v;", {"k": "v"}),
        ("a.B required;", {}),
    ],
)
def test_logins(text: str, options: dict[str, str]) -> None:
    assert parse_login(text) == ("a.B", options)


@pytest.mark.parametrize(
    "text",
    ["", "a.B", "a.B required", "a.B needed;", "a required x;", "a required x=;", 'a required x="y;',
     "a required; b required;", "a required x==y;", "a required = x y;"],
)  # fmt: skip
def test_logins_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="login"):
        parse_login(text)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.properties").write_text("a=1\n# comment\nb=\\u12\n")
    for path, said in (
        ("missing.properties", r"missing\.properties: cannot be read \(No such file"),
        (".", r"cannot be read \(Is a directory"),
        ("x.properties", r"x\.properties: line 3: malformed \\uXXXX escape"),
    ):
        with pytest.raises(ConfigError, match=said):
            read_properties(tmp_path / path)
