"""Nothing acknowledged is lost in any order of events: random histories of three brokers."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.replica.world import World
from tests.support.depth import examples

from ottla_broker.replica.partition import Role

NUMBERS = st.integers(0, 2**16)
ACTIONS = st.sampled_from(
    [
        *["produce"] * 4,
        *["deliver"] * 8,
        *["deliver state"] * 3,
        *["decide"] * 2,
        "lose",
        "lose answer",
        "wait",
        "wait long",
        "crash",
        "power cut",
        "start",
        "suspect",
        "lose decision",
    ]
)
HISTORY = st.lists(st.tuples(ACTIONS, NUMBERS), min_size=10, max_size=80)


async def act(world: World, action: str, number: int) -> None:
    broker = world.numbers[number % 3]
    running = sorted(world.nodes)
    if action == "produce":
        for each in running:
            world.produce(each, 1 + number % 3)
    elif action in ("deliver", "lose"):
        if world.letters:
            world.deliver(number, lose=action == "lose")
    elif action == "lose answer":
        world.lose_answers += 1
    elif action == "deliver state":
        world.deliver_state(broker)
    elif action in ("decide", "lose decision"):
        if world.proposals:
            world.decide(number % len(world.proposals), answer_lost=action == "lose decision")
    elif action == "wait":
        world.clock.time += 0.6
    elif action == "wait long":
        world.clock.time += 11
        for node in world.nodes.values():
            node.partition.remove_lagging()
    elif action in ("crash", "power cut"):
        if broker in world.nodes:
            isr = world.state.isr
            # The last in-sync replica must not lose records: replication can't restore them.
            others = [each for each in isr if each != broker and each in world.nodes]
            log = world.nodes[broker].local
            cut = None
            if action == "power cut" and (others or broker not in isr):
                cut = number % (log.log_end_offset + 1)
            await world.kill(broker, cut)
            world.gone(broker)
    elif action == "start":
        if broker not in world.nodes:
            world.start(broker)
            world.came(broker)
    elif action == "suspect" and broker in world.nodes:
        # The controller is wrong: the broker lives, and goes on until it gets the new state.
        others = [each for each in world.state.isr if each != broker and each in world.nodes]
        if others:
            world.gone(broker)


async def run(history: list[tuple[str, int]], min_isr: int, fetch_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), min_isr=min_isr, fetch_bytes=fetch_bytes)
        try:
            for action, number in history:
                await act(world, action, number)
                await world.settle_down()
                world.check()

            def all_the_same() -> bool:
                if len(world.state.isr) < 3 or any(world.unsent.values()):
                    return False
                ends = {node.local.log_end_offset for node in world.nodes.values()}
                highs = {node.partition.high_watermark for node in world.nodes.values()}
                return len(ends) == 1 and highs == ends

            await world.heal(all_the_same)
            for number in world.numbers:
                world.check_nothing_lost(number)
            assert [n.partition.role for n in world.nodes.values()].count(Role.LEADER) == 1
        finally:
            await world.close()


@pytest.mark.parametrize("min_isr", [1, 2])
@given(history=HISTORY, fetch_bytes=st.sampled_from([100, 1 << 20]))
@settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_acknowledged_is_lost(min_isr: int, history: list[tuple[str, int]], fetch_bytes: int) -> None:
    asyncio.run(run(history, min_isr, fetch_bytes))


def test_a_follower_that_truncated_gets_the_high_watermark_again() -> None:
    """Followers take none from an answer that says where logs diverge: so the next answer says it again."""
    history = [*[("produce", 0)] * 4, ("deliver state", 0), ("deliver state", 1), ("crash", 2)]
    asyncio.run(run([*history, ("produce", 0), ("deliver", 0), ("suspect", 0)], 1, 100))
