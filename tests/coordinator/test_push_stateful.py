"""The 2012 coordinator with consumers that come, go, freeze and lose it, in any order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.push_world import SESSION, Consumer, World, run

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


@settings(max_examples=15, deadline=None)
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
