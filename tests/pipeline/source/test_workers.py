"""What is done in Spark's Python workers between tasks."""

from __future__ import annotations

import gc
import pickle
import socket
import sys

import pytest
from pyspark import TaskContext

from ottla_pipeline.source import workers


class Work(workers.Carried):
    """What a task is to do."""

    def __init__(self) -> None:
        self.number = 1


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often modules were put out of the collector's sight."""
    times: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: times.append(1))
    monkeypatch.setattr(workers, "_modules", 0)
    return times


def test_in_a_task_what_was_imported_is_settled_once(
    monkeypatch: pytest.MonkeyPatch, frozen: list[int]
) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    for _ in range(2):
        with workers.in_worker():
            pass
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "brought_by_a_later_task", workers)
    with workers.in_worker():
        pass
    assert len(frozen) == 2


def test_outside_of_tasks_nothing_is_settled(frozen: list[int]) -> None:
    with workers.in_worker():
        pass
    assert not frozen


def test_in_a_task_what_has_come_is_acknowledged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    monkeypatch.setattr(workers, "_sockets", None)
    local, other = socket.socketpair()
    with (
        local,
        other,
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        assert pickle.loads(pickle.dumps(Work())).number == 1
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        local.sendall(b"x")
        assert other.recv(1) == b"x"
        for each in workers._sockets or ():
            each.close()
