"""Fixtures of the tests of connections and clusters."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.client.base.fake import FakeBroker

from ottla_client.cluster import Cluster
from ottla_client.settings import ConnectionSettings

# Quick back-offs: nothing else differs from the defaults.
QUICK: dict[str, Any] = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 5}


def sockets() -> int:
    """The number of open sockets of this process."""
    count = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(entry).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


def client_tasks() -> set[str]:
    """The client's tasks that have not ended."""
    running = (task.get_coro() for task in asyncio.all_tasks())
    return {repr(each) for each in running if "ottla_client" in each.cr_code.co_filename}  # type: ignore[union-attr]


async def until(condition: Callable[[], bool]) -> None:
    """Waits until the condition holds; gives up after a generous time."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
async def fake() -> AsyncIterator[FakeBroker]:
    async with FakeBroker() as broker:
        yield broker


@pytest.fixture
async def new_cluster() -> AsyncIterator[Callable[..., Cluster]]:
    """Makes clusters with short back-offs. All are closed at the end, and no task may remain."""
    made: list[Cluster] = []

    def make(bootstrap: str, **options: Any) -> Cluster:
        made.append(Cluster(bootstrap, ConnectionSettings(**{**QUICK, **options})))
        return made[-1]

    yield make
    for cluster in made:
        await cluster.close()
    assert not client_tasks()
