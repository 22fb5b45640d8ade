"""What is done in Spark's Python workers between tasks."""

from __future__ import annotations

import gc
import pickle
import socket
import sys

import pytest
from pyspark import TaskContext

from ottla_pipeline.source import workers
from ottla_pipeline.source.options import resolve
from ottla_pipeline.source.stream import OttlaStreamReader


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


def test_a_task_acknowledges_its_first_piece_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: object())
    monkeypatch.setattr(workers, "_sockets", None)
    options = resolve({"kafka.bootstrap.servers": "127.0.0.1:9", "subscribe": "flights"}, stream=True)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
    ):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        assert pickle.loads(pickle.dumps(OttlaStreamReader(options, ("value",)))).columns == ("value",)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        for each in workers._sockets or ():
            each.close()
