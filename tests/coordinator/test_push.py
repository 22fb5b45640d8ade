"""The 2012 coordinator: registration, rebalancing, failure detection and fail-over, on virtual time."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from typing import Any

import pytest
from tests.coordinator.push_world import SESSION, Consumer, World, run

from ottla_broker.coordinator.push import subscription
from ottla_broker.coordinator.push.abandoned import WAIT_SECONDS
from ottla_broker.coordinator.push.coordinator import MOST_COMMITS
from ottla_broker.coordinator.push.listing import CoordinatedGroups
from ottla_broker.coordinator.push.states import GroupState
from ottla_broker.coordinator.push.subscription import MAX_STREAMS
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_protocol import decode_assignment, decode_subscription
from ottla_protocol.push import (
    CONFIRMATION,
    LARGEST,
    SMALLEST,
    PartitionOffset,
    PingRequest,
    PingResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
)


@run
async def test_the_first_consumer_gets_everything_and_the_second_half() -> None:
    async with World() as world:
        await world.topic("t", 4)
        a = await world.consumer("a")
        await world.pass_time(1)
        assert a.reading == {("t", 0), ("t", 1), ("t", 2), ("t", 3)}
        a.read(7)
        b = await world.consumer("b")
        await world.pass_time(1)
        assert (a.reading, b.reading) == ({("t", 0), ("t", 1)}, {("t", 2), ("t", 3)})
        assert world.owners() == {("t", 0): "a-0", ("t", 1): "a-0", ("t", 2): "b-0", ("t", 3): "b-0"}
        assert world.offset("t", 3) == 7
        started = next(each for each in reversed(b.received) if isinstance(each, StartFetcherRequest))
        assert started.ownership[0].partitions[0] == PartitionOffset("t", 2, 7)


@run
async def test_a_quiet_group_is_left_alone() -> None:
    async with World() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        await world.pass_time(1)
        before = world.coordinator.rebalancer.rebalances
        # A change that isn't one: the topic's node is written again.
        await world.topic("t", 2)
        await world.pass_time(20)
        assert world.coordinator.rebalancer.rebalances == before
        pings = [each for each in a.received if isinstance(each, PingRequest)]
        assert len(pings) in (10, 11)
        assert {each.num_retries for each in pings} == {0}


@run
async def test_what_no_offset_is_stored_for_starts_where_the_consumer_says() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = world.consumers["a"] = Consumer(world, "a", '{"t":1}')
        await a.register(reset="largest")
        b = await world.consumer("b", group="h")
        await world.pass_time(1)
        for consumer, offset in ((a, LARGEST), (b, SMALLEST)):
            started = next(each for each in consumer.received if isinstance(each, StartFetcherRequest))
            assert started.ownership[0].partitions == (PartitionOffset("t", 0, offset),)


@run
async def test_new_topics_and_partitions_find_readers() -> None:
    async with World() as world:
        a = await world.consumer("a", '{"later":1}')
        b = await world.consumer("b", "*1*la.*", group="h")
        c = await world.consumer("c", "!1!la.*", group="i")
        await world.pass_time(1)
        assert not a.reading
        await world.topic("later", 1)
        await world.topic("other", 1)
        await world.pass_time(1)
        assert (a.reading, b.reading, c.reading) == ({("later", 0)}, {("later", 0)}, {("other", 0)})
        await world.topic("later", 2)
        await world.pass_time(1)
        assert a.reading == b.reading == {("later", 0), ("later", 1)}


@run
async def test_a_topic_that_comes_while_the_store_fails_finds_a_reader_later() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a", "*1*.*")
        await world.pass_time(1)
        world.store.failing = True
        await world.topic("u", 1)
        await world.pass_time(1)
        world.store.failing = False
        await world.pass_time(5)
        assert a.reading == {("t", 0), ("u", 0)}


@run
async def test_a_topic_that_goes_leaves_no_owner() -> None:
    async with World() as world:
        await world.topic("t", 2)
        await world.consumer("a")
        await world.pass_time(1)
        await world.store.delete("/brokers/topics/t")
        await world.pass_time(1)
        assert not world.owners()


@run
async def test_a_consumer_that_answers_no_ping_loses_its_partitions_after_its_session_timeout() -> None:
    async with World() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        b = await world.consumer("b")
        await world.pass_time(1)
        a.ignores = {PingRequest}
        await world.pass_time(SESSION + 0.5)
        assert a.reasons == ["it has not answered 1 pings"]
        assert b.reading == {("t", 0), ("t", 1)}


@run
async def test_more_failed_pings_may_be_allowed() -> None:
    async with World(max_failed_pings=2) as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        a.frozen = True
        await world.pass_time(SESSION * 2)
        assert a.connected
        a.frozen = False
        a.work()
        # Two answers come at once, the first of them late: neither is taken for an answer to a later ping.
        retries = [each.num_retries for each in a.received if isinstance(each, PingRequest)]
        assert retries[-3:] == [0, 1, 2]
        await world.pass_time(SESSION * 3)
        assert a.connected
        a.ignores = {PingRequest}
        await world.pass_time(SESSION * 4)
        assert a.reasons == ["it has not answered 3 pings"]


@run
async def test_a_consumer_that_never_stops_is_removed_after_the_retries() -> None:
    async with World(max_retries=1) as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        await world.pass_time(1)
        a.ignores = {StopFetcherRequest}
        b = await world.consumer("b")
        await world.pass_time(3)
        assert not b.reading
        await world.pass_time(SESSION * 3)
        assert a.reasons == ["it didn't answer while its group was rebalanced"]
        assert b.reading == {("t", 0), ("t", 1)}


@run
async def test_a_consumer_that_never_starts_is_removed_and_the_group_goes_on() -> None:
    async with World(max_retries=0) as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        b = await world.consumer("b")
        await world.pass_time(1)
        b.ignores = {StartFetcherRequest}
        c = await world.consumer("c")
        await world.pass_time(SESSION * 2)
        assert b.reasons
        assert a.reading | c.reading == {("t", 0), ("t", 1)}


@run
async def test_answers_that_no_one_waits_for_change_nothing() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        for _ in range(2):
            world.coordinator.handle(a, StopFetcherResponse(0, "a", ()))
            world.coordinator.handle(a, StartFetcherResponse(0, "a"))
        assert a.connected
        b = await world.consumer("b")
        await world.pass_time(1)
        assert world.readers() == {("t", 0): "a"}
        assert b.connected


@run
async def test_a_late_answer_to_stop_is_not_taken_for_the_next_one() -> None:
    async with World(max_retries=5) as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        await world.pass_time(1)
        a.ignores = {StopFetcherRequest}
        b = await world.consumer("b")
        # The first request has expired, and the second one is out.
        await world.pass_time(SESSION * 2 / 3 + 2.5)
        stops = sum(isinstance(each, StopFetcherRequest) for each in a.received)
        assert stops == 3
        a.answer(StopFetcherRequest("a"))
        await world.pass_time(0.5)
        assert not b.reading
        a.ignores = set()
        a.answer(StopFetcherRequest("a"))
        await world.pass_time(0.5)
        assert len(world.readers()) == 2


@run
async def test_an_answer_for_another_consumer_closes_the_connection() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        b = await world.consumer("b")
        await world.pass_time(1)
        world.coordinator.handle(a, PingResponse(0, "b", ()))
        await world.pass_time(1)
        assert a.reasons == ["it answered for another consumer, 'b'"]
        assert b.reading == {("t", 0)}


@run
async def test_an_error_in_an_answer_removes_the_consumer() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        world.coordinator.handle(a, PingResponse(-1, "a"))
        await world.pass_time(1)
        assert not a.connected
        assert not world.coordinator.groups
        assert not world.owners()


@run
async def test_offsets_of_partitions_that_others_own_are_not_kept() -> None:
    async with World() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        await world.consumer("b")
        await world.pass_time(1)
        offsets = (PartitionOffset("t", 0, 5), PartitionOffset("t", 1, 9), PartitionOffset("x", 0, 1))
        world.coordinator.handle(a, PingResponse(0, "a", offsets))
        await world.pass_time(1)
        assert (world.offset("t", 0), world.offset("t", 1), world.offset("x", 0)) == (5, None, None)
        assert PingRequest("a", CONFIRMATION) in a.received


@run
async def test_the_committer_stores_what_pings_report() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        a.read(3)
        await world.pass_time(13)
        assert world.offset("t", 0) == 3


@run
async def test_offsets_wait_for_a_store_that_fails() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        a.read(3)
        world.store.failing = True
        b = await world.consumer("b", group="other")
        assert b.refused is not None
        assert b.refused.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await world.pass_time(25)
        world.store.failing = False
        await world.pass_time(12)
        assert world.offset("t", 0) == 3


@run
async def test_what_is_wrong_with_a_registration_is_said() -> None:
    async with World(max_consumers=2) as world:
        await world.store.create("/consumers/zk/ids/c_1", parents=True)
        world.holders["classic"] = "3 members of the classic protocol"
        world.elsewhere["modern"] = "2 members of the consumer protocol"
        world.forbidden |= {"secret", "hidden"}
        await world.consumer("a")

        async def refused(consumer: Consumer, **options: Any) -> tuple[ErrorCode, str]:
            await consumer.register(**options)
            assert consumer.refused is not None
            return consumer.refused.code, consumer.refused.message

        for consumer, options, code, words in (
            (Consumer(world, "a", '{"t":1}'), {}, ErrorCode.DUPLICATE_RESOURCE, "taken in group g"),
            (
                Consumer(world, "b", '{"t":1}'),
                {"session_ms": 5999},
                ErrorCode.INVALID_SESSION_TIMEOUT,
                "6000",
            ),
            (Consumer(world, "b", '{"t":1}', group="a/b"), {}, ErrorCode.INVALID_GROUP_ID, "a/b"),
            (
                Consumer(world, "b", '{"t":1}', group="coordinator"),
                {},
                ErrorCode.INVALID_GROUP_ID,
                "reserved",
            ),
            (Consumer(world, "", '{"t":1}'), {}, ErrorCode.INVALID_REQUEST, "consumer id"),
            (
                Consumer(world, "b", '{"t":1}'),
                {"reset": "x"},
                ErrorCode.INVALID_REQUEST,
                "smallest or largest",
            ),
            (Consumer(world, "b", "{}"), {}, ErrorCode.INVALID_REQUEST, "streams by topic"),
            (Consumer(world, "b", '{"t":0}'), {}, ErrorCode.INVALID_REQUEST, "1 to 1000"),
            (Consumer(world, "b", '{"/":1}'), {}, ErrorCode.INVALID_TOPIC_EXCEPTION, "can't be a topic"),
            (Consumer(world, "b", "*1*("), {}, ErrorCode.INVALID_REGULAR_EXPRESSION, "RE2"),
            (
                Consumer(world, "b", '{"t":1}', group="zk"),
                {},
                ErrorCode.NON_EMPTY_GROUP,
                "coordinate in ZooKeeper",
            ),
            (
                Consumer(world, "b", '{"t":1}', group="classic"),
                {},
                ErrorCode.NON_EMPTY_GROUP,
                "classic protocol",
            ),
            (
                Consumer(world, "b", '{"t":1}', group="modern"),
                {},
                ErrorCode.NON_EMPTY_GROUP,
                "consumer protocol",
            ),
            (Consumer(world, "b", '{"secret":1}'), {}, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "secret"),
            (
                Consumer(world, "b", '{"t":1}', group="hidden"),
                {},
                ErrorCode.GROUP_AUTHORIZATION_FAILED,
                "hidden",
            ),
        ):
            found, text = await refused(consumer, **options)
            assert (found, words in text) == (code, True), text
        await world.consumer("b")
        assert (await refused(Consumer(world, "c", '{"t":1}')))[0] is ErrorCode.GROUP_MAX_SIZE_REACHED


@run
async def test_malformed_nodes_do_not_stop_the_group() -> None:
    async with World() as world:
        await world.topic("t", 3)
        await world.topic("bad", 1)
        world.store.nodes["/brokers/topics/bad"] = b"{"
        for path, data in (
            ("owners/t/0", b"\xff"),
            ("owners/t/x", b"a-0"),
            (f"owners/t/{9:05000}", b"a-0"),
            ("offsets/t/1", b"9" * 30),
        ):
            await world.store.create(f"/consumers/g/{path}", data, parents=True)
        a = await world.consumer("a", '{"t":1,"bad":1}')
        await world.pass_time(SESSION + 2)
        # The partition whose offset can't be read waits for someone to correct it.
        assert a.reading == {("t", 0), ("t", 2)}
        await world.store.set("/consumers/g/offsets/t/1", b"9")
        await world.consumer("b", '{"t":1,"bad":1}')
        await world.pass_time(2)
        assert len(world.readers()) == 3


@run
async def test_a_new_coordinator_waits_for_the_consumers_of_the_last_one() -> None:
    async with World() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        b = await world.consumer("b")
        await world.pass_time(1)
        await world.fail_over()
        await a.register()
        await world.pass_time(2)
        assert not a.reading
        await b.register()
        await world.pass_time(1)
        assert len(world.readers()) == 2
        await world.fail_over()
        await a.register()
        await world.pass_time(SESSION + 1)
        assert a.reading == {("t", 0), ("t", 1)}


@run
async def test_owners_whose_consumers_died_with_the_coordinator_are_removed() -> None:
    """Those of ZooKeeper consumers stay, and those of consumers that come to the next coordinator in time."""
    async with World() as world:
        await world.topic("t", 2)
        await world.consumer("a", group="dead")
        b = await world.consumer("b", group="alive")
        await world.pass_time(1)
        for path in ("/consumers/old/ids/c", "/consumers/old/owners/t/0"):
            await world.store.create(path, b"c-0", parents=True)
        await world.fail_over()
        await b.register()
        await world.pass_time(WAIT_SECONDS + 1)
        assert not world.owners("dead")
        assert set(world.owners("alive").values()) == {"b-0"}
        assert world.owners("old") == {("t", 0): "c-0"}


@run
async def test_owners_of_awaited_consumers_go_with_the_last_one_that_came() -> None:
    async with World() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        await world.consumer("b")
        await world.pass_time(1)
        await world.fail_over()
        await a.register()
        await world.pass_time(1)
        a.leave()
        await world.pass_time(1)
        assert world.owners()
        (listed,) = CoordinatedGroups(world.coordinator).listings((), ())
        assert listed.state == "Empty"
        await world.pass_time(SESSION + 1)
        assert not world.owners()
        assert not world.coordinator.groups


@run
async def test_consumers_report_to_the_next_coordinator_where_they_were() -> None:
    """What the last coordinator had not stored yet isn't read again, unless another consumer reads on."""
    async with World() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        b = await world.consumer("b")
        await world.pass_time(1)
        a.read(5)
        b.read(7)
        await world.fail_over()
        assert world.offset("t", 0) is None
        b._left_at["t", 0] = 99  # a partition that was never its own
        await a.register()
        await b.register()
        await world.pass_time(1)
        assert (world.offset("t", 0), world.offset("t", 1)) == (5, 7)


@run
async def test_partitions_that_a_topic_gets_later_begin_at_their_start() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = world.consumers["a"] = Consumer(world, "a", '{"t":1}')
        await a.register(reset="largest")
        await world.pass_time(1)
        await world.topic("t", 2)
        await world.pass_time(1)
        begins = [
            each.offset
            for message in a.received
            if isinstance(message, StartFetcherRequest)
            for owned in message.ownership
            for each in owned.partitions
        ]
        assert begins == [LARGEST, LARGEST, SMALLEST]


@run
async def test_many_streams_of_topics_that_do_not_exist_cost_nothing() -> None:
    async with World() as world:
        await world.topic("t", 2)
        made_up = {f"t{number}": MAX_STREAMS for number in range(2_000)}
        tracemalloc.start()
        try:
            a = await world.consumer("a", json.dumps({**made_up, "t": MAX_STREAMS}))
            b = await world.consumer("b", f"*{MAX_STREAMS}*.*")
            await world.pass_time(2)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert world.owners() == {("t", 0): "a-0", ("t", 1): "a-1"}
        assert (len(a.reading), len(b.reading)) == (2, 0)
        # A stream's id takes a hundred bytes, and there are four million.
        assert most < 8 << 20
        # The first one watches what exists: a topic that comes is found all the same.
        assert world.store.watches < 10
        await world.topic("t77", 1)
        await world.pass_time(2)
        assert world.owners()["t77", 0] == "a-0"


@run
async def test_subscriptions_have_a_bound_and_equal_ones_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "MOST_BYTES", 700)
    async with World() as world:
        await world.topic("t", 3)
        consumers = [await world.consumer(name) for name in "abc"]
        assert not any(each.refused for each in consumers)
        refused = await world.consumer("d", '{"t":2}')
        assert refused.refused is not None
        assert refused.refused.code is ErrorCode.GROUP_MAX_SIZE_REACHED
        for each in consumers:
            each.leave()
        await refused.register()
        assert refused.refused is None


@run
async def test_a_coordinator_that_is_elected_again_forgets_groups_that_wait() -> None:
    async with World() as world:
        await world.topic("t", 1)
        await world.consumer("a")
        group = world.coordinator.groups["g"]
        world.store.failing = True
        await world.clock.elapse(1.0)
        assert (group.state, group.retries) == (GroupState.BACKING_OFF, 1)
        await world.coordinator.stop()
        world.store.failing = False
        world.coordinator.start()
        await world.clock.elapse(2.5)
        assert (group.state, group.retries) == (GroupState.BACKING_OFF, 1)


@run
async def test_a_group_is_held_while_it_has_consumers() -> None:
    async with World() as world:
        await world.topic("t", 1)
        path = "/ottla/coordinated/g"
        # Of a coordinator that died.
        await world.store.create(path, b"7", parents=True)
        a = await world.consumer("a")
        b = await world.consumer("b")
        assert world.store.nodes[path] == b"1"
        a.leave()
        await world.pass_time(1)
        assert path in world.store.nodes
        b.leave()
        await world.pass_time(1)
        assert path not in world.store.nodes
        await a.register()
        assert path in world.store.nodes
        await world.coordinator.stop()
        assert path not in world.store.nodes


@run
async def test_a_removed_group_leaves_the_next_one_with_its_id_alone() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        a.frozen = True
        await world.pass_time(4.5)
        assert world.coordinator.groups["g"].state is GroupState.BACKING_OFF
        # It leaves while its group waits for the next attempt, and comes back before that.
        a.leave()
        await world.clock.elapse(0)
        assert not world.coordinator.groups
        a.frozen = False
        await a.register()
        await world.pass_time(3)
        assert world.owners() == {("t", 0): "a-0"}
        assert "/ottla/coordinated/g" in world.store.nodes


@run
async def test_a_consumer_that_comes_and_goes_while_its_group_is_removed() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        gate = world.store.gate = asyncio.Event()
        a.leave()
        await world.clock.elapse(0)
        b = await world.consumer("b")
        b.leave()
        gate.set()
        await world.pass_time(1)
        assert not world.coordinator.groups
        assert not world.owners()


@run
async def test_a_group_plans_one_attempt_however_many_register_while_it_waits() -> None:
    async with World() as world:
        await world.topic("t", 1)
        await world.consumer("a")
        await world.pass_time(1)
        world.store.failing = True
        for number in range(5):
            await world.consumer(f"c{number}")
            await world.pass_time(0.1)
        tried = world.store.count("children")
        await world.pass_time(10)
        assert world.store.count("children") - tried <= 10


@run
async def test_a_group_that_another_coordinator_has_taken_keeps_its_node() -> None:
    async with World() as world:
        await world.consumer("a")
        world.store.nodes["/ottla/coordinated/g"] = b"2"
        await world.coordinator.stop()
        assert world.store.nodes["/ottla/coordinated/g"] == b"2"


@run
async def test_many_who_register_at_once_ask_the_store_once() -> None:
    async with World() as world:
        await world.clock.elapse(0)
        asked = world.store.count("children")
        gate = world.store.gate = asyncio.Event()
        consumers = [Consumer(world, f"c{number}", '{"t":1}') for number in range(20)]
        registrations = [asyncio.create_task(each.register()) for each in consumers]
        await world.clock.elapse(0)
        gate.set()
        await asyncio.gather(*registrations)
        assert world.coordinator.consumers == 20
        assert world.store.count("children") == asked + 1
        world.elsewhere["h"] = "3 members"
        others = [Consumer(world, f"c{number}", '{"t":1}', group="h") for number in range(3)]
        await asyncio.gather(*(each.register() for each in others))
        assert {each.refused and each.refused.code for each in others} == {ErrorCode.NON_EMPTY_GROUP}


@run
async def test_commits_that_come_during_a_write_share_the_next_one() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        gate = world.store.gate = asyncio.Event()
        before = world.store.count("transaction")
        for offset in range(1, 11):
            world.coordinator.handle(a, PingResponse(0, "a", (PartitionOffset("t", 0, offset),)))
        await world.clock.elapse(0)
        assert PingRequest("a", CONFIRMATION) not in a.received
        gate.set()
        await world.pass_time(1)
        assert world.offset("t", 0) == 10
        assert a.received.count(PingRequest("a", CONFIRMATION)) == 10
        assert world.store.count("transaction") == before + 1
        # The store has it already.
        world.coordinator.handle(a, PingResponse(0, "a", (PartitionOffset("t", 0, 10),)))
        await world.pass_time(1)
        assert a.received.count(PingRequest("a", CONFIRMATION)) == 11
        assert world.store.count("transaction") == before + 1


@run
async def test_a_commit_is_confirmed_when_the_store_works_again() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        world.store.failing = True
        world.coordinator.handle(a, PingResponse(0, "a", (PartitionOffset("t", 0, 4),)))
        await world.pass_time(1)
        assert PingRequest("a", CONFIRMATION) not in a.received
        world.store.failing = False
        await world.pass_time(3)
        assert world.offset("t", 0) == 4
        assert a.received.count(PingRequest("a", CONFIRMATION)) == 1


@run
async def test_a_consumer_that_floods_commits_is_dropped() -> None:
    async with World() as world:
        await world.topic("t", 1)
        a = await world.consumer("a")
        await world.pass_time(1)
        gate = world.store.gate = asyncio.Event()
        for offset in range(2 * MOST_COMMITS):
            world.coordinator.handle(a, PingResponse(0, "a", (PartitionOffset("t", 0, offset),)))
            await world.clock.elapse(0)
        assert not a.connected
        assert "of its commits wait" in a.reasons[0]
        gate.set()
        await world.pass_time(1)
        assert not world.coordinator.groups


@run
async def test_groups_are_listed_and_described_as_groups_of_another_protocol() -> None:
    async with World() as world:
        groups = CoordinatedGroups(world.coordinator)
        assert groups.listings((), ()) == []
        assert groups.describe("g") is None
        await world.topic("t", 3)
        a = await world.consumer("a")
        assert groups.listings((), ()) == [("g", "coordinated", "PreparingRebalance", "classic")]
        await world.consumer("b")
        await world.pass_time(1)
        assert groups.listings(["stable"], ["Classic"]) == [("g", "coordinated", "Stable", "classic")]
        assert groups.listings(["Empty"], ()) == groups.listings((), ["consumer"]) == []
        described = groups.describe("g")
        assert described is not None
        assert (described.error, described.state, described.protocol_type) == (0, "Stable", "coordinated")
        shown = {
            (member.member_id, member.client_id, member.client_host): (
                decode_subscription(topics).topics,
                [(each.topic, each.partitions) for each in decode_assignment(assigned).assigned_partitions],
            )
            for member, topics, assigned in described.members
        }
        assert shown == {
            ("a", "a", "/a"): (["t"], [("t", [0, 1])]),
            ("b", "b", "/b"): (["t"], [("t", [2])]),
        }
        a.ignores.add(StopFetcherRequest)
        await world.consumer("c")
        await world.pass_time(0.1)
        assert [each.state for each in groups.listings((), ())] == ["PreparingRebalance"]
