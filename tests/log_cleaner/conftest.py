"""A broker's logs on a clock that tests move, and functions to fill and read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.support.clock import WALL_START_MS, FakeClock

from ottla_broker.background import Background
from ottla_broker.log.cleaner import CleanerSettings, LogCleaner
from ottla_broker.log.cleaner.filter import CleaningStats
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records, encode_batch

TOPIC_ID = bytes(range(16))
START_MS = WALL_START_MS


class EagerClock(FakeClock):
    """Runs timers without a delay at once."""

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Any:
        if delay == 0:
            return asyncio.get_running_loop().call_soon(callback, *args)
        return super().call_later(delay, callback, *args)


class Broker:
    """A log manager and a cleaner over one data folder."""

    def __init__(self, folder: Path, settings: CleanerSettings, files: Files | None = None) -> None:
        self.clock = EagerClock()
        self.background = Background(2)
        self.logs = LogManager(
            [folder], LogConfig(), self.clock, self.background, Random(1), files=files or Files(64)
        )
        self.cleaner = LogCleaner(self.logs, self.clock, settings, lambda log: log.log_end_offset)

    async def open(self) -> Broker:
        await self.logs.load(lambda topic: COMPACT)
        return self

    async def close(self) -> None:
        await self.cleaner.close()
        await self.logs.close()
        self.background.close()

    def create(self, topic: str = "t", **config: Any) -> Log:
        return self.logs.create(topic, 0, TOPIC_ID, replace(COMPACT, **config)).open()

    async def clean_now(self, log: Log) -> CleaningStats | None:
        """Clean ``log`` however dirty it is; None when it has nothing to clean or cleaning failed."""
        chosen = self.cleaner._measure(log)
        return await self.cleaner._clean(chosen) if chosen.cleanable_bytes else None

    async def clean(self, log: Log) -> CleaningStats:
        """Clean ``log``, which must succeed."""
        stats = await self.clean_now(log)
        assert stats is not None
        return stats


COMPACT = LogConfig(compact=True, delete=False, delete_retention_ms=1000, segment_bytes=1 << 20)

Rows = Sequence[tuple[bytes | None, bytes | None]]


def append(log: Log, *rows: tuple[bytes | None, bytes | None], now_ms: int = START_MS, **batch: Any) -> None:
    """Append one batch of keys and values."""
    data = encode_batch([(now_ms + i, key, value, ()) for i, (key, value) in enumerate(rows)], **batch)
    log.append(memoryview(data), leader_epoch=0, now_ms=now_ms, from_client=False)


def roll(log: Log) -> None:
    log.roll(START_MS)


def batches(log: Log, start: int = 0) -> list[BatchHeader]:
    """Headers of all batches in the log, active segment included."""
    return [header for chunk in log.reader.scan_batches(start) for _, header in iter_headers(chunk)]


def records(log: Log, start: int = 0) -> list[Record]:
    """All records that a consumer gets from ``start`` on."""
    found = []
    for chunk in log.reader.scan_batches(start):
        for position, header in iter_headers(chunk):
            found += [each for each in decode_records(chunk, position, header) if each.offset >= start]
    return found


def pairs(log: Log) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in records(log)]


@pytest.fixture
def settings() -> CleanerSettings:
    return CleanerSettings(dedupe_buffer_size=1 << 20)


@pytest.fixture
async def broker(tmp_path: Path, settings: CleanerSettings) -> AsyncIterator[Broker]:
    broker = await Broker(tmp_path, settings).open()
    yield broker
    await broker.close()
