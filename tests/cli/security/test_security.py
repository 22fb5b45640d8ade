"""`ottla security`: what is open on a broker of either kind, certificates for trials, passwords."""

from __future__ import annotations

import json
import ssl
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.cli.ottla_command import Ottla
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client.errors import BrokerError, ConfigurationError
from ottla_client.sync import Admin
from ottla_protocol.errors import ErrorCode


def test_an_open_broker_that_only_this_machine_reaches(broker: BrokerProcess) -> None:
    done = Ottla(broker.bootstrap).run("security", "check", "--json")
    found = json.loads(done.stdout)
    named = {(each["severity"], each["check"]) for each in found["findings"]}
    assert named >= {("note", "anonymous-listener"), ("note", "no-access-control")}
    assert {severity for severity, _ in named} == {"note"}, found["findings"]
    assert (done.exit_code, found["secure"], found["brokers"]) == (0, True, 1)


def test_certificates_for_trials(tmp_path: Path) -> None:
    ottla, folder = Ottla("127.0.0.1:1"), tmp_path / "secure"
    wanted = ("security", "init", str(folder), "--broker", "one, localhost,127.0.0.1", "--broker", "two")
    made = ottla(*wanted, "--clients-at", "one:9092,two:9092").split()
    assert {Path(name).name for name in made} == {path.name for path in folder.iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    options = dict(line.split("=", 1) for line in (folder / "admin.properties").read_text().splitlines())
    assert options["bootstrap.servers"] == "one:9092,two:9092"
    assert options["ssl.ca.location"] == str(folder / "ca.pem")
    shown = ssl.create_default_context(cafile=folder / "ca.pem")
    shown.load_cert_chain(folder / "admin.pem")
    for name, hosts in (("one", {"one", "localhost"}), ("two", {"two"})):
        serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=folder / "ca.pem")
        serving.verify_mode = ssl.CERT_REQUIRED
        serving.load_cert_chain(folder / f"{name}.pem")
        for host in hosts:
            assert handshake(serving, shown, host) == "admin"
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(serving, shown, "three")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert "has these files already" in ottla.run(*wanted).stderr
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    for wrong in ("", "a/b,localhost", "admin", "\x00"):
        assert "--broker" in ottla.fails("security", "init", str(tmp_path / "x"), "--broker", wrong, code=2)
    (tmp_path / "file").write_text("")
    assert "file" in ottla.fails("security", "init", str(tmp_path / "file" / "below"))


def handshake(serving: ssl.SSLContext, shown: ssl.SSLContext, host: str) -> str:
    """Connect in memory; returns the client's name as the server sees it."""
    pipes = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = serving.wrap_bio(pipes[0], pipes[1], server_side=True)
    client = shown.wrap_bio(pipes[1], pipes[0], server_hostname=host)
    for _ in range(2):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
    found: Any = server.getpeercert()
    return str(dict(pair for part in found["subject"] for pair in part)["commonName"])


def test_passwords(broker: BrokerProcess, tmp_path: Path) -> None:
    ottla = Ottla(broker.bootstrap)
    said = ottla("security", "password", "zoë", "--password-file", "-", stdin="zoës secret\nrest\n")
    assert said == "zoë can log in by SCRAM-SHA-512\n"
    (tmp_path / "password").write_text("another")
    other = ("--mechanism", "SCRAM-SHA-256", "--password-file", str(tmp_path / "password"))
    ottla("security", "password", "zoë", *other)
    with Admin(broker.bootstrap) as admin:
        wait_for(lambda: len(admin.list_passwords().get("zoë", {})) == 2, "both mechanisms")
        assert admin.list_passwords()["zoë"] == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            ottla("security", "password", "zoë", "--remove", "--mechanism", mechanism)
        wait_for(lambda: "zoë" not in admin.list_passwords(), "none")
        with pytest.raises(BrokerError) as caught:
            admin.set_password("zoë", "x", iterations=1)
        assert caught.value.code == ErrorCode.UNACCEPTABLE_CREDENTIAL
        with pytest.raises(BrokerError) as caught:
            admin.delete_password("zoë")
        assert caught.value.code == ErrorCode.RESOURCE_NOT_FOUND
        with pytest.raises(ConfigurationError, match="SCRAM-SHA-1"):
            admin.set_password("zoë", "x", mechanism="SCRAM-SHA-1")
    assert "empty" in ottla.fails("security", "password", "zoë", "--password-file", "-", stdin="\n", code=2)
