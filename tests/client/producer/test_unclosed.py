"""A Producer that is not closed says so, and how many records it takes with it."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.base.conftest import client_tasks

from ottla_client.producer import Producer

_PROGRAM = """
import asyncio, sys
from ottla_client import Producer

kept = []

async def main():
    producer = Producer(sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    for _ in range(1_000):
        await producer.send(sys.argv[2], b"x")
    if sys.argv[3] == "kept":
        kept.append(producer)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["kept", "dropped"])
def test_the_end_of_the_program_names_the_records(
    broker: Any, new_topic: Callable[..., str], how: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, broker.bootstrap, new_topic(), how],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert done.stderr.count("was not closed: 1,000 records were never sent") == 1, done.stderr


_FORKED = """
import asyncio, os, sys
from ottla_client import Producer

async def begin():
    producer = Producer(sys.argv[1], linger_ms=60_000, delivery_timeout_ms=120_000)
    await producer.start()
    for _ in range(10):
        await producer.send(sys.argv[2], b"x")
    return producer

loop = asyncio.new_event_loop()
producer = loop.run_until_complete(begin())
child = os.fork()
if not child:
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
loop.run_until_complete(producer.close())
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_says_nothing_of_its_parents_producer(
    broker: Any, new_topic: Callable[..., str]
) -> None:
    """The parent sends the records; the child said that they were lost."""
    done = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", _FORKED, broker.bootstrap, new_topic()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "7\n")
    assert "never sent" not in done.stderr
    assert "<Producer" not in done.stderr


async def test_a_producer_without_records_warns(
    broker: Any, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    gc.collect()  # what earlier tests left has its say
    before = client_tasks()

    async def leave_open() -> str:
        producer = Producer(broker.bootstrap)
        await producer.start()
        assert producer._sender is not None
        # What tasks hold isn't collected before they end.
        await producer._sender.stop()
        await producer._cluster.close()
        return repr(producer)

    caplog.clear()
    recwarn.clear()
    left = await leave_open()
    gc.collect()
    warned = [str(each.message) for each in recwarn if each.category is ResourceWarning]
    assert f"{left} was not closed" in warned
    errors = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert [each for each in errors if left in each] == []
    assert client_tasks() == before


async def test_what_is_closed_or_never_started_warns_of_nothing(
    broker: Any, recwarn: pytest.WarningsRecorder
) -> None:
    gc.collect()
    recwarn.clear()
    async with Producer(broker.bootstrap) as closed:
        pass
    unused = Producer(broker.bootstrap)
    del closed, unused
    gc.collect()
    assert [str(each.message) for each in recwarn if each.category is ResourceWarning] == []
