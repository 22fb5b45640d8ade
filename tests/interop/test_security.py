"""Java's clients over TLS with each login, and Kafka's tools, which set passwords and change certificates."""

from __future__ import annotations

import re
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
from harness import maven
from tests.interop.conftest import jars_of, java_tools
from tests.interop.secured import Secured
from tests.interop.support import PROGRAMS, Java, needed, run


@pytest.fixture(scope="module")
def tools(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Java:
    return java_tools(secured.broker.bootstrap, maven.KAFKA_VERSION, tmp_path_factory.mktemp("log4j"))


@pytest.fixture(scope="module")
def logins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled for the oldest version."""
    folder, libs = tmp_path_factory.mktemp("classes"), jars_of("2.8.2")
    run([needed("javac"), "-cp", f"{libs}/*", "-d", str(folder), str(PROGRAMS / "Logins.java")])
    return folder


@pytest.mark.parametrize("version", ["2.8.2", maven.KAFKA_VERSION, maven.KAFKA_4_VERSION])
def test_java_clients_log_in_by_each_mechanism(
    secured: Secured, logins: Path, version: str, tmp_path: Path
) -> None:
    java = java_tools(secured.broker.bootstrap, version, tmp_path)
    output = run(java.command("Logins", f"java-{version}", *secured.java_logins(version), classes=logins))
    assert output.splitlines()[-1] == "ok"


def test_kafka_configs_sets_passwords_that_java_clients_log_in_with(
    secured: Secured, tools: Java, logins: Path
) -> None:
    entity = ("--entity-type", "users", "--entity-name", "dave")
    both = "SCRAM-SHA-256=[iterations=4096,password=a-secret],SCRAM-SHA-512=[password=another]"
    tools.tool("configs", "--alter", *entity, "--add-config", both)
    described = tools.tool("configs", "--describe", *entity)
    assert "SCRAM-SHA-256=iterations=4096, SCRAM-SHA-512=iterations=4096" in described
    by_either = [
        *(secured.sasl, secured.login("SCRAM-SHA-256", "dave", "a-secret")),
        *(secured.sasl, secured.login("SCRAM-SHA-512", "dave", "another")),
    ]
    assert run(tools.command("Logins", "configs", *by_either, classes=logins)).splitlines()[-1] == "ok"
    tools.tool("configs", "--alter", *entity, "--delete-config", "SCRAM-SHA-512")
    assert "SCRAM-SHA-512" not in tools.tool("configs", "--describe", *entity)


def test_java_clients_log_in_with_delegation_tokens(secured: Secured, tools: Java, logins: Path) -> None:
    """As kafka-delegation-tokens makes them."""
    there = replace(tools, address=secured.sasl)
    user = ("--command-config", secured.login("PLAIN", "bob", "bobs"))
    made = there.tool("delegation-tokens", "--create", "--max-life-time-period", "-1", *user)
    found = re.search(r"(\S{22})\s+(\S{86}==)\s+User:bob", made)
    assert found is not None, made
    token_id, hmac = found.groups()
    by_token = secured.login("SCRAM-SHA-256", token_id, hmac, ' tokenauth="true"')
    output = run(tools.command("Logins", "token", secured.sasl, by_token, classes=logins))
    assert output.splitlines()[-1] == "ok"
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
