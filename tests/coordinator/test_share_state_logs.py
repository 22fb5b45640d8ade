"""The state of share groups: what is deleted of its log, and when; and requests for it before its topic exists."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.support.clock import FakeClock

from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.coordinator.share.state_logs import StateLogs
from ottla_protocol.errors import ErrorCode, KafkaError


def test_a_log_is_cut_when_its_snapshots_are_safe() -> None:
    async def run() -> None:
        flushes: list[asyncio.Future[None]] = []
        deleted: list[int] = []
        commits: list[Any] = []
        held = False

        def flushed(end: int) -> asyncio.Future[None]:
            assert end == 20
            flushes.append(asyncio.get_running_loop().create_future())
            return flushes[-1]

        def when_committed(end: int, reached: Any) -> object:
            assert end == 20
            if not held:
                return None
            commits.append(reached)
            return reached

        log = SimpleNamespace(log_start_offset=0, log_end_offset=20, flushed=flushed)
        partition = SimpleNamespace(
            log=log,
            check_leader=lambda: None,
            delete_records=deleted.append,
            when_committed=when_committed,
        )
        found: list[Any] = [partition]
        logs = StateLogs(lambda index: cast(Any, found[index]))
        logs.delete_before(0, 10)
        await asyncio.sleep(0)
        assert not deleted
        flushes[0].set_result(None)
        await asyncio.sleep(0)
        assert deleted == [10]
        # Not after an error of the device, nor when the partition has gone; and not for nothing.
        logs.delete_before(0, 12)
        flushes[1].set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        logs.delete_before(0, 12)
        found[0] = None
        flushes[2].set_result(None)
        await asyncio.sleep(0)
        logs.delete_before(0, 12)
        log.log_start_offset = 12
        found[0] = partition
        logs.delete_before(0, 12)
        assert (deleted, len(flushes)) == ([10], 3)
        # Nor before other brokers have the snapshots too.
        log.log_start_offset, held = 10, True
        for outcome in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE):
            logs.delete_before(0, 12)
            flushes[-1].set_result(None)
            await asyncio.sleep(0)
            assert deleted == [10]
            commits.pop()(outcome, 20)
        assert deleted == [10, 12]

    asyncio.run(run())


def test_requests_go_on_when_the_topic_cannot_be_made() -> None:
    async def run() -> None:
        class Coordinators:
            def read(self, key: ShareKey, leader_epoch: int, read: Any) -> None:
                read(KafkaError(ErrorCode.INVALID_REQUEST))

        async def ensure_topic() -> None:
            raise TimeoutError("the store doesn't answer")

        answers: list[ShareState | KafkaError] = []
        persister = Persister(cast(Any, Coordinators()), ensure_topic, FakeClock())
        persister.read(ShareKey("g", bytes(16), 0), 0, answers.append)
        for _ in range(3):
            await asyncio.sleep(0)
        assert [str(each) for each in answers] == ["INVALID_REQUEST"]
        await persister.close()

    asyncio.run(run())
