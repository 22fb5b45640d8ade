"""`ottla security check` on a broker with an open and a secured listener."""

from __future__ import annotations

import json
from pathlib import Path

from harness.ports import free_port
from tests.cli.ottla_command import Ottla
from tests.support.certificates import Certificates
from tests.support.processes import BrokerProcess


def test_a_broker_is_tried_as_a_stranger_would(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    local, clients, mutual = free_port(), free_port(), free_port()
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    broker = BrokerProcess(tmp_path / "data", port=local)
    broker.settings = {
        "listeners": f"LOCAL://127.0.0.1:{local},CLIENTS://127.0.0.1:{clients},MUTUAL://127.0.0.1:{mutual}",
        "listener.security.protocol.map": "LOCAL:PLAINTEXT,CLIENTS:SASL_SSL,MUTUAL:SSL",
        "ssl.keystore.location": certificates.server,
        "ssl.truststore.location": certificates.authority,
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": f'{plain} user_admin="admin-secret" user_root="8a7f";',
    }
    with broker:
        ottla = Ottla(f"127.0.0.1:{local}")
        done = ottla.run("security", "check", "--json")
        assert done.exit_code == 1, done.output
        found = json.loads(done.stdout)
        assert (found["secure"], found["brokers"], found["listeners"]) == (False, 1, 3)
        assert found["unchecked"] == []
        named = {(each["check"], each["subject"].rpartition(" ")[2]) for each in found["findings"]}
        assert named == {
            ("default-password", "CLIENTS"),
            ("certificate-expires-soon", "CLIENTS"),
            ("certificate-expires-soon", "MUTUAL"),
            ("anonymous-listener", "LOCAL"),
            ("no-access-control", "1001"),
            ("no-connection-limits", "1001"),
        }
        assert all(each["action"] for each in found["findings"])
        secured = Ottla(f"127.0.0.1:{clients}")
        login = ["security_protocol=SASL_SSL", "sasl_mechanism=PLAIN", "sasl_plain_username=root"]
        login += ["sasl_plain_password=8a7f", f"ssl_cafile={certificates.authority}"]
        options = [part for each in login for part in ("-X", each)]
        text = secured.run("security", "check", "--no-passwords", *options).stdout
        assert "admin logs in by PLAIN" not in text
        assert "not trusted" not in text
        assert text.rstrip().endswith("2 warnings, 3 notes (1 broker, 3 listeners)")
        # The doctor shakes hands as well.
        done = ottla.run("cluster", "doctor", "--interval", "0", "--json")
        soon = [
            each["subject"].rpartition(" ")[2]
            for each in json.loads(done.stdout)["findings"]
            if each["check"] == "certificate-expires-soon"
        ]
        assert soon == ["CLIENTS", "MUTUAL"]
