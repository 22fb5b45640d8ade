"""The container's health check."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.support.processes import BrokerProcess
from tests.support.wire import frame

from ottla_broker.health import find_problem, main
from ottla_protocol.messages.metadata import MetadataResponse


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A port whose listener reads a request and sends these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join(60)


def test_a_serving_broker_is_healthy(broker: BrokerProcess) -> None:
    assert find_problem("127.0.0.1", broker.port) is None
    done = subprocess.run(
        [sys.executable, "-m", "ottla_broker.health", f"127.0.0.1:{broker.port}"], timeout=60, check=False
    )
    assert done.returncode == 0


def test_no_broker_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-m", "ottla_broker.health", address],
            timeout=60,
            check=False,
            capture_output=True,
            text=True,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{address} is not healthy: no response: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        (b"", "no response"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a response of 1213486160 bytes"),
        (frame(b"\0\0\0\1\0\0\0\7nonsense"), "not a broker's response"),
        (b"\0\0\0\x20cut", "not a broker's response"),
        (frame(b"\0\0\0\1" + MetadataResponse().encode(1)), "it has not joined its cluster"),
    ],
)
def test_what_is_not_healthy(response: bytes, problem: str) -> None:
    with answering(response) as port:
        assert (find_problem("127.0.0.1", port) or "").startswith(problem)


def test_a_silent_broker_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert find_problem("127.0.0.1", server.getsockname()[1], timeout=0.1) == "no response: timed out"


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, ""),
        (b'HTTP/1.1 503 No\r\nContent-Length: 9\r\n\r\n{"x": "y"}', 1, ' is not healthy: {"x": "y"'),
        (b"", 1, "no response: "),
    ],
)
def test_by_the_metrics_listener(
    answer: bytes, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(answer) as port:
        assert main([f"http://127.0.0.1:{port}/health/ready"]) == code
    assert said in capsys.readouterr().err
