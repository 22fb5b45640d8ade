"""`make secure-cluster`'s program, and the commands of docs/security.md on it."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

from harness.ports import free_port
from tests.cluster.test_make_cluster import free_ports
from tests.docs.pages import ROOT, marked
from tests.support.zookeeper import java

_PAGE = ROOT / "docs" / "security.md"


def test_a_secured_cluster(tmp_path: Path) -> None:
    java()
    ports = (free_ports(2), free_ports(2))
    folder = tmp_path / "ottla-secure-cluster"
    arguments = ["--data", folder, "--port", ports[0], "--inside-port", ports[1], "--brokers", 2]
    arguments += ["--zookeeper-port", free_port(), "--secure", "--console-port", 0]
    command = [sys.executable, "-m", "bench.local", *map(str, arguments)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as cluster:
        try:
            assert cluster.stdout is not None
            said = next((line for line in cluster.stdout if line.startswith("the cluster serves at")), "")
            assert said, cluster.communicate(timeout=60)[1]
            for name in ("ca.key", "admin.pem", "broker.pem", "admin.properties"):
                assert stat.S_IMODE((folder / "secure" / name).stat().st_mode) == 0o600
            _follow_the_page(tmp_path)
            _stay_outside(ports[1])
            cluster.send_signal(signal.SIGINT)
            _, errors = cluster.communicate(timeout=120)
            assert (cluster.returncode, errors) == (0, "")
        finally:
            cluster.kill()


def _follow_the_page(folder: Path) -> None:
    (folder / "add_alice.py").write_text(marked(_PAGE, "file")["add_alice.py"])
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e"],
        input=marked(_PAGE, "run")["cluster"],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hello" in done.stdout.splitlines()
    assert "(2 brokers, 4 listeners)" in done.stdout.splitlines()[-1]
    secure = folder / "ottla-secure-cluster/secure"
    assert stat.S_IMODE((secure / "alice.properties").stat().st_mode) == 0o600
    by_certificate = subprocess.run(
        [*(sys.executable, "-m", "ottla_cli", "topics", "list"),
         *("--command-config", secure / "admin-tls.properties")],
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert "orders" in by_certificate.stdout, by_certificate.stderr
    denied = subprocess.run(
        [*(sys.executable, "-m", "ottla_cli", "topics", "delete", "orders", "--yes"),
         *("--command-config", secure / "alice.properties")],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    assert (denied.returncode, "TOPIC_AUTHORIZATION_FAILED" in denied.stderr) == (1, True), denied.stderr


def _stay_outside(port: int) -> None:
    """Without a certificate, the brokers' listener answers nothing, not even which APIs it serves."""
    with socket.create_connection(("127.0.0.1", port), 60) as stranger:
        stranger.settimeout(60)
        stranger.sendall(bytes.fromhex("0000000c 0012 0000 00000001 0002 6161"))
        try:
            answer = stranger.recv(100)
        except ConnectionResetError:
            answer = b""
    assert answer[:1] in (b"", b"\x15"), "an alert of TLS at most"
