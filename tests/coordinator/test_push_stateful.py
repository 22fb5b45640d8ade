"""The 2012 coordinator with consumers that come, go, freeze and lose it, and brokers that elect another."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.coordinator.push_brokers import DOUBT_SECONDS, LEFT_SECONDS, Brokers
from tests.coordinator.push_world import SESSION, Consumer, World, run
from tests.support.depth import examples

from ottla_protocol.push import StopFetcherRequest

Action = tuple[str, int]
_actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["join", "join", "leave", "freeze", "thaw", "deaf", "grow", "fail over", "read", "wait", "store"]
        ),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=10,
)


@settings(max_examples=examples(25), deadline=None)
@given(_actions)
@run
async def test_no_partition_has_two_readers_and_in_the_end_each_has_one(actions: list[Action]) -> None:
    async with World(max_retries=1) as world:
        await world.topic("t", 3)
        sizes = {"t": 3}
        for action, number in actions:
            consumer = world.consumers.get(f"c{number}")
            if action == "join" and (consumer is None or not consumer.connected):
                topics = '{"t":1,"u":2}' if number % 2 else "*1*.*"
                await world.consumer(f"c{number}", topics)
            elif action == "grow":
                name = "tu"[number % 2]
                sizes[name] = sizes.get(name, 0) + 1
                await world.topic(name, sizes[name])
            elif action == "fail over":
                await world.fail_over()
            elif action == "wait":
                await world.pass_time(number * 1.5)
            elif action == "store":
                world.store.failing = not world.store.failing
            elif consumer is not None:
                _do(consumer, action)
            await world.pass_time(0.5)
        world.store.failing = False
        for consumer in world.consumers.values():
            consumer.ignores = set()
            if consumer.frozen:
                consumer.thaw()
        await world.pass_time(SESSION * 2)
        for consumer in world.consumers.values():
            if not consumer.connected:
                await consumer.register()
        await world.pass_time(SESSION * 2)
        if world.consumers:
            expected = {(topic, number) for topic, count in sizes.items() for number in range(count)}
            assert world.readers().keys() == expected
            assert {
                each: owner.rpartition("-")[0] for each, owner in world.owners().items()
            } == world.readers()
        for consumer in world.consumers.values():
            consumer.leave()
        await world.pass_time(5)
        assert not world.coordinator.groups
        assert not world.owners()
        assert not [path for path in world.store.nodes if path.startswith("/ottla/coordinated/")]


def _do(consumer: Consumer, action: str) -> None:
    if action == "leave":
        consumer.leave()
    elif action == "freeze":
        consumer.frozen = True
    elif action == "thaw" and consumer.frozen:
        consumer.thaw()
    elif action == "deaf":
        consumer.ignores = {StopFetcherRequest}
    elif action == "read":
        consumer.read(1)


_of_brokers = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "cut",
                "cut",
                "heal",
                "kill",
                "start",
                "join",
                "join",
                "leave",
                "freeze",
                "thaw",
                "grow",
                "read",
                "wait",
            ]
        ),
        st.integers(0, 4),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=examples(20), deadline=None)
@given(_of_brokers)
@example([("freeze", 0), ("cut", 1), ("wait", 2)])
@run
async def test_a_group_has_one_coordinator_though_sessions_end_and_brokers_die(actions: list[Action]) -> None:
    """Sessions are suspended and end, brokers die, and the next coordinator begins; a suspended one may still run."""
    async with Brokers(max_retries=1) as world:
        await world.topic("t", 3)
        partitions = 3
        await world.consumer("c0")
        for action, number in actions:
            broker = world.brokers[number % 3]
            if number > 2 and world.leaders:
                (broker,) = world.leaders
            name = f"c{number % 3}"
            consumer = world.consumers.get(name)
            if action == "cut" and broker.alive:
                broker.session.cut()
            elif action == "heal" and broker.alive:
                broker.session.heal()
            elif action == "kill" and broker.alive:
                await broker.die()
            elif action == "start":
                await world.restart(number % 3)
            elif action == "join" and consumer is None:
                await world.consumer(name)
            elif action == "grow":
                partitions += 1
                await world.topic("t", partitions)
            elif action == "wait":
                await world.pass_time(number * 1.5)
            elif action == "leave" and consumer is not None and not consumer.frozen:
                world.gone.add(consumer)
                consumer.leave()
            elif consumer is not None and consumer not in world.gone:
                _do(consumer, action)
            await world.pass_time(0.5)
        for broker in world.brokers:
            if broker.alive:
                broker.session.heal()
            await world.restart(broker.number)
        for consumer in world.consumers.values():
            if consumer.frozen:
                consumer.thaw()
        await world.pass_time(SESSION * 3)
        assert len(world.leaders) == 1
        live = {each.name for each in world.consumers.values() if each not in world.gone}
        readers = world.readers()
        assert set(readers.values()) <= live
        assert readers.keys() == ({("t", number) for number in range(partitions)} if live else set())
        if live:
            owners = {each: owner.rpartition("-")[0] for each, owner in world.owners().items()}
            assert owners == readers
            assert "/ottla/coordinated/g" in world.store.nodes


@run
async def test_a_coordinator_resigns_before_its_session_can_end() -> None:
    async with Brokers() as world:
        await world.topic("t", 2)
        a = await world.consumer("a")
        await world.pass_time(1)
        (first,) = world.leaders
        assert world.store.nodes["/consumers/coordinator"] == b"%d" % first.number
        # For a moment: it stays.
        first.session.cut()
        await world.pass_time(1)
        first.session.heal()
        await world.pass_time(1)
        assert world.leaders == [first]
        assert a.connected
        # It is in doubt, and resigns; the session has not ended, and it is elected again.
        first.session.cut()
        await world.clock.elapse(DOUBT_SECONDS)
        assert not world.leaders
        assert not a.reading
        first.session.heal()
        await world.clock.elapse(0)
        assert world.leaders == [first]
        await world.pass_time(SESSION)
        assert len(a.reading) == 2
        # The session ends, and another takes over, which waits for the consumers that the owners name.
        first.session.cut()
        await world.clock.elapse(LEFT_SECONDS)
        (second,) = world.leaders
        assert second is not first
        await world.pass_time(2)
        assert len(a.reading) == 2
        assert a.coordinator is second.coordinator
        # The first one is back, in another session, and knows whom to name.
        first.session.heal()
        await world.pass_time(1)
        assert world.leaders == [second]
        assert first.elector.coordinator_id == second.number
        # A node that is deleted by hand is an election, too.
        await world.store.delete("/consumers/coordinator")
        await world.pass_time(1)
        assert len(world.leaders) == 1


@run
async def test_a_malformed_node_of_the_coordinator_is_an_error_until_it_is_deleted() -> None:
    async with Brokers() as world:
        (first,) = world.leaders
        await world.store.set("/consumers/coordinator", b"me")
        await world.clock.elapse(1)
        assert {broker.elector.coordinator_id for broker in world.brokers} == {-1}
        a = await world.consumer("a")
        assert a.refused is not None
        await world.store.delete("/consumers/coordinator")
        await world.topic("t", 1)
        await world.pass_time(3)
        assert a.reading == {("t", 0)}
        assert first in world.brokers
