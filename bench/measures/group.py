"""Many consumers join one group at once: time until all are stable, and heartbeat latency then.

Each consumer has its own connection and acts like a client library: FindCoordinator, JoinGroup (again with the member
id that it gets), SyncGroup, then a heartbeat every three seconds, and another join when the group rebalances. They
are asyncio coroutines in this process that pack their requests by hand. The group is stable when every consumer has
an assignment of the same generation. It runs twice: without ``group.initial.rebalance.delay.ms``, so that only work
counts, and with Kafka's default of 3 s, most of which is waiting.
"""

from __future__ import annotations

import asyncio
import struct
import time

from harness import wire
from harness.brokers import HOST, Broker

from bench.context import Bench
from bench.measures.latency import add_percentiles

PARTITIONS = 100
HEARTBEAT_SECONDS = 3.0
_RETRY = {wire.COORDINATOR_LOAD_IN_PROGRESS, wire.COORDINATOR_NOT_AVAILABLE, wire.NOT_COORDINATOR}


class _Member:
    """One consumer: its connection and state."""

    def __init__(self, group: _Group) -> None:
        self._group = group
        self.id = ""
        self.generation = -1

    async def run(self) -> None:
        self._in, self._out = await asyncio.open_connection(HOST, self._group.port)
        try:
            await self._find()
            while True:
                await self._join()
                await self._stay()
        finally:
            self._out.close()

    async def _call(self, api: tuple[int, int], body: bytes) -> wire.Reader:
        self._out.write(wire.frame(api, body))
        size = struct.unpack(">i", await self._in.readexactly(4))[0]
        return wire.Reader(await self._in.readexactly(size), 4)

    async def _find(self) -> None:
        while True:
            error = wire.throttled_error(
                await self._call(wire.FIND_COORDINATOR, wire.find_coordinator(self._group.id))
            )
            if not error:
                return
            if error not in _RETRY:
                raise RuntimeError(f"FindCoordinator answered error {error}")
            await asyncio.sleep(0.1)

    async def _join(self) -> None:
        """Join and sync until both succeed."""
        group, topic = self._group.id, self._group.topic
        while True:
            self._group.unsettle(self)
            joined = wire.joined(await self._call(wire.JOIN_GROUP, wire.join_group(group, self.id, topic)))
            self.id = joined.member or self.id
            if joined.error == wire.MEMBER_ID_REQUIRED:
                continue
            if joined.error in _RETRY:
                await asyncio.sleep(0.1)
                continue
            if joined.error:
                raise RuntimeError(f"JoinGroup answered error {joined.error}")
            shares = {}
            if joined.leader == self.id:
                for index, member in enumerate(joined.members):
                    mine = [index] if index < self._group.partitions else []
                    shares[member] = wire.assignment(topic, mine)
            request = wire.sync_group(group, joined.generation, self.id, shares)
            error = wire.throttled_error(await self._call(wire.SYNC_GROUP, request))
            if not error:
                self.generation = joined.generation
                self._group.settle(self)
                return
            if error != wire.REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"SyncGroup answered error {error}")

    async def _stay(self) -> None:
        """Send heartbeats until the group rebalances."""
        while True:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            sent = time.perf_counter()
            request = wire.heartbeat(self._group.id, self.generation, self.id)
            error = wire.throttled_error(await self._call(wire.HEARTBEAT, request))
            self._group.heartbeats.append(time.perf_counter() - sent)
            if error == wire.REBALANCE_IN_PROGRESS:
                return
            if error:
                raise RuntimeError(f"Heartbeat answered error {error}")


class _Group:
    """All consumers of one group."""

    def __init__(self, port: int, group: str, topic: str, partitions: int, size: int) -> None:
        self.port, self.id, self.topic, self.partitions, self.size = port, group, topic, partitions, size
        self.heartbeats: list[float] = []
        self._settled: dict[_Member, int] = {}
        self._stable = asyncio.Event()

    def settle(self, member: _Member) -> None:
        self._settled[member] = member.generation
        if len(self._settled) == self.size and len(set(self._settled.values())) == 1:
            self._stable.set()

    def unsettle(self, member: _Member) -> None:
        self._settled.pop(member, None)
        self._stable.clear()

    async def run(self, then: float) -> float:
        """Return the seconds until all are stable; collect heartbeats for ``then`` seconds more."""
        began = time.perf_counter()
        tasks = [asyncio.create_task(_Member(self).run()) for _ in range(self.size)]
        stable = asyncio.create_task(self._stable.wait())
        try:
            done, _ = await asyncio.wait([stable, *tasks], timeout=180, return_when=asyncio.FIRST_COMPLETED)
            if stable not in done:
                for task in done:
                    task.result()
                raise RuntimeError(f"{len(self._settled)} of {self.size} consumers were stable after 180 s")
            seconds = time.perf_counter() - began
            self.heartbeats.clear()
            await asyncio.sleep(then)
            return seconds
        finally:
            for task in [stable, *tasks]:
                task.cancel()
            await asyncio.gather(stable, *tasks, return_exceptions=True)


def measure(bench: Bench) -> None:
    size = bench.scaled(1000, 200)
    for delay, label in (("0", "no delay"), ("3000", "default delay")):
        settings = {"group.initial.rebalance.delay.ms": delay}
        with bench.all_up(settings) as brokers:
            for broker in brokers:
                topic = bench.topic(broker, PARTITIONS)
                # One consumer first, to create __consumer_offsets and load code.
                asyncio.run(_Group(broker.port, "warm-up", topic, PARTITIONS, 1).run(0))
            # Without the delay, late members learn of the next rebalance by their heartbeats. So the figure
            # varies by seconds between runs, and needs more of them.
            for index in range(bench.repeats if delay != "0" else bench.scaled(2 * bench.repeats + 1, 1)):
                for broker in brokers:
                    _one(bench, broker, f"bench-group-{index}", size, label)


def _one(bench: Bench, broker: Broker, group: str, size: int, label: str) -> None:
    topic = bench.topic(broker, PARTITIONS)
    members = _Group(broker.port, group, topic, PARTITIONS, size)
    seconds = asyncio.run(members.run(then=3 * HEARTBEAT_SECONDS))
    bench.add("group", f"{size:,} stable, {label}", "s", "lower", broker, seconds)
    beats = sorted(beat * 1000 for beat in members.heartbeats)
    add_percentiles(bench, "group", f"{size:,} heartbeats p%, {label}", broker, beats)
    bench.drop(broker, topic)
