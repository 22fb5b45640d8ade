"""A cluster whose brokers prove who they are: by certificates of both sides, by passwords, by tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from harness.ports import free_port
from tests.support.certificates import Certificates
from tests.support.cluster import Cluster
from tests.support.oauth import AUDIENCE, Provider
from tests.support.traffic import consume, create, produce
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from ottla_protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from ottla_protocol.sasl.scram import salt_password


def test_brokers_replicate_over_tls(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    cluster = new_cluster(
        brokers=2,
        settings={
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.location": certificates.server,
            "ssl.truststore.location": certificates.authority,
            "ssl.client.auth": "required",
            "offsets.topic.replication.factor": 2,
        },
        listeners=lambda port: {"listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://127.0.0.1:{free_port()}"},
    )
    create(cluster, "t", partitions=4, replicas=2)
    values = [f"value {number}" for number in range(200)]
    produce(cluster, "t", values)
    assert sorted(consume(cluster, "t", len(values))) == sorted(values)
    cluster.wait_in_sync("t", 2)
    # A follower that missed records catches up over TLS, too.
    cluster.brokers[2].stop()
    produce(cluster, "t", values)
    cluster.brokers[2].start()
    cluster.wait_in_sync("t", 2)


_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_brokers_log_in_at_each_other(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """By PLAIN over TLS, with sessions that end while the cluster is in use."""
    certificates = Certificates(tmp_path)
    cluster = new_cluster(
        brokers=2,
        settings={
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{_PLAIN} required"
            ' username="broker" password="secret" user_broker="secret";',
            "listener.name.sasl_ssl.connections.max.reauth.ms": 3000,
            "ssl.keystore.location": certificates.server,
            "ssl.truststore.location": certificates.authority,
        },
        listeners=lambda port: {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{free_port()}"
        },
    )
    create(cluster, "t", partitions=4, replicas=2)
    values = [f"value {number}" for number in range(100)]
    end = time.monotonic() + 7
    while time.monotonic() < end:
        produce(cluster, "t", values)
    cluster.wait_in_sync("t", 2)
    for broker in cluster.brokers.values():
        assert "session has expired" not in broker.log()
        assert "login failed" not in broker.log()
    # A password that one broker learns is the cluster's.
    controller = cluster.brokers[cluster.controller()]
    other = next(each for each in cluster.brokers.values() if each is not controller)
    salted = salt_password("SCRAM-SHA-256", "x", b"salt", 4096)
    change = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"salt", salted_password=salted
    )
    request = AlterUserScramCredentialsRequest(upsertions=[change])
    with Wire(other.port) as wire:
        assert wire.call(request, 0).results[0].error_code == ErrorCode.NOT_CONTROLLER
    with Wire(controller.port) as wire:
        assert wire.call(request, 0).results[0].error_code == 0

    def known() -> bool:
        with Wire(other.port) as wire:
            return [each.user for each in wire.call(DescribeUserScramCredentialsRequest(), 0).results] == [
                "alice"
            ]

    wait_for(known, "the other broker to know the password")


def test_brokers_log_in_with_tokens(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    """By OAUTHBEARER, with a token in a file that another program renews, and sessions of three seconds."""
    provider = Provider()
    keys, token = tmp_path / "keys.json", tmp_path / "token"
    keys.write_text(json.dumps(provider.jwks()))

    def write(lifetime: float) -> None:
        """At once, as a job that renews a token does."""
        (tmp_path / "new").write_text(provider.token("broker", lifetime))
        (tmp_path / "new").rename(token)

    write(3600)
    cluster = new_cluster(
        brokers=2,
        settings={
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "offsets.topic.replication.factor": 2,
            "sasl.oauthbearer.token.endpoint.url": token.as_uri(),
            "listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms": 3000,
        },
        listeners=lambda port: {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{free_port()}"
        },
    )
    create(cluster, "t", partitions=4, replicas=2)
    values = [f"value {number}" for number in range(100)]
    produce(cluster, "t", values)
    cluster.wait_in_sync("t", 2)
    # The next login of each connection is refused.
    write(-60)
    refusal = "the token is refused: it has expired (exp)"
    wait_for(lambda: all(refusal in broker.log() for broker in cluster.brokers.values()), "both to refuse it")
    write(3600)
    cluster.wait_in_sync("t", 2)
    produce(cluster, "t", values)
    assert sorted(consume(cluster, "t", 200)) == sorted(values * 2)
