"""Thousands of consumers in one process, each with a connection of its own; ``python -m bench.thousands JSON``.

They do what a client library does, with callbacks instead of coroutines and requests packed by hand, so that one core
is enough for them. Members of classic groups send FindCoordinator, JoinGroup (again with the member id that they get),
SyncGroup, then a heartbeat every :data:`HEARTBEAT_SECONDS`, and join again when the group rebalances; then they also
commit an offset each second. Consumers of the coordinator of 2012 register, and answer what is pushed to them.

The process writes one line of JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, cast

from harness import wire
from harness.brokers import HOST

from ottla_protocol.push import (
    MAX_PUSH,
    FrameReader,
    PartitionOffset,
    PingRequest,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherRequest,
    StartFetcherResponse,
    StopFetcherRequest,
    StopFetcherResponse,
    decode_push,
)

HEARTBEAT_SECONDS = 3.0
COMMIT_SECONDS = 1.0
_LIMIT = 240.0
_UNANSWERED = 40
"""So many connections at a time have no answer yet: below Kafka's ``socket.listen.backlog.size``, 50. What comes when
that is full, the kernel drops, and resets the connection minutes later."""
_RETRY = {wire.COORDINATOR_LOAD_IN_PROGRESS, wire.COORDINATOR_NOT_AVAILABLE, wire.NOT_COORDINATOR}


@dataclass(frozen=True, slots=True)
class Job:
    """``size`` consumers in ``groups`` groups, at a port: ``kind`` is members or push.

    After they are stable, members send heartbeats for ``beats`` seconds, and then also commit for ``commits`` seconds.
    Then, with ``others``, the ports of more brokers, one leaves, one is killed, and after the line ``coordinator PORT``
    the caller kills that broker. Push consumers stay for ``beats`` seconds; then one closes its connection, and another
    one falls silent.
    """

    kind: str
    port: int
    topic: str
    partitions: int
    size: int
    groups: int = 1
    beats: float = 0.0
    commits: float = 0.0
    prefix: str = "load"
    session_ms: int = 30_000
    others: tuple[int, ...] = ()


@dataclass(slots=True)
class Done:
    """Seconds from the first connection, and latencies in ms.

    Attributes:
        connected: when all had connected (members) or registered (push).
        stable: when all were members of one generation of their group, or had started their fetchers.
        closed, silent: until all others had started again after one had closed its connection, or fell silent.
        left, killed: until all others had a new assignment after one had left, or was killed without a word.
        moved: from the coordinator's death until all had an answer of the next one.
        expelled: how many of those it didn't know, or had join again.
    """

    connected: float = 0.0
    stable: float = 0.0
    heartbeats_ms: list[float] = field(default_factory=list)
    commits_ms: list[float] = field(default_factory=list)
    commits_sent: int = 0
    closed: float = 0.0
    silent: float = 0.0
    left: float = 0.0
    killed: float = 0.0
    moved: float = 0.0
    expelled: int = 0


def run(job: Job, heard: Callable[[str], None] = lambda _: None) -> Done:
    """Do a job in a process of its own; ``heard`` gets the lines by which it says that a phase begins or ends.

    Raises RuntimeError with the load's last lines if it fails.
    """
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.thousands", json.dumps(asdict(job))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        last = ""
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                last = line.strip()
                heard(last)
        if process.wait(60):
            errors.seek(0)
            raise RuntimeError(f"the load failed at {job}:\n{errors.read()[-2000:]}")
        return Done(**json.loads(last))


class _Failed(Exception):
    """The brokers answered what they mustn't."""


class _Load:
    """All consumers of the job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.done = Done()
        self.loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[None] = self.loop.create_future()
        self.began = time.perf_counter()
        self.room = asyncio.Semaphore(_UNANSWERED)
        self.measures = False
        self.commits = False
        self.died_at: float | None = None
        """When a connection to the coordinator broke first; 0: it is about to die, None: it must not."""
        self.tasks: list[asyncio.Task[None]] = []
        self._stable = asyncio.Event()
        # Of each group: how many of its members have an assignment of each generation.
        self._settled: list[dict[int, int]] = [{} for _ in range(job.groups)]
        self._whole = [False] * job.groups
        self.left = [0] * job.groups
        self.missing = job.groups
        self.connected = 0

    def fail(self, why: str) -> None:
        if not self.failed.done():
            self.failed.set_exception(_Failed(why))

    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def has_connected(self) -> None:
        self.connected += 1
        if self.connected == self.job.size:
            self.done.connected = self.seconds()

    def settle(self, group: int, generation: int, by: int, size: int) -> None:
        """A member has got (1), or lost (-1), the assignment of a generation."""
        counts = self._settled[group]
        counts[generation] = counts.get(generation, 0) + by
        whole = counts[generation] == size if by > 0 else False
        if whole is not self._whole[group]:
            self._whole[group] = whole
            self.missing += -1 if whole else 1
            if self.missing:
                self._stable.clear()
            else:
                self._stable.set()

    async def until_stable(self) -> float:
        stable: asyncio.Future[Any] = asyncio.ensure_future(self._stable.wait())
        either: list[asyncio.Future[Any]] = [stable, self.failed]
        done, _ = await asyncio.wait(either, timeout=_LIMIT, return_when=asyncio.FIRST_COMPLETED)
        stable.cancel()
        if self.failed in done:
            self.failed.result()
        if stable not in done:
            raise _Failed(f"{self.missing} groups were not stable after {_LIMIT:.0f} s")
        return self.seconds()


class _Member(asyncio.Protocol):
    """One member of a classic group."""

    def __init__(self, load: _Load, number: int) -> None:
        job = load.job
        self._load = load
        self._holds_room = True
        self._has_connected = False
        self._apart = False
        self._group = number % job.groups
        self._name = f"{job.prefix}-{self._group}"
        self._id = ""
        self._generation = -1
        # The generation that it was in when its connection broke.
        self._last_generation = -1
        self._buffer = bytearray()
        self._asked: deque[tuple[tuple[int, int], float]] = deque()
        self._offset = 0
        # So that thousands don't send at the same moment.
        self._share = number / job.size
        self._joined_generation = -1
        self._gone = False
        self._redirected = False
        self._ports = [job.port, *job.others]
        self._tried = number
        self.port = job.port

    @property
    def _size(self) -> int:
        job = self._load.job
        return len(range(self._group, job.size, job.groups)) - self._load.left[self._group]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast(asyncio.Transport, transport)
        self._buffer.clear()
        self._asked.clear()
        if not self._has_connected:
            self._has_connected = True
            self._load.has_connected()
        self._send(wire.FIND_COORDINATOR, wire.find_coordinator(self._name))

    def connection_lost(self, error: Exception | None) -> None:
        if self._gone:
            return
        load = self._load
        if self._redirected:
            self._redirected = False
            self._later(partial(self._open, self.port))
            return
        if load.died_at is None:
            load.fail(f"a connection broke: {error}")
            return
        load.died_at = load.died_at or load.seconds()
        if self._generation >= 0:
            self._last_generation = self._generation
            self._unsettle()
        self._open_any()

    def _open_any(self) -> None:
        self._tried += 1
        self._later(partial(self._open, self._ports[self._tried % len(self._ports)]))

    def _open(self, port: int) -> None:
        self._load.tasks.append(self._load.loop.create_task(self._connect(port)))

    async def _connect(self, port: int) -> None:
        if not self._holds_room:
            await self._load.room.acquire()
            self._holds_room = True
        self.port = port
        try:
            await self._load.loop.create_connection(lambda: self, HOST, port)
        except OSError:
            self._release_room()
            self._open_any()

    def _release_room(self) -> None:
        if self._holds_room:
            self._holds_room = False
            self._load.room.release()

    def go(self, leaves: bool) -> None:
        """Leave the group, or be killed."""
        self._gone = True
        if leaves:
            self._send(wire.LEAVE_GROUP, wire.leave_group(self._name, self._id))
        else:
            self._out.abort()
        self._load.left[self._group] += 1
        self._unsettle()

    def _send(self, api: tuple[int, int], body: bytes) -> None:
        self._asked.append((api, time.perf_counter()))
        self._out.write(wire.frame(api, body))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = struct.unpack_from(">i", self._buffer)
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            api, sent = self._asked.popleft()
            _ANSWERS[api](self, wire.Reader(frame, 4), (time.perf_counter() - sent) * 1000)

    def _later(self, what: Callable[[], None]) -> None:
        self._load.loop.call_later(0.1, what)

    def _find_again(self) -> None:
        self._send(wire.FIND_COORDINATOR, wire.find_coordinator(self._name))

    def found(self, answer: wire.Reader, _: float) -> None:
        self._release_room()
        error = wire.throttled_error(answer)
        if error in _RETRY:
            self._later(self._find_again)
            return
        if error:
            self._load.fail(f"FindCoordinator answered error {error}")
            return
        port = wire.coordinator_port(answer)
        if port != self.port:
            self.port = port
            self._redirected = True
            self._out.close()
        elif self._last_generation >= 0:
            self._send(wire.HEARTBEAT, wire.heartbeat(self._name, self._last_generation, self._id))
        else:
            self._join()

    def _unsettle(self) -> None:
        if self._generation >= 0:
            self._load.settle(self._group, self._generation, -1, self._size)
            self._generation = -1

    def _join(self) -> None:
        self._unsettle()
        job = self._load.job
        self._send(wire.JOIN_GROUP, wire.join_group(self._name, self._id, job.topic, job.session_ms))

    def joined(self, answer: wire.Reader, _: float) -> None:
        joined = wire.joined(answer)
        self._id = joined.member or self._id
        if joined.error == wire.MEMBER_ID_REQUIRED:
            self._join()
        elif joined.error in _RETRY:
            self._later(self._join)
        elif joined.error:
            self._load.fail(f"JoinGroup answered error {joined.error}")
        else:
            self._joined_generation = joined.generation
            job = self._load.job
            shares = {}
            if joined.leader == self._id:
                for index, member in enumerate(joined.members):
                    mine = [index] if index < job.partitions else []
                    shares[member] = wire.assignment(job.topic, mine)
            self._send(wire.SYNC_GROUP, wire.sync_group(self._name, joined.generation, self._id, shares))

    def synced(self, answer: wire.Reader, _: float) -> None:
        error = wire.throttled_error(answer)
        if error == wire.REBALANCE_IN_PROGRESS:
            self._join()
        elif error:
            self._load.fail(f"SyncGroup answered error {error}")
        else:
            self._generation = self._joined_generation
            self._load.settle(self._group, self._generation, 1, self._size)
            self._beat_later(HEARTBEAT_SECONDS)

    def _beat_later(self, seconds: float) -> None:
        self._load.loop.call_later(seconds, self._beat, self._generation, self._out)

    def _beat(self, generation: int, out: asyncio.Transport) -> None:
        if generation == self._generation and out is self._out:
            self._send(wire.HEARTBEAT, wire.heartbeat(self._name, generation, self._id))

    def beaten(self, answer: wire.Reader, taken: float) -> None:
        error = wire.throttled_error(answer)
        if self._last_generation >= 0:
            self._returned(error)
            return
        if error == wire.REBALANCE_IN_PROGRESS:
            self._join()
            return
        if error:
            self._load.fail(f"Heartbeat answered error {error}")
        if self._load.measures:
            self._load.done.heartbeats_ms.append(taken)
        apart = 0.0
        if self._load.commits and not self._apart:
            # Members of a new generation beat together; with time their heartbeats drift apart.
            self._apart = True
            apart = self._share * HEARTBEAT_SECONDS
        self._beat_later(HEARTBEAT_SECONDS + apart)

    def _returned(self, error: int) -> None:
        """The first answer of another coordinator."""
        if error in _RETRY:
            self._later(self._find_again)
            return
        generation, self._last_generation = self._last_generation, -1
        if error:
            self._load.done.expelled += 1
            if error != wire.REBALANCE_IN_PROGRESS:
                self._id = ""
            self._join()
            return
        self._generation = generation
        self._load.settle(self._group, generation, 1, self._size)
        self._beat_later(HEARTBEAT_SECONDS * self._share)

    def has_left(self, answer: wire.Reader, _: float) -> None:
        self._out.close()

    def commit_regularly(self) -> None:
        self._load.loop.call_later(self._share * COMMIT_SECONDS, self._commit)

    def _commit(self) -> None:
        load = self._load
        if not load.commits:
            return
        self._offset += 1
        partition = (self._group + self._offset) % load.job.partitions
        load.done.commits_sent += 1
        body = wire.offset_commit(
            self._name, self._generation, self._id, load.job.topic, {partition: self._offset}
        )
        self._send(wire.OFFSET_COMMIT, body)
        load.loop.call_later(COMMIT_SECONDS, self._commit)

    def committed(self, answer: wire.Reader, taken: float) -> None:
        error = wire.commit_error(answer)
        if error:
            self._load.fail(f"OffsetCommit answered error {error}")
        self._load.done.commits_ms.append(taken)


_ANSWERS = {
    wire.FIND_COORDINATOR: _Member.found,
    wire.JOIN_GROUP: _Member.joined,
    wire.SYNC_GROUP: _Member.synced,
    wire.HEARTBEAT: _Member.beaten,
    wire.LEAVE_GROUP: _Member.has_left,
    wire.OFFSET_COMMIT: _Member.committed,
}


class _Pushed(asyncio.Protocol):
    """One consumer of the coordinator of 2012."""

    def __init__(self, load: _Load, number: int) -> None:
        self._load = load
        self._group = number % load.job.groups
        self._size = len(range(self._group, load.job.size, load.job.groups))
        self._id = f"c{number}"
        self._frames = FrameReader(MAX_PUSH)
        self._registered = False
        self._started = False
        self._offsets: tuple[PartitionOffset, ...] = ()
        self.silent = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast(asyncio.Transport, transport)
        job = self._load.job
        topics = json.dumps({job.topic: 1})
        group = f"{job.prefix}-{self._group}"
        request = RegisterConsumerRequest(group, self._id, topics, True, "smallest", job.session_ms)
        self._out.write(request.encode())

    def connection_lost(self, error: Exception | None) -> None:
        if not self.silent:
            self._load.fail(f"a connection broke: {error}")

    def data_received(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if self._registered:
                if not self.silent:
                    self._pushed(frame)
                continue
            answer = RegisterConsumerResponse.decode(frame)
            if answer.error_code:
                self._load.fail(f"a registration was refused: {answer.error_message}")
            self._registered = True
            self._load.room.release()
            self._load.has_connected()

    def _pushed(self, frame: bytes) -> None:
        request = decode_push(frame)
        if isinstance(request, PingRequest):
            self._out.write(PingResponse(0, self._id, self._offsets).encode())
        elif isinstance(request, StopFetcherRequest):
            self._start(False)
            self._out.write(StopFetcherResponse(0, self._id, self._offsets).encode())
        elif isinstance(request, StartFetcherRequest):
            self._offsets = tuple(
                each._replace(offset=max(each.offset, 0))
                for own in request.ownership
                for each in own.partitions
            )
            self._out.write(StartFetcherResponse(0, self._id).encode())
            self._start(True)

    def _start(self, started: bool) -> None:
        if started is not self._started:
            self._started = started
            # All that run count as one generation.
            size = self._size - self._load.left[self._group]
            self._load.settle(self._group, 0, 1 if started else -1, size)

    def leave(self, closes: bool) -> None:
        """Leave the group, with or without closing the connection; the rest has to start again."""
        self.silent = True
        self._started = False
        self._load.left[self._group] += 1
        self._load.settle(self._group, 0, -1, self._size)
        if closes:
            self._out.abort()


async def _connect(load: _Load, make: type[_Member] | type[_Pushed]) -> list[_Member | _Pushed]:
    """Connect all, as fast as the broker answers them."""
    made: list[_Member | _Pushed] = [make(load, number) for number in range(load.job.size)]

    async def connect() -> None:
        opening = []
        for each in made:
            await load.room.acquire()
            opened = load.loop.create_connection(partial(_itself, each), HOST, load.job.port)
            opening.append(asyncio.ensure_future(opened))
        await asyncio.gather(*opening)

    connecting = asyncio.ensure_future(connect())
    waited: list[asyncio.Future[Any]] = [connecting, load.failed]
    await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
    if load.failed.done():
        connecting.cancel()
        load.failed.result()
    await connecting
    return made


def _itself(each: _Member | _Pushed) -> _Member | _Pushed:
    return each


async def _members(job: Job) -> Done:
    load = _Load(job)
    members = await _connect(load, _Member)
    load.done.stable = await load.until_stable()
    if job.beats:
        load.measures = True
        await _stay(load, job.beats)
        load.measures = False
    if job.commits:
        print("commits begin", flush=True)
        load.commits = True
        for each in members:
            assert isinstance(each, _Member)
            each.commit_regularly()
        await _stay(load, job.commits)
        load.commits = False
        print("commits end", flush=True)
        await _stay(load, 1.0)
    if job.others:
        await _changes(load, members)
    return load.done


async def _changes(load: _Load, members: list[_Member | _Pushed]) -> None:
    """One member leaves, one is killed, then the coordinator dies."""
    for leaves in (True, False):
        one = members.pop()
        assert isinstance(one, _Member)
        began = load.seconds()
        one.go(leaves)
        taken = await load.until_stable() - began
        if leaves:
            load.done.left = taken
        else:
            load.done.killed = taken
        await _stay(load, HEARTBEAT_SECONDS)
    last = members[0]
    assert isinstance(last, _Member)
    load.died_at = 0.0
    print(f"coordinator {last.port}", flush=True)
    async with asyncio.timeout(_LIMIT):
        while not load.missing:
            await _stay(load, 0.01)
    load.done.moved = await load.until_stable() - load.died_at


async def _push(job: Job) -> Done:
    load = _Load(job)
    consumers = await _connect(load, _Pushed)
    while True:
        load.done.stable = await load.until_stable()
        # Another rebalance may follow, if some came late.
        await _stay(load, 1.5)
        if not load.missing:
            break
    await _stay(load, job.beats)
    print("settled", flush=True)
    for closes in (True, False):
        left = consumers.pop(0)
        assert isinstance(left, _Pushed)
        began = load.seconds()
        left.leave(closes)
        taken = await load.until_stable() - began
        if closes:
            load.done.closed = taken
        else:
            load.done.silent = taken
        await _stay(load, 1.5)
    return load.done


async def _stay(load: _Load, seconds: float) -> None:
    done, _ = await asyncio.wait([load.failed], timeout=seconds)
    for each in done:
        each.result()


def main() -> None:
    import uvloop

    job = Job(**json.loads(sys.argv[1]))
    gc.disable()  # So that its pauses aren't in the times.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        done = runner.run(_members(job) if job.kind == "members" else _push(job))
    print(json.dumps(asdict(done)))


if __name__ == "__main__":
    main()
