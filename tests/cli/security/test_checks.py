"""What `ottla security check` makes of what it has seen."""

from __future__ import annotations

import ssl
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.certificates import Certificates

from ottla_cli.security.certificates import Validity, read_validity
from ottla_cli.security.checks import Seen, findings_of, listeners_of
from ottla_cli.security.probe import Probe
from ottla_cli.shared.findings import NOTE, WARNING, Finding, report
from ottla_client.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    ResourcePattern,
)

_NOW = datetime(2026, 11, 23, tzinfo=UTC)
_MAP = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"
SECURE = {
    "listeners": "SASL_SSL://:9093",
    "advertised.listeners": "SASL_SSL://kafka-1:9093",
    "listener.security.protocol.map": _MAP,
    "security.inter.broker.protocol": "SASL_SSL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
    "ssl.endpoint.identification.algorithm": "https",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "false",
    "max.connections.per.ip": "100",
    "zookeeper.connect": "zk:2182",
    "zookeeper.set.acl": "true",
    "zookeeper.ssl.client.enable": "true",
}


def seen(settings: dict[str, str], probe: Probe | None = None) -> Seen:
    settings = {**SECURE, **settings}
    found = Seen(_NOW, {"1": settings}, listeners_of("1", settings), acls=[])
    if probe is not None:
        found.probes = {(each.host, each.port): probe for each in found.listeners}
    return found


def checks(found: Seen) -> set[tuple[str, str]]:
    return {(each.severity, each.check) for each in findings_of(found)}


_ALWAYS = ("note", "super-users")
_CLIENT_CERTIFICATES = {"ssl.client.auth": "required", "ssl.truststore.location": "/ca.pem"}
_SSL = {"listeners": "SSL://:9093", "advertised.listeners": "", "security.inter.broker.protocol": "SSL"}
_PLAIN = {
    "listeners": "PLAINTEXT://:9092",
    "advertised.listeners": "",
    "security.inter.broker.protocol": "PLAINTEXT",
}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, set()),
        ({**_SSL, **_CLIENT_CERTIFICATES}, set()),
        ({**_SSL, "ssl.client.auth": "required"}, {("warning", "no-truststore")}),
        ({**_SSL}, {("warning", "anonymous-listener"), ("critical", "inter-broker")}),
        (
            {**_PLAIN, "authorizer.class.name": ""},
            {
                ("critical", "anonymous-listener"),
                ("critical", "inter-broker"),
                ("warning", "plaintext-listener"),
                ("warning", "no-access-control"),
            },
        ),
        (
            {**_PLAIN, "listeners": "PLAINTEXT://127.0.0.1:9092", "authorizer.class.name": ""},
            {("note", "anonymous-listener"), ("note", "no-access-control")},
        ),
        (
            {"listener.name.sasl_ssl.sasl.enabled.mechanisms": "OAUTHBEARER"},
            {("critical", "unsecured-tokens")},
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "file:///keys",
                "listener.name.sasl_ssl.oauthbearer.sasl.server.callback.handler.class": "a.UnsecuredHandler",
            },
            {("critical", "unsecured-tokens")},
        ),
        (
            {
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": "https://login.example.org/keys",
            },
            set(),
        ),
        (
            {
                "listeners": "SASL_PLAINTEXT://:9092",
                "security.inter.broker.protocol": "SASL_PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
            },
            {("critical", "plain-passwords"), ("warning", "inter-broker")},
        ),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, {("warning", "old-tls")}),
        ({"ssl.endpoint.identification.algorithm": ""}, {("warning", "host-names-unchecked")}),
        ({"allow.everyone.if.no.acl.found": "true"}, {("warning", "allow-everyone")}),
        ({"super.users": "User:ANONYMOUS"}, {("critical", "anonymous-super-user")}),
        ({"zookeeper.set.acl": "false"}, {("warning", "zookeeper-open")}),
        (
            {"zookeeper.connect": "127.0.0.1:2181/kafka", "zookeeper.set.acl": "false"},
            {("note", "zookeeper-open")},
        ),
        ({"zookeeper.ssl.client.enable": "false"}, {("warning", "zookeeper-plaintext")}),
        ({"metrics.listener": "0.0.0.0:9404"}, {("warning", "metrics-open")}),
        ({"metrics.listener": "9404"}, set()),
        ({"max.connections.per.ip": str(2**31 - 1)}, {("note", "no-connection-limits")}),
    ],
)
def test_settings(settings: dict[str, str], expected: set[tuple[str, str]]) -> None:
    assert checks(seen(settings)) - {_ALWAYS} == expected


@pytest.mark.parametrize(
    ("severities", "unchecked", "verdict"),
    [([], [], True), ([NOTE], [], True), ([WARNING], ["x"], False), ([], ["x"], None), ([NOTE], ["x"], None)],
)
def test_the_verdict_in_json(severities: list[str], unchecked: list[str], verdict: bool | None) -> None:
    said: list[dict[str, object]] = []
    console = SimpleNamespace(as_json=True, emit=said.append)
    found = [Finding(severity, "a", "b", "c", "d") for severity in severities]
    with pytest.raises(SystemExit) if verdict is False else nullcontext():
        report(console, found, unchecked, verdict="secure", looked={}, nothing="")  # type: ignore[arg-type]
    assert [each["secure"] for each in said] == [verdict]


def test_many_super_users_are_a_warning() -> None:
    assert checks(seen({"super.users": ";".join(f"User:u{n}" for n in range(6))})) == {
        ("warning", "super-users")
    }


def _valid(days: float, begins: float = -10) -> Probe:
    return Probe(certificate=Validity(_NOW + timedelta(days=begins), _NOW + timedelta(days=days)))


@pytest.mark.parametrize(
    ("probe", "expected"),
    [
        (_valid(300), set()),
        (_valid(20), {("warning", "certificate-expires-soon")}),
        (_valid(-1), {("critical", "certificate-expired")}),
        (_valid(300, 1), {("critical", "certificate-not-yet-valid")}),
        (Probe(untrusted="certificate has expired"), {("warning", "certificate-untrusted")}),
        (Probe(old_versions=["TLSv1"]), {("warning", "old-tls")}),
        (Probe(guessed=[("PLAIN", "admin")]), {("critical", "default-password")}),
        (Probe(anonymous=True), {("warning", "anonymous-listener")}),
    ],
)
def test_probes(probe: Probe, expected: set[tuple[str, str]]) -> None:
    assert checks(seen({}, probe)) - {_ALWAYS} == expected


@pytest.mark.parametrize(
    ("principal", "operation", "permission", "severity"),
    [
        ("User:*", AclOperation.READ, AclPermission.ALLOW, "warning"),
        ("User:*", AclOperation.ALL, AclPermission.ALLOW, "critical"),
        ("User:ANONYMOUS", AclOperation.DESCRIBE, AclPermission.ALLOW, "warning"),
        ("User:*", AclOperation.DESCRIBE, AclPermission.ALLOW, None),
        ("User:*", AclOperation.ALL, AclPermission.DENY, None),
        ("User:alice", AclOperation.ALL, AclPermission.ALLOW, None),
    ],
)
def test_acls_for_everyone(
    principal: str, operation: AclOperation, permission: AclPermission, severity: str | None
) -> None:
    pattern = ResourcePattern(AclResource.TOPIC, "*")
    found = seen({})
    found.acls = [AclBinding(pattern, AclEntry(principal, "*", operation, permission))]
    expected = set() if severity is None else {(severity, "acl-for-everyone")}
    assert checks(found) - {_ALWAYS} == expected


def test_listeners_with_names_and_ipv6() -> None:
    (inside, outside) = listeners_of(
        "1",
        {
            "listeners": "inside://[::1]:9092,OUTSIDE://0.0.0.0:9093",
            "advertised.listeners": "OUTSIDE://kafka.example.org:19093",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SSL",
            "listener.name.outside.ssl.client.auth": "required",
        },
    )
    assert (inside.protocol, inside.local, inside.host, inside.port) == ("PLAINTEXT", True, "::1", 9092)
    assert (outside.protocol, outside.local, outside.host, outside.port) == (
        "SSL",
        False,
        "kafka.example.org",
        19093,
    )
    assert outside.proves
    assert not replace(outside, settings={}).proves


def test_the_dates_of_a_certificate(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    for name in ("ours", "server"):
        pem = (tmp_path / f"{name}.crt").read_text()
        found = read_validity(ssl.PEM_cert_to_DER_cert(pem))
        assert found.ends - found.begins == timedelta(days=2)
    context = ssl.create_default_context(cafile=made.authority)
    (shown,) = context.get_ca_certs()
    begins = str(shown["notBefore"])
    assert read_validity(
        context.get_ca_certs(binary_form=True)[0]
    ).begins.timestamp() == ssl.cert_time_to_seconds(begins)


@given(st.binary(max_size=80))
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason will do
        read_validity(data)
