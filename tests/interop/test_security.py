"""Kafka's own tools over TLS and SASL: they set passwords, log in with them, and change certificates."""

from __future__ import annotations

import re
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness import maven
from harness.ports import free_port
from tests.interop.conftest import java_tools
from tests.interop.support import Java
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess

_LOGINS = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


class Secured:
    """A broker with a listener for administration, one with TLS and SASL, one that wants client certificates."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self.folder = folder
        self.certificates = certificates
        self.keystore = folder / "keystore.pem"
        shutil.copy(certificates.server, self.keystore)
        self.sasl, self.mutual = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.broker = BrokerProcess(
            folder / "data",
            {
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,MUTUAL:SSL",
                "ssl.keystore.location": self.keystore,
                "ssl.truststore.location": certificates.authority,
                "sasl.enabled.mechanisms": ",".join(_LOGINS),
                "listener.name.sasl.plain.sasl.jaas.config": f'{_LOGINS["PLAIN"]} required user_bob="bobs";',
                "listener.name.sasl.scram-sha-256.connections.max.reauth.ms": 1500,
                "listener.name.mutual.ssl.client.auth": "required",
                "delegation.token.secret.key": "a secret",
                "group.initial.rebalance.delay.ms": 0,
            },
        )
        self.broker.settings["listeners"] = (
            f"PLAINTEXT://{self.broker.bootstrap},SASL://{self.sasl},MUTUAL://{self.mutual}"
        )

    def options(self, name: str, lines: dict[str, str]) -> str:
        """A properties file of a client."""
        path = self.folder / f"{name}.properties"
        trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.certificates.authority}
        path.write_text("".join(f"{key}={value}\n" for key, value in {**trusted, **lines}.items()))
        return str(path)

    def login(self, mechanism: str, user: str, password: str) -> str:
        module = f'{_LOGINS[mechanism]} required username="{user}" password="{password}";'
        given = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": module}
        return self.options(f"{mechanism}-{user}", given)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"), Certificates(tmp_path_factory.mktemp("certificates")))
    with made.broker:
        yield made
        assert made.broker.complaints() == []


@pytest.fixture(scope="module")
def tools(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return java_tools(secured.broker.bootstrap, maven.KAFKA_VERSION, tmp_path_factory.mktemp("log4j"))


def round_trip(tools: Java, address: str, options: str, topic: str) -> None:
    there = replace(tools, address=address)
    lines = [f"value {number}" for number in range(50)]
    there.produce(topic, lines, "--producer.config", options)
    assert there.consume(topic, len(lines), "--consumer.config", options) == lines


def test_kafka_configs_sets_passwords_that_java_clients_log_in_with(secured: Secured, tools: Java) -> None:
    entity = ("--entity-type", "users", "--entity-name", "alice")
    both = "SCRAM-SHA-256=[iterations=4096,password=a-secret],SCRAM-SHA-512=[password=another]"
    tools.tool("configs", "--alter", *entity, "--add-config", both)
    described = tools.tool("configs", "--describe", *entity)
    assert "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096" in described
    round_trip(tools, secured.sasl, secured.login("SCRAM-SHA-256", "alice", "a-secret"), "scram-256")
    round_trip(tools, secured.sasl, secured.login("SCRAM-SHA-512", "alice", "another"), "scram-512")
    tools.tool("configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in tools.tool("configs", "--describe", *entity)


def test_java_clients_with_plain_and_with_certificates(secured: Secured, tools: Java) -> None:
    round_trip(tools, secured.sasl, secured.login("PLAIN", "bob", "bobs"), "plain")
    given = {
        "security.protocol": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": secured.certificates.broker,
    }
    round_trip(tools, secured.mutual, secured.options("mutual", given), "mutual")


def test_java_clients_log_in_with_delegation_tokens(secured: Secured, tools: Java) -> None:
    """As kafka-delegation-tokens makes them."""
    there = replace(tools, address=secured.sasl)
    user = ("--command-config", secured.login("PLAIN", "bob", "bobs"))
    made = there.tool("delegation-tokens", "--create", "--max-life-time-period", "-1", *user)
    found = re.search(r"(\S{22})\s+(\S{86}==)\s+User:bob", made)
    assert found is not None, made
    token_id, hmac = found.groups()
    module = f'{_LOGINS["SCRAM-SHA-256"]} required username="{token_id}" password="{hmac}" tokenauth="true";'
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": module}
    round_trip(tools, secured.sasl, secured.options("token", given), "by-token")
    there.tool("delegation-tokens", "--expire", "--expiry-time-period", "-1", "--hmac", hmac, *user)


def test_java_clients_log_in_again(secured: Secured, tools: Java) -> None:
    """Over sessions of 1.5 seconds: the records take 5."""
    entity = ("--entity-type", "users", "--entity-name", "carol")
    tools.tool("configs", "--alter", *entity, "--add-config", "SCRAM-SHA-256=[password=carols]")
    options = secured.login("SCRAM-SHA-256", "carol", "carols")
    there = replace(tools, address=secured.sasl)
    slowly = ("--max-messages", "100", "--throughput", "20", "--topic", "again", "--producer.config", options)
    out = there.tool("verifiable-producer", *slowly)
    assert '"acked":100' in out.replace(" ", "")


def test_kafka_configs_changes_certificates(secured: Secured, tools: Java) -> None:
    def served() -> str:
        trusting = secured.certificates.shown(None)
        trusting.check_hostname = False
        where = secured.sasl.partition(":")
        with (
            socket.create_connection((where[0], int(where[2])), 60) as plain,
            trusting.wrap_socket(plain) as tls,
        ):
            found = tls.getpeercert()
        assert found is not None
        return str(found["subject"])

    assert "'server'" in served()
    shutil.copy(secured.certificates.broker, secured.keystore)
    name = "listener.name.sasl.ssl.keystore.location"
    entity = ("--entity-type", "brokers", "--entity-name", "1001")
    tools.tool("configs", "--alter", *entity, "--add-config", f"{name}={secured.keystore}")
    assert "'broker'" in served()
    tools.tool("configs", "--alter", *entity, "--delete-config", name)
    shutil.copy(secured.certificates.server, secured.keystore)
