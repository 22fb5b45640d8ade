"""A group has consumers of one generation: members are refused while ZooKeeper or the 2012 coordinator has others."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.coordinator.consumer_world import ConsumerWorld, FakeTopics
from tests.coordinator.harness import DELAY_MS
from tests.coordinator.push_world import MemoryStore

from ottla_broker import events
from ottla_broker.coordinator import old_consumers
from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat, HeartbeatAnswer
from ottla_broker.coordinator.old_consumers import OldConsumers
from ottla_broker.coordinator.zookeeper_groups import ZooKeeperGroups
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription

IDS = "/consumers/g/ids"


class World(ConsumerWorld):
    """A coordinator of groups of both protocols, and a store where consumers of other generations register."""

    def __init__(self) -> None:
        super().__init__(FakeTopics(t=2))
        self.store = MemoryStore()
        self.old_consumers = OldConsumers(self.store, self.clock, self.coordinator.admission.holder)
        self.coordinator.admission.old_consumers = self.old_consumers

    async def consumer(self, name: str = "c_1", group: str = "g") -> None:
        """A ZooKeeper consumer comes."""
        await self.store.create(f"/consumers/{group}/ids/{name}", parents=True)
        await self.clock.elapse(0)

    async def gone(self, path: str) -> None:
        await self.store.delete(path)
        await self.clock.elapse(0)

    def enter(self, group: str = "g") -> HeartbeatAnswer:
        """The first heartbeat of a member of the consumer protocol."""
        answers: list[HeartbeatAnswer] = []
        request = Heartbeat("m", 0, rebalance_timeout_ms=1000, topics=["t"], owned={})
        self.coordinator.consumer_heartbeat(group, request, answers.append)
        (answer,) = answers
        return answer


@asynccontextmanager
async def serving() -> AsyncIterator[World]:
    world = World()
    await world.store.create("/consumers", parents=True)
    await world.old_consumers.start()
    try:
        yield world
    finally:
        await world.old_consumers.close()


async def test_a_group_with_zookeeper_consumers_is_theirs() -> None:
    async with serving() as world:
        assert world.join().code is ErrorCode.MEMBER_ID_REQUIRED
        await world.consumer(group="h")
        refused = world.join(group="h")
        await world.clock.elapse(0)
        assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        # Known by now: no one waits.
        assert world.join(group="h").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        answer = world.enter("h")
        assert answer.error is not None
        assert answer.error.code is ErrorCode.INVALID_REQUEST
        assert "held by 1 consumers that coordinate in ZooKeeper" in (answer.error.message or "")
        # Its offsets may move to Kafka meanwhile, which consumers without membership commit.
        assert world.commit(7, group="h") == [ErrorCode.NONE]
        assert world.offset(group="h") == 7
        await world.gone("/consumers/h/ids/c_1")
        assert world.join(group="h").code is ErrorCode.MEMBER_ID_REQUIRED
        # What is left of a group holds no one up.
        assert "/consumers/h/ids" in world.store.nodes


async def test_a_group_with_consumers_at_the_coordinator_of_2012_is_theirs() -> None:
    async with serving() as world:
        await world.store.create("/ottla/coordinated/g", b"1", parents=True)
        await world.clock.elapse(0)
        assert world.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        answer = world.enter()
        assert answer.error is not None
        assert "held by consumers that registered with the coordinator of 2012" in (
            answer.error.message or ""
        )
        await world.gone("/ottla/coordinated/g")
        assert world.enter().error is None
        assert world.coordinator.admission.holder("g") == (
            "1 members of the consumer protocol, which coordinate through the brokers"
        )


async def test_members_that_are_there_already_stay_and_the_log_says_so() -> None:
    log = io.StringIO()
    events.configure(stream=log)
    async with serving() as world:
        (leader,), generation = world.stable()
        await world.consumer()
        await world.consumer("c_2")
        assert log.getvalue().count("used by two generations") == 1
        assert "1 members of the classic protocol" in log.getvalue()
        assert world.heartbeat(leader, generation) is ErrorCode.NONE
        assert world.join().code is ErrorCode.MEMBER_ID_REQUIRED
        await world.store.create("/ottla/coordinated/g", b"1", parents=True)
        await world.clock.elapse(0)
        assert log.getvalue().count("used by two generations") == 2


async def test_many_who_come_at_once_wait_for_one_answer() -> None:
    async with serving() as world:
        await world.consumer()
        gate = world.store.gate = asyncio.Event()
        asked = world.store.count("children")
        joins = [world.join() for _ in range(50)]
        await world.clock.elapse(0)
        assert not any(each.done for each in joins)
        gate.set()
        await world.clock.elapse(0)
        assert {each.code for each in joins} == {ErrorCode.INCONSISTENT_GROUP_PROTOCOL}
        assert world.store.count("children") <= asked + 2


async def test_a_store_that_fails_or_is_silent_holds_no_group_up() -> None:
    async with serving() as world:
        await world.consumer()
        world.store.failing = True
        failed = world.join()
        await world.clock.elapse(0)
        assert failed.code is ErrorCode.MEMBER_ID_REQUIRED
        world.store.failing = False
        world.store.gate = asyncio.Event()
        silent = world.join()
        await world.clock.elapse(4)
        assert not silent.done
        await world.clock.elapse(2)
        assert silent.code is ErrorCode.MEMBER_ID_REQUIRED
        waits = world.join()
        await world.old_consumers.close()
        assert waits.code is ErrorCode.MEMBER_ID_REQUIRED


async def test_names_are_read_again_after_a_failure() -> None:
    async with serving() as world:
        world.store.failing = True
        world.store.nodes[IDS] = world.store.nodes["/consumers/g"] = b""
        world.store.nodes[f"{IDS}/c_1"] = b""
        world.store.touch("/consumers")
        await world.clock.elapse(0)
        world.store.failing = False
        await world.clock.elapse(2)
        refused = world.join()
        await world.clock.elapse(0)
        assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_few_groups_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_consumers, "MOST_WATCHED", 3)
    async with serving() as world:
        before = world.store.watches
        for number in range(10):
            await world.consumer(group=f"h{number}")
            refused = world.join(group=f"h{number}")
            await world.clock.elapse(0)
            assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        assert world.store.watches == before + 3
        await world.gone("/consumers/h0/ids/c_1")
        again = world.join(group="h0")
        await world.clock.elapse(0)
        assert again.code is ErrorCode.MEMBER_ID_REQUIRED
    assert world.store.watches == 0


@pytest.mark.parametrize(
    "node",
    [
        b"",
        b"[" * 100_000,
        b'"' + b"x" * 100_000 + b'"',
        b"[]",
        b"{}",
        b'{"subscription":"abc"}',
        b'{"subscription":["t"]}',
        b'{"subscription":{"\\ud800":1}}',
        b'{"subscription":{"' + b"x" * 40_000 + b'":1}}',
        b'{"subscription":{' + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}}",
    ],
    ids=lambda node: node[:24].decode(),
)
async def test_a_group_is_described_whatever_its_nodes_have(node: bytes) -> None:
    async with serving() as world:
        sound = b'{"pattern":"static","subscription":{"t":1}}'
        for name, data in (("c_1", node), ("c_2", sound), ("c" * 40_000, sound)):
            await world.store.create(f"/consumers/g/ids/{name}", data, parents=True)
        for topic, partition in (("x" * 40_000, "0"), ("t", "4294967296"), ("t", "x")):
            await world.store.create(f"/consumers/g/owners/{topic}/{partition}", b"c_1-0", parents=True)
        await world.clock.elapse(0)
        found = await ZooKeeperGroups(world.old_consumers).describe("g")
        assert found is not None
        members = [(member.member_id, subscription) for member, subscription, _ in found.members]
        assert [name for name, _ in members] == ["c_1", "c_2"]
        assert members[1][1] == encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 0)
        assert members[0][1] == encode_subscription(ConsumerProtocolSubscription(topics=[]), 0)


async def test_a_member_that_comes_back_to_its_empty_group_asks_again() -> None:
    async with serving() as world:
        (member,), _ = world.stable()
        world.leave(member)
        world.clock.advance(DELAY_MS / 1000)
        await world.consumer()
        refused = world.join()
        await world.clock.elapse(0)
        assert refused.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
