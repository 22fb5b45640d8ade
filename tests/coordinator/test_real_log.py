"""The coordinator on the real replica layer and log, on disk: a restart finds what was acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.coordinator.harness import NoTopics, Waiting, usual_times

from ottla_broker.background import Background
from ottla_broker.clock import SystemClock
from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.membership import JoinRequest
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.log.config import LogConfig
from ottla_broker.log.manager import LogManager
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.manager import ReplicaManager
from ottla_protocol.errors import ErrorCode

PARTITIONS = 3


@asynccontextmanager
async def coordinator(folder: Path, config: LogConfig, codec: int) -> AsyncIterator[GroupCoordinator]:
    clock = SystemClock(asyncio.get_running_loop())
    background = Background(2)
    logs = LogManager([folder], config, clock, background, random.Random(1))
    await logs.load()
    replicas = ReplicaManager(ReplicaEnvironment(1, logs, clock))
    settings = GroupSettings(initial_rebalance_delay_ms=0, codec=codec)
    groups = GroupCoordinator(settings, clock, random.Random(2), lambda: PARTITIONS, NoTopics(), usual_times)
    replicas.listeners.append(groups)
    groups.start()
    for index in range(PARTITIONS):
        replicas.become_leader(OFFSETS_TOPIC, index, b"offsets".ljust(16), 0, config)
    while groups.list([], [])[0]:
        await asyncio.sleep(0.001)
    try:
        yield groups
    finally:
        groups.stop()
        await logs.close()
        background.close()


async def answer(waiting: Waiting) -> None:
    while not waiting.done:
        await asyncio.sleep(0.001)


# Kept in memory by the page cache, or acknowledged by an fsync each.
@pytest.mark.parametrize("flush_messages", [2**63 - 1, 1])
@pytest.mark.parametrize("codec", [0, 1, 4])
async def test_groups_and_offsets_survive(tmp_path: Path, flush_messages: int, codec: int) -> None:
    config = LogConfig(compact=True, delete=False, flush_messages=flush_messages)
    request = JoinRequest(
        "", None, "me", "/127.0.0.1", 10_000, 60_000, "consumer", (("range", b""),), False, False, "test"
    )
    async with coordinator(tmp_path, config, codec) as groups:
        join = Waiting()
        groups.join("g", request, join)
        await answer(join)
        member_id = join.joined.member_id
        sync = Waiting()
        groups.sync("g", Sender(member_id, None, 1), None, None, {member_id: b"mine"}, sync)
        await answer(sync)
        assert sync.synced.assignment == b"mine"
        commit = Waiting()
        groups.commit("g", Sender(member_id, None, 1), [("t", 0, Committed(42, 1, "note", 1))], commit)
        await answer(commit)
        assert commit.answer == [0]
        for number in range(50):
            commit = Waiting()
            groups.commit(
                f"simple-{number}", Sender("", None, -1), [("t", 0, Committed(number, -1, "", 1))], commit
            )
            await answer(commit)
            assert commit.answer == [0]

    async with coordinator(tmp_path, config, codec) as groups:
        assert groups.heartbeat("g", Sender(member_id, None, 1)) == 0
        assert groups.fetch("g", [("t", [0])], True) == (0, [("t", [(0, 42, 1, "note", 0)])])
        for number in range(50):
            _, [(_, [found])] = groups.fetch(f"simple-{number}", [("t", [0])], False)
            assert found.offset == number
        deleted = Waiting()
        groups.delete(["simple-7"], deleted)
        await answer(deleted)
        assert deleted.answer == {"simple-7": 0}

    async with coordinator(tmp_path, config, codec) as groups:
        assert groups.describe("simple-7").state == "Dead"
        assert len(list(groups.list([], [])[1])) == 50


async def test_a_group_that_fits_no_record_is_refused_until_it_does(tmp_path: Path) -> None:
    request = JoinRequest(
        "", None, "me", "/127.0.0.1", 10_000, 60_000, "consumer", (("range", b""),), False, False, "test"
    )
    async with coordinator(tmp_path, LogConfig(compact=True, delete=False), 0) as groups:
        join = Waiting()
        groups.join("g", request, join)
        await answer(join)
        member_id = join.joined.member_id
        large = Waiting()
        groups.sync("g", Sender(member_id, None, 1), None, None, {member_id: bytes(2 << 20)}, large)
        await answer(large)
        assert large.code is ErrorCode.UNKNOWN_SERVER_ERROR
        again = Waiting()
        groups.join("g", request._replace(member_id=member_id), again)
        await answer(again)
        small = Waiting()
        groups.sync(
            "g", Sender(member_id, None, again.joined.generation_id), None, None, {member_id: b"x"}, small
        )
        await answer(small)
        assert small.synced.assignment == b"x"
