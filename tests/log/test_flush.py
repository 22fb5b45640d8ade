"""Acknowledgements of fsyncs when one log takes another one's place."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ottla_broker.background import Background
from ottla_broker.log.flush import Flusher, FlushJob
from ottla_protocol.errors import ErrorCode, KafkaError


class Disk:
    """Its fsyncs wait for ``ready`` and then fail if it is ``sick``."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.sick = False

    def sync_path(self, path: str) -> None:
        assert self.ready.wait(60)
        if self.sick:
            raise OSError(5, "Input/output error")


class Records:
    """A log of ten records, none of them on the device."""

    name = "t-0"

    def __init__(self) -> None:
        self.failure: str | None = None
        self.recovery_point = 0
        self.log_end_offset = 10
        self.disk = Disk()
        self.unflushed = self

    def prepare(self) -> FlushJob:
        files: Any = self.disk
        return FlushJob(files, self.log_end_offset, 0, paths=["log"])

    def flushed_to(self, job: FlushJob) -> None:
        self.recovery_point = job.end_offset

    def fail(self, why: str) -> KafkaError:
        self.failure = why
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)


@pytest.fixture
def flusher() -> Iterator[Flusher]:
    background = Background(2)
    yield Flusher(background)
    background.close()


@pytest.mark.parametrize("is_busy", [False, True])
async def test_the_new_logs_fsync_decides(flusher: Flusher, is_busy: bool) -> None:
    old, new = Records(), Records()
    future = flusher.request(old, 10)
    if is_busy:
        flusher.start(new)
    new.disk.sick = True
    flusher.hand_over(old, new)
    old.disk.ready.set()
    new.disk.ready.set()
    with pytest.raises(KafkaError, match="Input/output"):
        await asyncio.wait_for(future, 60)
    assert new.failure is not None
    assert old.failure is None


async def test_a_failed_fsync_that_nothing_waits_for_fails_the_log_after_it_took_anothers_place(
    flusher: Flusher,
) -> None:
    old, new = Records(), Records()
    flusher.start(new)
    new.disk.sick = True
    flusher.hand_over(old, new)
    new.disk.ready.set()
    await asyncio.wait_for(flusher.idle(new), 60)
    assert new.failure is not None
