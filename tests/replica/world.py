"""Brokers in memory that replicate one partition: real logs, fetchers and handlers; tests control links and time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.support.clock import FakeClock
from tests.support.handlers import INTER_BROKER, begun, handled, request_context, services, when_answered

from ottla_broker.handlers import fetch as fetch_handler
from ottla_broker.handlers import list_offsets as list_offsets_handler
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.fetch_session import FetchSessions
from ottla_broker.replica.fetcher import Fetcher, FetcherSettings
from ottla_broker.replica.isr import IsrChange, IsrOutcome
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition, Role
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import FetchRequest, FetchResponse
from ottla_protocol.messages.list_offsets import ListOffsetsResponse
from ottla_protocol.records.batch import read_header
from ottla_protocol.records.record import decode_records, encode_batch

TOPIC = "t"
TOPIC_ID = b"0123456789abcdef"
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 8
MAX_LAG_SECONDS = 10.0


def open_log(path: Path, clock: FakeClock, config: LogConfig | None = None, index: int = 0) -> Log:
    """The open log of a partition, created if it doesn't exist."""
    path.mkdir(parents=True, exist_ok=True)
    environment = LogEnvironment(Files(64), clock.now_ms, Random(1))
    log = Log(str(path), TOPIC, index, config or LogConfig(), environment, topic_id=TOPIC_ID)
    log.open()
    return log


class Link:
    """A fetcher's connection: each request waits until the test delivers or loses it."""

    def __init__(self, world: World, source: int, target: int) -> None:
        self.world = world
        self.source = source
        self.target = target
        self.closed = False
        self.waiting: list[Letter] = []

    def version_of(self, api_key: int) -> int:
        return FETCH_VERSION

    def submit(self, request: Any, *, timeout: float, version: int | None = None) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        version = LIST_OFFSETS_VERSION if version is None else version
        data = request.encode(version)
        letter = Letter(self, type(request), data, version, future)
        self.waiting = [each for each in self.waiting if not each.future.done()]
        self.waiting.append(letter)
        self.world.letters.append(letter)
        return future

    def close(self) -> None:
        self.closed = True
        self.world.letters = [each for each in self.world.letters if each.link is not self]
        for letter in self.waiting:
            letter.fail("closed")


class Letter:
    """A request on its way to the leader."""

    def __init__(self, link: Link, kind: Any, data: bytes, version: int, future: asyncio.Future[Any]) -> None:
        self.link = link
        self.kind = kind
        self.data = data
        self.version = version
        self.future = future

    def fail(self, why: str) -> None:
        if not self.future.done():
            self.future.set_exception(ConnectionError(why))


class Node:
    """A broker's process; only its log's files survive it."""

    def __init__(self, world: World, number: int, log: Log, committed: int | None) -> None:
        self.world = world
        self.number = number
        self.epoch = world.next_broker_epoch()
        self.local = log
        self.alive = True
        logs: Any = SimpleNamespace(get=lambda *_: log, high_watermark=lambda *_: committed)
        environment = ReplicaEnvironment(
            number,
            logs,
            world.clock,
            MAX_LAG_SECONDS,
            lambda broker, _: broker in world.nodes,
            lambda change: world.proposals.append((self, change)),
        )
        self.partition = Partition(TOPIC, 0, TOPIC_ID, environment)
        self.fetchers: dict[int, Fetcher] = {}
        replicas = SimpleNamespace(
            partition=lambda topic, index: self.partition if (topic, index) == (TOPIC, 0) else None,
            count_closed=lambda _: 0,
            topic_name=lambda topic_id: TOPIC if topic_id == TOPIC_ID else None,
            selector=None,
            leader_quota=None,
            counters=environment.counters,
        )
        self.services = services(
            replicas=replicas,
            metadata=SimpleNamespace(
                topic=lambda _: None, topic_by_id=lambda _: None, brokers=dict.fromkeys(world.numbers)
            ),
            config=SimpleNamespace(fetch_max_bytes=1 << 26),
            fetch_sessions=FetchSessions(100, world.clock, world.random),
            clock=world.clock,
        )

    def apply(self, state: LeaderState) -> None:
        """Apply a state from the controller (LeaderAndIsr)."""
        if state.leader_epoch <= self.partition.leader_epoch:
            return
        key = (TOPIC, 0)
        for each in self.fetchers.values():
            each.remove(key)
        if state.leader == self.number:
            self.partition.lead(state)
        elif self.partition.follow(state) and state.leader >= 0:
            fetcher = self.fetchers.get(state.leader)
            if fetcher is None:
                fetcher = self.fetchers[state.leader] = Fetcher(
                    state.leader,
                    self.number,
                    lambda: self.epoch,
                    self._connect,
                    FetcherSettings(max_bytes=self.world.fetch_bytes, backoff_ms=0),
                    self.world.clock,
                    lambda _, error: self.world.complain(error),
                )
            fetcher.add(self.partition)
            fetcher.hurry()

    async def _connect(self, target: int) -> Link:
        if target not in self.world.nodes:
            # A pause, or the fetcher would never release the loop.
            await asyncio.sleep(0.001)
            raise ConnectionError("refused")
        link = Link(self.world, self.number, target)
        self.world.links.append(link)
        return link

    def serve(self, letter: Letter) -> None:
        request = letter.kind.decode(memoryview(letter.data), letter.version, 0)
        context = request_context(self.services, letter.version, letter.kind.API_KEY, INTER_BROKER)
        if letter.kind is FetchRequest:
            running = begun(fetch_handler, context, request)
            when_answered(running, lambda response: self._answered(letter, response))
        else:
            data = memoryview(handled(list_offsets_handler, context, request).encode(letter.version))
            letter.future.set_result(ListOffsetsResponse.decode(data, letter.version, 0))

    def _answered(self, letter: Letter, response: Any) -> None:
        if isinstance(response, BaseException):
            raise response
        parts = response.encode_parts(letter.version)
        data = b"".join(bytes(part.read()) if hasattr(part, "read") else bytes(part) for part in parts)
        if not self.alive or letter.future.done():
            return
        if self.world.lose_answers > 0:
            self.world.lose_answers -= 1
            letter.link.close()
            return
        letter.future.set_result(FetchResponse.decode(memoryview(data), letter.version, 0))

    async def end(self) -> None:
        self.alive = False
        self.partition.stop()
        for fetcher in self.fetchers.values():
            await fetcher.close()


class World:
    """Three brokers, the controller's state, and the requests on their way between them."""

    def __init__(self, folder: Path, min_isr: int = 1, fetch_bytes: int = 1 << 20, seed: int = 1) -> None:
        self.clock = FakeClock()
        self.random = Random(seed)
        self.fetch_bytes = fetch_bytes
        self.config = LogConfig(min_insync_replicas=min_isr, segment_bytes=2_000)
        self.folder = folder
        self.letters: list[Letter] = []
        self.links: list[Link] = []
        self.proposals: list[tuple[Node, IsrChange]] = []
        self.lose_answers = 0
        self.complaints: list[object] = []
        self._broker_epoch = 0
        self.numbers = (1, 2, 3)
        self.committed_at_death: dict[int, int | None] = dict.fromkeys(self.numbers)
        self.nodes: dict[int, Node] = {}
        # The controller's state, and the states it has not sent to each broker yet.
        self.state = LeaderState(1, 1, 0, (1, 2, 3), 0, self.numbers)
        self.unsent: dict[int, list[LeaderState]] = {number: [] for number in self.numbers}
        # Values acknowledged with acks=all, by offset.
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0
        self._seen: dict[tuple[int, int, int], int] = {}
        for number in self.numbers:
            self.start(number)
        self.send_state()

    def complain(self, about: object) -> None:
        self.complaints.append(about)

    def next_broker_epoch(self) -> int:
        self._broker_epoch += 1
        return self._broker_epoch

    def start(self, number: int) -> None:
        node = Node(
            self,
            number,
            open_log(self.folder / str(number), self.clock, self.config),
            self.committed_at_death[number],
        )
        self.nodes[number] = node

    async def kill(self, number: int, cut_to: int | None = None) -> None:
        """Kill the process; with ``cut_to`` the machine, losing what was not on the device: all above that offset."""
        node = self.nodes.pop(number)
        await node.end()
        for link in self.links:
            if number in (link.source, link.target):
                link.close()
        self.links = [link for link in self.links if not link.closed]
        self.proposals = [each for each in self.proposals if each[0] is not node]
        self.unsent[number].clear()
        log = node.local
        high = node.partition.high_watermark
        self.committed_at_death[number] = self.random.randint(0, high) if high > 0 else 0
        if cut_to is not None and cut_to < log.log_end_offset:
            log.truncate_to(cut_to)
        log.close()

    def send_state(self, numbers: tuple[int, ...] | None = None) -> None:
        for number in numbers or self.numbers:
            if number in self.nodes:
                self.unsent[number].append(self.state)

    def move(self, leader: int, isr: Sequence[int]) -> None:
        """Begin another leader epoch."""
        state = self.state
        self.state = state._replace(
            leader=leader,
            isr=isr,
            leader_epoch=state.leader_epoch + 1,
            partition_epoch=state.partition_epoch + 1,
        )
        self.send_state()

    def gone(self, number: int, unclean: bool = False) -> None:
        """The controller takes a broker for dead."""
        state = self.state
        rest = tuple(each for each in state.isr if each != number)
        alive = tuple(each for each in rest if each in self.nodes)
        if state.leader == number:
            if alive:
                self.move(self.random.choice(alive), rest)
            elif unclean and self.nodes:
                chosen = self.random.choice([each for each in self.nodes if each != number] or [-1])
                self.move(chosen, (chosen,) if chosen > 0 else state.isr)
            else:
                self.move(-1, state.isr)
        elif number in state.isr and len(state.isr) > 1:
            self.move(state.leader, rest)

    def came(self, number: int) -> None:
        state = self.state
        if state.leader < 0 and number in state.isr:
            self.move(number, tuple(each for each in state.isr if each in self.nodes))
        else:
            self.send_state((number,))

    def decide(self, index: int, answer_lost: bool) -> None:
        """Answer one of the leaders' proposals."""
        node, change = self.proposals.pop(index)
        state = self.state
        outcome = IsrOutcome(ErrorCode.NONE)
        if change.leader_epoch != state.leader_epoch:
            outcome = IsrOutcome(ErrorCode.FENCED_LEADER_EPOCH)
        elif set(change.isr) == set(state.isr):
            pass
        elif change.partition_epoch != state.partition_epoch:
            outcome = IsrOutcome(ErrorCode.INVALID_UPDATE_VERSION)
        elif not all(map(self._is_eligible, change.isr, change.epochs)):
            outcome = IsrOutcome(ErrorCode.INELIGIBLE_REPLICA)
        else:
            self.state = state = state._replace(
                isr=tuple(change.isr), partition_epoch=state.partition_epoch + 1
            )
        if outcome.error is ErrorCode.NONE:
            outcome = IsrOutcome(ErrorCode.NONE, state.leader_epoch, state.partition_epoch, tuple(state.isr))
        if answer_lost or not node.partition.on_isr_answer(change, outcome):
            self.proposals.append((node, change))

    def _is_eligible(self, number: int, epoch: int) -> bool:
        """Whether it is alive, and the process that the leader has seen (KIP-903)."""
        return number in self.nodes and epoch in (-1, self.nodes[number].epoch)

    def deliver_state(self, number: int) -> None:
        if number in self.nodes and self.unsent[number]:
            self.nodes[number].apply(self.unsent[number].pop(0))

    def produce(self, number: int, count: int) -> None:
        node = self.nodes.get(number)
        if node is None or node.partition.role is not Role.LEADER or node.partition.is_under_min_isr():
            return
        values = []
        for _ in range(count):
            self.sent += 1
            values.append(b"%d" % self.sent)
        batch = encode_batch([(self.clock.now_ms(), b"k", value, ()) for value in values])
        info = node.partition.append(memoryview(batch), self.clock.now_ms())
        wanted = {info.first_offset + number: value for number, value in enumerate(values)}

        def committed(outcomes: Sequence[Outcome]) -> None:
            self._acknowledge(wanted if outcomes[0].error is ErrorCode.NONE else {})

        awaited = Awaited(node.partition.when_committed, info.last_offset + 1)
        DelayedProduce([awaited], self.clock, committed).start(60_000)

    def _acknowledge(self, records: dict[int, bytes]) -> None:
        for offset, value in records.items():
            assert self.acknowledged.setdefault(offset, value) == value, "an offset was acknowledged twice"

    async def settle_down(self) -> None:
        """Run until only the test can make progress."""
        for _ in range(12):
            self.clock.run_due()
            await asyncio.sleep(0)

    def deliver(self, index: int, lose: bool) -> None:
        letter = self.letters.pop(index % len(self.letters))
        target = self.nodes.get(letter.link.target)
        if lose or target is None:
            letter.link.close()
        else:
            target.serve(letter)

    async def heal(self, until: Callable[[], bool], steps: int = 400) -> None:
        """Start all brokers and deliver everything, until ``until``."""
        self.lose_answers = 0
        for number in self.numbers:
            if number not in self.nodes:
                self.start(number)
                self.came(number)
        for _ in range(steps):
            for number in self.numbers:
                while self.unsent[number]:
                    self.deliver_state(number)
            while self.proposals:
                before = len(self.proposals)
                self.decide(0, False)
                if len(self.proposals) >= before:
                    break
            await self.settle_down()
            for _ in range(len(self.letters)):
                self.deliver(0, False)
            await self.settle_down()
            self.check()
            if until():
                return
            self.clock.time += 0.5
            await asyncio.sleep(0.0005)
        raise AssertionError(f"nothing moves any more: {self.describe()}")

    def describe(self) -> str:
        nodes = [
            f"{number}: {node.partition!r} isr={node.partition.isr}"
            f" hw={node.partition.high_watermark} end={node.local.log_end_offset}"
            f" latest={node.local.epochs.latest}"
            for number, node in self.nodes.items()
        ]
        return f"{self.state} | {' | '.join(nodes)} | letters {len(self.letters)}"

    def values(self, number: int) -> dict[int, tuple[int, bytes]]:
        """Leader epoch and value of every record in a broker's log."""
        log = self.nodes[number].local
        found: dict[int, tuple[int, bytes]] = {}
        for chunk in log.reader.scan_batches(log.log_start_offset):
            position = 0
            while position < len(chunk):
                header = read_header(chunk, position)
                for index, record in enumerate(decode_records(chunk, position, header)):
                    found[header.base_offset + index] = (header.partition_leader_epoch, record.value or b"")
                position += header.size
        return found

    def check(self) -> None:
        """High watermarks don't go back in an epoch, and logs are the same below them."""
        assert not self.complaints, self.complaints
        logs = {}
        for number, node in self.nodes.items():
            partition = node.partition
            if partition.role not in (Role.LEADER, Role.FOLLOWER):
                continue
            key = (number, node.epoch, partition.leader_epoch)
            high = partition.high_watermark
            assert high >= self._seen.get(key, 0), f"the high watermark went back: {self.describe()}"
            assert high <= node.local.log_end_offset, self.describe()
            self._seen[key] = high
            logs[number] = (high, self.values(number))
        numbers = sorted(logs)
        for first in numbers:
            for second in numbers:
                if first < second:
                    (high_a, a), (high_b, b) = logs[first], logs[second]
                    common = min(high_a, high_b)
                    assert {o: v for o, v in a.items() if o < common} == {
                        o: v for o, v in b.items() if o < common
                    }, self.describe()

    def check_nothing_lost(self, number: int) -> None:
        values = self.values(number)
        for offset, value in self.acknowledged.items():
            assert values.get(offset, (0, b""))[1] == value, f"offset {offset} was lost: {self.describe()}"

    async def close(self) -> None:
        for node in list(self.nodes.values()):
            await node.end()
            node.local.close()
        self.nodes.clear()
