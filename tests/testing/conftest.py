"""Fixtures that find a broker's leftovers."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.waiting import wait_for

from ottla_broker import EmbeddedBroker
from ottla_broker.ephemeral import FOLDER_PREFIX


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which brokers make theirs; at the end of each test there is nothing in it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    assert not list(folder.glob(f"{FOLDER_PREFIX}*"))


@pytest.fixture
def assert_gone() -> Callable[[int, int], None]:
    """Wait until a process has ended, and its port is free."""
    return gone


def gone(pid: int, port: int) -> None:
    wait_for(lambda: not alive(pid), f"the end of {pid}")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1.0)
    # And it is anybody's again; a connection of another program's may have it for a moment.
    wait_for(lambda: can_bind(port), f"port {port}")


def can_bind(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def alive(pid: int) -> bool:
    """Whether a process is there; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


@pytest.fixture
def embedded() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker
