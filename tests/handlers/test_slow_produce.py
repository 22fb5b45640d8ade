"""Produce with records that may take long to check: at once or on a thread, in which order, and how much."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.handlers.test_old_produce import Broker, outcome
from tests.support.log_dirs import KEEP, World

from ottla_broker.fetch.conversions import Conversions
from ottla_broker.handlers import produce
from ottla_broker.log import record_validation
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.produce import slow_produce
from ottla_protocol.errors import ErrorCode
from ottla_protocol.records.batch import write_crc
from ottla_protocol.records.compression import ZSTD
from ottla_protocol.records.record import encode_batch

T = 1_700_000_000_000
VERSION = 9


def batch(name: bytes, count: int = 1, size: int = 10, codec: int = 0, **options: Any) -> bytes:
    return bytes(encode_batch([(T, name, bytes(size), ())] * count, codec=codec, **options))


@pytest.fixture
async def broker(world: World, conversions: Conversions) -> Broker:
    return Broker(world, conversions)


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little is checked on the event loop."""
    monkeypatch.setattr(produce, "QUICK_BYTES", 2000)
    monkeypatch.setattr(slow_produce, "Budget", lambda: record_validation.Budget(2000))


async def test_quick_ones_are_checked_at_once(broker: Broker, conversions: Conversions) -> None:
    for number, codec in enumerate(range(5)):
        answer = broker.handle(batch(b"a", 100, codec=codec), version=VERSION)
        assert outcome(answer) == (0, 100 * number)
    assert broker.keys() == [b"a"] * 5
    assert conversions._for_producers is None


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("codec", range(5))
async def test_a_slow_one_is_checked_on_a_thread_and_its_connection_waits(broker: Broker, codec: int) -> None:
    slow = broker.handle(batch(b"slow", 1000, codec=codec), version=VERSION)
    assert broker.held == {"1"}
    other = broker.handle(batch(b"other"), version=VERSION, connection="2")
    assert outcome(other) == (0, 0)
    assert outcome(await slow) == (0, 1)
    assert broker.held == set()
    assert outcome(broker.handle(batch(b"last"), version=VERSION)) == (0, 1001)
    assert broker.keys() == [b"other", b"slow", b"last"]


@pytest.mark.usefixtures("little")
async def test_a_slow_one_that_is_refused(broker: Broker) -> None:
    data = bytearray(batch(b"a", 1000))
    data[-1] = 2
    write_crc(data, 0, len(data))
    assert outcome(await broker.handle(bytes(data), version=VERSION)) == (ErrorCode.INVALID_RECORD, -1)
    data[-1] = 0
    assert outcome(await broker.handle(bytes(data), version=VERSION)) == (ErrorCode.CORRUPT_MESSAGE, -1)
    waited = broker.handle(bytes(data), version=VERSION, acks=0)
    with pytest.raises(CloseConnection):
        await waited
    assert broker.log.log_end_offset == 0


@pytest.mark.usefixtures("little")
async def test_it_is_written_again_on_the_thread(
    world: World, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.logs.update_config("t", KEEP.__class__(compression_type="zstd"))
    threads = []
    pack = record_validation._repack

    def packed(*args: Any) -> Any:
        found = pack(*args)
        threads.append(threading.current_thread() is threading.main_thread())
        return found

    monkeypatch.setattr(record_validation, "_repack", packed)
    assert outcome(await broker.handle(batch(b"a", 1000), version=3)) == (0, 0)
    assert threads == [False]
    assert broker.log.size < 2000


async def test_zstd_needs_version_7(broker: Broker) -> None:
    answer = broker.handle(batch(b"a", codec=ZSTD), version=6)
    assert outcome(answer) == (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)
    assert outcome(broker.handle(batch(b"a", codec=ZSTD), version=7)) == (0, 0)
