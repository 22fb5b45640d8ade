"""How a broker notices that another broker's process has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.support.processes import BrokerProcess
from tests.support.waiting import until

from ottla_broker.clock import SystemClock
from ottla_broker.cluster.peer_monitor import PeerMonitor
from ottla_broker.network.peer import Peers


async def test_a_dead_process_is_noticed_before_the_event_loop_runs(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    """Its client may ask another broker in the same turn of the loop, and must not be sent back."""
    broker = own_broker()
    clock = SystemClock(asyncio.get_running_loop())
    peers = Peers("broker-1", clock)
    reached: dict[int, bool] = {}
    dead: list[int] = []
    monitor = PeerMonitor(1, peers, clock, lambda _: 0, dead.append, reached.__setitem__)
    peers.set_address(2, "127.0.0.1", broker.port)
    monitor.watch({1, 2})
    try:
        await until(lambda: reached == {2: True})
        monitor.check_closed()
        assert reached == {2: True}
        broker.kill()
        assert reached == {2: True}
        monitor.check_closed()
        assert reached == {2: False}
        await until(lambda: dead == [2])
        assert monitor.is_dead(2)
        monitor.watch({1})
        assert reached == {2: True}, "nothing is said of a broker that isn't watched"
    finally:
        await monitor.close()
        await peers.close()
