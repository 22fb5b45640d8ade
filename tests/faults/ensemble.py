"""ZooKeeper as in production: three servers that vote, each in its own process."""

from __future__ import annotations

import contextlib
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

from harness.java import QUICK
from tests.faults.network import Session
from tests.support.processes import free_port
from tests.support.waiting import wait_for
from tests.support.zookeeper import _classpath, class_archive, java

_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_TICK_MS = 500

# Of the protocol between ZooKeeper and its clients: a new connection, and the request that ends a session.
_CONNECT = struct.Struct(">iiqiqi")
_CLOSE_SESSION = struct.pack(">iii", 8, 1, -11)


class _Server:
    """One server. Its data stays in the folder from one start to the next."""

    def __init__(self, folder: Path, number: int, port: int, peers: str) -> None:
        self.folder = folder
        self.port = port
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "data").mkdir(parents=True)
        (folder / "data" / "myid").write_text(f"{number}\n")
        (folder / "zoo.cfg").write_text(
            f"dataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={_TICK_MS}\ninitLimit=60\nsyncLimit=20\nmaxSessionTimeout=60000\nmaxClientCnxns=0\n"
            f"admin.enableServer=false\n4lw.commands.whitelist=srvr\n{peers}"
        )

    def spawn(self) -> None:
        with (self.folder / "log").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    java(),
                    "-Xmx128m",
                    *QUICK,
                    *class_archive(),
                    "-cp",
                    _classpath(),
                    _MAIN,
                    str(self.folder / "zoo.cfg"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )

    def mode(self) -> str:
        """``leader``, ``follower``, or empty while it isn't serving."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as sock:
                sock.settimeout(2)
                sock.sendall(b"srvr")
                answer = b""
                while data := sock.recv(4096):
                    answer += data
        except OSError:
            return ""
        _, found, rest = answer.decode(errors="replace").partition("Mode: ")
        return rest.split()[0] if found else ""

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()


class Ensemble:
    """Servers numbered from 1, with fixed ports."""

    def __init__(self, folder: Path, servers: int = 3) -> None:
        numbers = range(1, servers + 1)
        peers = "".join(f"server.{n}=127.0.0.1:{free_port()}:{free_port()}\n" for n in numbers)
        self.servers = {n: _Server(folder / f"zookeeper-{n}", n, free_port(), peers) for n in numbers}

    def start(self, timeout: float = 120.0) -> Ensemble:
        """Start the stopped servers, and wait until all serve."""
        for server in self.servers.values():
            if server.process is None:
                server.spawn()
        self.wait_serving(timeout)
        return self

    def wait_serving(self, timeout: float = 120.0) -> None:
        running = [server for server in self.servers.values() if server.process is not None]
        wait_for(lambda: all(server.mode() for server in running), "ZooKeeper to serve", timeout, 0.1)

    def leader(self) -> int:
        """The leading server, 0 for none."""
        return next((n for n, server in self.servers.items() if server.mode() in ("leader", "standalone")), 0)

    def kill(self, number: int | None = None) -> None:
        """Kill one server, or all, with SIGKILL; acknowledged changes are on disk."""
        for n, server in self.servers.items():
            if number in (None, n):
                server.kill()

    def signal(self, sign: signal.Signals) -> None:
        for server in self.servers.values():
            if server.process is not None:
                server.process.send_signal(sign)

    def expire(self, session: Session, timeout: float = 10.0) -> None:
        """End a client's session, as an operator may; its owner only learns that it has ended."""
        password = session.password
        hello = _CONNECT.pack(
            _CONNECT.size - 4 + len(password) + 1, 0, 0, 10_000, session.session_id, len(password)
        )
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for server in self.servers.values():
                with (
                    contextlib.suppress(OSError),
                    socket.create_connection(("127.0.0.1", server.port), 1) as sock,
                ):
                    sock.settimeout(2)
                    sock.sendall(hello + password + b"\0")
                    if not sock.recv(4096):
                        continue
                    sock.sendall(_CLOSE_SESSION)
                    # The answer, and the end of the connection.
                    while sock.recv(4096):
                        pass
                    return
            time.sleep(0.1)
        raise AssertionError("no ZooKeeper took the end of a session")
