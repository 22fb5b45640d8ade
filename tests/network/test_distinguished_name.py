"""Distinguished names as Java writes them, and the rules that make user names of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.config.principal_mapping import parse_rules, user_name
from ottla_broker.network.distinguished_name import subject_of


def certificate(folder: Path, subject: str) -> bytes:
    out = folder / "made.der"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-utf8", "-multivalue-rdn", "-keyout", str(folder / "key"), "-outform", "DER"),
            *("-out", str(out), "-subj", subject),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return out.read_bytes()


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (
            "/C=DE/ST=Hessen/L=Frankfurt/O=Ottla/OU=Dev/CN=broker-1",
            "CN=broker-1,OU=Dev,O=Ottla,L=Frankfurt,ST=Hessen,C=DE",
        ),
        ("/DC=org/DC=example/UID=u1/CN=a b", "CN=a b,UID=u1,DC=example,DC=org"),
        ("/O=a, b#c/CN=Zürich", "CN=Zürich,O=a\\, b\\#c"),
        ("/CN= x ", "CN=\\ x\\ "),
        ("/CN=a+OU=b", "CN=a+OU=b"),
        # No keyword in RFC 2253: the type as numbers, the value in DER.
        ("/CN=x/emailAddress=a@b", "1.2.840.113549.1.9.1=#1603614062,CN=x"),
    ],
)
def test_subjects(tmp_path: Path, subject: str, expected: str) -> None:
    assert subject_of(certificate(tmp_path, subject)) == expected


@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        subject_of(data)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # From Kafka's SslPrincipalMapperTest.
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
        ("CN=duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@SME"),
        ("cn=duke,ou=sme,o=mycp,l=fulton,st=md,c=us", "DUKE@SME"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_rules(name: str, expected: str) -> None:
    rules = (
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
        " RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/,"
        " RULE:^cn=(.*?),ou=(.*?),.*$/$1@$2/U,"
        " DEFAULT"
    )
    assert user_name(rules, name) == expected


def test_a_name_that_no_rule_matches() -> None:
    with pytest.raises(ValueError, match=r"no rule of ssl.principal.mapping.rules matches 'CN=x'"):
        user_name("RULE:^OU=(.*)$/$1/L", "CN=x")


@pytest.mark.parametrize("rules", ["default", "DEFAUL", "DEFAULTL", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/"])
def test_rules_that_are_wrong(rules: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_rules(rules)
