"""Tasks of the client's own."""

from __future__ import annotations

import asyncio

import pytest

from ottla_client.cluster.tasks import background


async def test_a_defect_of_a_background_task_is_logged_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> None:
        raise ValueError("a defect")

    task = background(broken(), "the timer")
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert "the timer has broken" in caplog.text
    assert "ValueError: a defect" in caplog.text


async def test_the_end_of_a_background_task_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    task = background(asyncio.sleep(60), "the timer")
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert not caplog.text
