"""What a broker imports before it accepts clients: each module takes start-up time and memory."""

from __future__ import annotations

import subprocess
import sys

NOT_YET = (
    "ottla_broker.cluster",
    "ottla_broker.coordinator.group",
    "ottla_broker.coordinator.push",
    "ottla_broker.coordinator.share",
    "ottla_broker.coordinator.transaction",
    "ottla_broker.metrics",
    "ottla_protocol.group_lag",
    "ottla_protocol.records.columns",
    "ottla_protocol.sasl.oauthbearer",
    "ottla_protocol.sasl.scram",
    "structlog",
)


def test_a_broker_is_imported_without_what_most_starts_do_not_need() -> None:
    program = "import sys, ottla_broker.server; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = [name for name in ran.stdout.split() if name.startswith(NOT_YET)]
    assert not loaded, "import these where they are first needed"
