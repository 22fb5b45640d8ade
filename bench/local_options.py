"""The options of ``make cluster`` and ``make secure-cluster``, and whether their ports are free.

It needs no packages, so make runs it before it installs them, which takes minutes.
"""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.java import Unavailable
from harness.zookeeper import HOST

_INSIDE_PORT: Final = 9192
_CONSOLE_PORT: Final = 8080


class Options(argparse.Namespace):
    """The options of one run."""

    data: Path
    brokers: int
    port: int
    zookeeper_port: int
    secure: bool
    inside_port: int
    console_port: int

    @property
    def target(self) -> str:
        return "make secure-cluster" if self.secure else "make cluster"

    @property
    def ports(self) -> list[int]:
        """The ports of clients, of broker 1 and those after it."""
        return [self.port + number for number in range(self.brokers)]

    @property
    def inside_ports(self) -> list[int]:
        """The ports of brokers for each other; none without ``--secure``."""
        return [self.inside_port + number for number in range(self.brokers)] if self.secure else []

    def check_ports(self) -> None:
        """Raises Unavailable for a port that is taken. Without that of the console, the cluster runs."""
        for port in (self.zookeeper_port, *self.ports, *self.inside_ports):
            try:
                check_free(port)
            except Unavailable as lack:
                inside = " --inside-port 19192" if self.secure else ""
                raise Unavailable(
                    f'{lack}; choose others: {self.target} ARGS="--port 19092 --zookeeper-port 12181{inside}"'
                ) from None


def check_free(port: int) -> None:
    """Raises Unavailable if a process listens on the port."""
    if not 0 < port < 65_536:
        raise Unavailable(f"{port} is not a port")
    with socket.socket() as probe:
        # Ignore connections of an earlier run that are still closing.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise Unavailable(f"port {port} of {HOST}: {error.strerror}") from None


def read_options(arguments: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(
        prog="make cluster", description="Run ZooKeeper, three brokers and the console here, until Ctrl-C."
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("ottla-cluster"),
        help="keep data and logs in this folder (ottla-cluster)",
    )
    parser.add_argument("--brokers", type=int, default=3, help="run this many brokers (3)")
    parser.add_argument(
        "--port",
        type=int,
        default=9092,
        help="give the first broker this port, and the others the next ones (9092)",
    )
    parser.add_argument("--zookeeper-port", type=int, default=2181, help="give ZooKeeper this port (2181)")
    parser.add_argument(
        "--secure",
        action="store_true",
        help="use TLS, logins and ACLs, with certificates made at the first start",
    )
    parser.add_argument(
        "--inside-port",
        type=int,
        default=_INSIDE_PORT,
        help=f"with --secure, give the first broker's listener for other brokers this port ({_INSIDE_PORT})",
    )
    parser.add_argument(
        "--console-port",
        type=int,
        default=_CONSOLE_PORT,
        help=f"give the console for the browser this port ({_CONSOLE_PORT}); 0 runs none",
    )
    options = parser.parse_args(arguments, Options())
    if not 1 <= options.brokers <= 100:
        parser.error(f"--brokers is from 1 to 100, not {options.brokers}")
    return options


def main() -> int:
    options = read_options()
    try:
        options.check_ports()
    except Unavailable as lack:
        print(f"{options.target}: {lack}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
