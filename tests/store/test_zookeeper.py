"""The store on ZooKeeper when connections break and sessions end."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.store.conftest import Open
from tests.store.relay import Relay
from tests.support.waiting import until
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.store.api import (
    BadVersionError,
    Create,
    Delete,
    EventKind,
    NodeExistsError,
    SessionLostError,
    SessionState,
    Set,
    StoreEvent,
    StoreFailedError,
    UnknownOutcomeError,
)
from ottla_broker.store.zookeeper import ZooKeeperSettings, ZooKeeperStore
from ottla_broker.store.zookeeper_link import ReadMany


@pytest.fixture
async def both(open_store: Open, relay: Relay, connect: str) -> tuple[ZooKeeperStore, ZooKeeperStore]:
    """A store behind the relay, and one beside it."""
    address = await relay.start()
    chroot = connect.partition("/")[2]
    beside = await open_store()
    return await open_store(f"{address}/{chroot}", session_timeout_ms=10_000), beside


async def lose_the_answer(
    relay: Relay, call: Coroutine[Any, Any, Any], done: Callable[[], Awaitable[bool]]
) -> Any:
    """Make a call, lose its answer and break the connection."""
    relay.swallowing = True
    task = asyncio.ensure_future(call)
    while not await done():
        await asyncio.sleep(0.01)
    relay.cut()
    relay.swallowing = False
    return await task


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_create_with_a_lost_answer_is_made_once(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore], ephemeral: bool
) -> None:
    store, beside = both
    path = await lose_the_answer(
        relay, store.create("/a", b"mine", ephemeral=ephemeral), lambda: beside.exists("/a")
    )
    assert path == "/a"
    assert await beside.get("/a") == (b"mine", 0)
    assert await store.ephemeral_owner("/a") == (store.session_id if ephemeral else 0)


async def test_anothers_node_does_not_count_as_created_by_a_lost_request(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, _ = both
    await store.create("/a", b"same")
    # The error is lost; when repeated, the node exists as before.
    relay.swallowing = True
    task = asyncio.ensure_future(store.create("/a", b"same"))
    await asyncio.sleep(0.1)
    relay.cut()
    relay.swallowing = False
    with pytest.raises(NodeExistsError):
        await task


@pytest.mark.parametrize("ephemeral", [False, True])
async def test_a_node_with_a_number_is_made_once(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore], ephemeral: bool
) -> None:
    store, beside = both
    await store.create("/q")
    await beside.create("/q/n_", b"mine", sequence=True)
    await store.exists("/q")

    async def done() -> bool:
        return len(await beside.children("/q")) == 2

    path = await lose_the_answer(
        relay, store.create("/q/n_", b"mine", sequence=True, ephemeral=ephemeral), done
    )
    assert await beside.children("/q") == ["n_0000000000", "n_0000000001"]
    assert path == "/q/n_0000000001"


async def test_a_node_with_a_number_that_was_not_made_is_made(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/q")
    relay.holding = True
    task = asyncio.ensure_future(store.create("/q/n_", b"mine", sequence=True))
    await asyncio.sleep(0.1)
    await beside.create("/q/n_", b"other", sequence=True)
    relay.cut()
    relay.holding = False
    assert await task == "/q/n_0000000001"


async def test_a_set_with_a_lost_answer_is_done_once(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/a", b"0")

    async def done() -> bool:
        return (await beside.get("/a"))[1] == 1

    assert await lose_the_answer(relay, store.set("/a", b"1", 0), done) == 1
    assert await beside.get("/a") == (b"1", 1)


async def test_a_set_after_anothers_is_refused_even_if_an_answer_was_lost(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/a", b"0")
    relay.holding = True
    task = asyncio.ensure_future(store.set("/a", b"1", 0))
    await asyncio.sleep(0.1)
    await beside.set("/a", b"2", 0)
    relay.cut()
    relay.holding = False
    with pytest.raises(BadVersionError):
        await task


async def test_a_delete_with_a_lost_answer_leaves_newer_nodes(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/a", b"0")

    async def made_again() -> bool:
        if await beside.exists("/a"):
            return False
        await beside.create("/a", b"another's")
        return True

    await lose_the_answer(relay, store.delete("/a", 0), made_again)
    assert await beside.get("/a") == (b"another's", 0)


async def test_a_delete_that_was_lost_is_done(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/a", b"0")
    relay.holding = True
    task = asyncio.ensure_future(store.delete("/a", 0))
    await asyncio.sleep(0.1)
    relay.cut()
    relay.holding = False
    await task
    assert not await beside.exists("/a")


async def test_a_transaction_with_a_lost_answer_has_an_unknown_outcome(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    with pytest.raises(UnknownOutcomeError, match="2 changes"):
        await lose_the_answer(
            relay, store.transaction([Create("/a"), Create("/a/b")]), lambda: beside.exists("/a")
        )
    assert await store.exists("/a/b")


async def test_a_change_has_an_unknown_outcome_without_a_new_connection(
    relay: Relay, open_store: Open, connect: str
) -> None:
    address = await relay.start()
    beside = await open_store()
    chroot = connect.partition("/")[2]
    store = await open_store(f"{address}/{chroot}", session_timeout_ms=10_000, connection_timeout_ms=1000)
    relay.refusing = True
    with pytest.raises(UnknownOutcomeError, match=r"/a: no ZooKeeper answers at .*; it is unknown whether"):
        await lose_the_answer(relay, store.create("/a"), lambda: beside.exists("/a"))
    # A request that was never sent was not carried out, and the error says so.
    with pytest.raises(StoreFailedError, match=r"/b: no ZooKeeper answers .* for 1000 ms"):
        await store.create("/b")
    with pytest.raises(StoreFailedError, match=r"/b: no ZooKeeper answers .* for 1000 ms"):
        await store.transaction([Create("/b")])
    with pytest.raises(StoreFailedError, match=r"/b: no ZooKeeper answers .* for 1000 ms"):
        await store.get("/b")
    relay.refusing = False
    await until(lambda: store.state is SessionState.CONNECTED)
    assert not await store.exists("/b")


async def test_a_silent_server_is_left_under_any_load(relay: Relay, open_store: Open, connect: str) -> None:
    address = await relay.start()
    store = await open_store(f"{address}/{connect.partition('/')[2]}", session_timeout_ms=1500)
    await store.create("/a")
    states: list[SessionState] = []
    store.watch_session(states.append)
    relay.holding = True
    accepted = relay.accepted
    tasks = []
    while relay.accepted == accepted:
        tasks.append(asyncio.ensure_future(store.exists("/a")))
        await asyncio.sleep(0.1)
        assert len(tasks) < 100
    relay.holding = False
    assert (
        set(await asyncio.gather(*tasks, return_exceptions=True)) <= {True} or states[-1] is SessionState.LOST
    )
    assert states[0] is SessionState.SUSPENDED


async def test_zookeeper_killed_and_restarted_under_load(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path / "zookeeper").start()
    store = await ZooKeeperStore.open(ZooKeeperSettings(server.address, session_timeout_ms=30_000))
    beside: list[StoreEvent] = []
    stop = False
    counts = dict.fromkeys(("create", "set", "delete", "sequence", "any"), 0)
    doubts = 0
    for path in ("/made", "/gone", "/q", "/counter", "/blind", "/t", "/watched"):
        await store.create(path, b"0")
    store.watch("/watched", beside.append)

    async def creates() -> None:
        while not stop:
            assert await store.create(f"/made/{counts['create']}", b"x") == f"/made/{counts['create']}"
            counts["create"] += 1

    async def sets() -> None:
        while not stop:
            count = counts["set"]
            assert await store.set("/counter", str(count + 1).encode(), count) == count + 1
            counts["set"] += 1

    async def deletes() -> None:
        while not stop:
            await store.create("/gone/x", str(counts["delete"]).encode())
            await store.delete("/gone/x", 0)
            counts["delete"] += 1

    async def sequences() -> None:
        while not stop:
            made = await store.create("/q/n_", str(counts["sequence"]).encode(), sequence=True)
            assert made == f"/q/n_{counts['sequence']:010}"
            counts["sequence"] += 1

    async def transactions() -> None:
        nonlocal doubts
        number = 0
        while not stop:
            try:
                results = await store.transaction(
                    [Set("/t", str(number).encode(), number), Create(f"/t/{number}")]
                )
            except UnknownOutcomeError:
                doubts += 1
                version = (await store.get("/t"))[1]
                assert version in (number, number + 1)
                assert await store.exists(f"/t/{number}") == (version == number + 1)
                number = version
            else:
                number += 1
                assert results == [number, f"/t/{number - 1}"]

    tasks = [asyncio.ensure_future(work()) for work in (creates, sets, deletes, sequences, transactions)]
    for _ in range(3):
        before = dict(counts)
        await until(
            lambda before=before: all(counts[key] > before[key] + 20 for key in ("create", "set", "delete"))
        )
        server.kill()
        await asyncio.to_thread(server.start)
    before = dict(counts)
    await until(lambda: counts["create"] > before["create"] + 20)
    stop = True
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    assert len(await store.children("/made")) == counts["create"]
    assert await store.get("/counter") == (str(counts["set"]).encode(), counts["set"])
    assert await store.children("/gone") == []
    assert len(await store.children("/q")) == counts["sequence"]
    beside.clear()
    await store.set("/watched", b"1")
    await until(lambda: StoreEvent(EventKind.CHANGED, "/watched") in beside)
    await store.close()
    server.kill()


async def test_a_session_that_is_ended_by_force_is_final(
    open_store: Open, zookeeper: ZooKeeperProcess
) -> None:
    store = await open_store(session_timeout_ms=10_000)
    states: list[SessionState] = []
    events: list[StoreEvent] = []
    store.watch_session(states.append)
    store.watch("/a", events.append)
    await store.create("/mine", ephemeral=True)
    other = KazooClient(zookeeper.address, client_id=store._link._client.client_id)
    await asyncio.to_thread(other.start)
    # Another client takes the session: the store is cut off, and finds it closed when it comes back.
    await asyncio.to_thread(other.stop)
    await asyncio.to_thread(other.close)
    calls = [store.get("/mine"), store.create("/x"), store.transaction([Create("/y"), Delete("/y")])]
    results = await asyncio.gather(*calls, return_exceptions=True)
    await until(lambda: store.state is SessionState.LOST)
    assert states[-1] is SessionState.LOST
    assert all(isinstance(result, SessionLostError | UnknownOutcomeError) for result in results), results
    with pytest.raises(SessionLostError):
        await store.exists("/")
    with pytest.raises(SessionLostError):
        store.watch("/a", events.append)
    again = await open_store()
    assert again.session_id != store.session_id
    assert not await again.exists("/mine")


async def test_a_session_that_expires_while_no_server_is_reachable(
    relay: Relay, open_store: Open, connect: str
) -> None:
    beside = await open_store()
    address = await relay.start()
    store = await open_store(f"{address}/{connect.partition('/')[2]}", session_timeout_ms=1000)
    await store.create("/mine", ephemeral=True)
    relay.refusing = True
    relay.cut()
    await until(lambda: store.state is SessionState.SUSPENDED)
    waiting = asyncio.ensure_future(store.exists("/mine"))
    while await beside.exists("/mine"):
        await asyncio.sleep(0.05)
    relay.refusing = False
    with pytest.raises(SessionLostError):
        await waiting
    assert store.state is SessionState.LOST


async def test_changes_during_a_lost_connection_are_reported(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/a", b"0")
    news: dict[str, list[StoreEvent]] = {"/a": [], "/new": [], "/p": []}
    await store.create("/p")
    for path, reported in news.items():
        store.watch(path, reported.append)
    await store.exists("/a")
    relay.refusing = True
    relay.cut()
    await beside.set("/a", b"1")
    await beside.create("/new")
    await beside.create("/p/child")
    assert not any(news.values())
    relay.refusing = False
    await until(lambda: all(news.values()))
    assert {event.path for reported in news.values() for event in reported} == set(news)
    # And they are set again.
    for reported in news.values():
        reported.clear()
    await beside.set("/a", b"2")
    await beside.create("/new/child")
    await beside.delete("/p/child")
    await until(lambda: all(news.values()))


async def test_no_last_change_is_missed_while_connections_break(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, beside = both
    await store.create("/a", b"0")
    seen: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def read() -> None:
        seen.append((await store.get("/a"))[0])

    def reported(event: StoreEvent) -> None:
        tasks.add(asyncio.ensure_future(read()))

    store.watch("/a", reported)
    for number in range(1, 61):
        await beside.set("/a", str(number).encode())
        if number % 10 == 0:
            relay.cut()
        await asyncio.sleep(0.01)
    await until(lambda: b"60" in seen)
    await asyncio.gather(*tasks)


async def test_a_recreated_watch_is_a_single_one_in_zookeeper(open_store: Open) -> None:
    store = await open_store()
    events: list[StoreEvent] = []
    for _ in range(50):
        store.watch("/a", events.append).cancel()
        await store.exists("/a")
    store.watch("/a", events.append)
    await store.exists("/a")
    assert sum(map(len, store._link._client._data_watchers.values())) == 1
    await store.create("/a")
    await until(lambda: bool(events))
    await store.delete("/a")
    await until(lambda: events[-1].kind is EventKind.DELETED)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_nothing_is_left_after_close(connect: str, relay: Relay) -> None:
    await relay.start()
    asyncio.get_running_loop().run_in_executor(None, int)
    await asyncio.sleep(0.05)
    threads, open_files = set(threading.enumerate()), descriptors()
    for _ in range(3):
        store = await ZooKeeperStore.open(ZooKeeperSettings(connect))
        await store.create("/e", ephemeral=True)
        await store.close()
        await store.close()
    await until(lambda: set(threading.enumerate()) <= threads)
    await until(lambda: descriptors() <= open_files)


async def test_close_does_not_wait_for_a_silent_server(relay: Relay, open_store: Open, connect: str) -> None:
    address = await relay.start()
    store = await open_store(f"{address}/{connect.partition('/')[2]}", session_timeout_ms=60_000)
    relay.holding = True
    await asyncio.wait_for(store.close(), 30)
    relay.holding = False


async def test_too_large_requests_are_refused_before_they_are_sent(open_store: Open) -> None:
    store = await open_store()
    states: list[SessionState] = []
    store.watch_session(states.append)
    await store.create("/a", bytes(1_040_000))
    assert len((await store.get("/a"))[0]) == 1_040_000
    line = r"bytes are more than ZooKeeper accepts at once \(1048575, its jute.maxbuffer\)"
    with pytest.raises(StoreFailedError, match=f"/b: .*{line}"):
        await store.create("/b", bytes(1 << 20))
    with pytest.raises(StoreFailedError, match=f"/a: .*{line}"):
        await store.set("/a", bytes(1 << 20))
    with pytest.raises(StoreFailedError, match=f"/b0 and 19 more changes: .*{line}"):
        await store.transaction([Create(f"/b{n}", bytes(60_000)) for n in range(20)])
    await store.transaction([Create(f"/c{n}", b"x" * 100) for n in range(3000)])
    assert states == []


@pytest.mark.parametrize("old", [False, True], ids=["", "zookeeper-3.5"])
async def test_thousands_are_read_few_at_a_time(
    open_store: Open, monkeypatch: pytest.MonkeyPatch, old: bool
) -> None:
    store = await open_store(max_in_flight=10)
    if old:
        # A request that ZooKeeper didn't have before 3.6.
        monkeypatch.setattr(ReadMany, "type", 77)
    await store.create("/many")
    count = 2000 if old else 5000
    for start in range(0, count, 1000):
        await store.transaction([Create(f"/many/{n}", str(n).encode()) for n in range(start, start + 1000)])
    most = 0
    reading = asyncio.ensure_future(store.get_many([*(f"/many/{n}" for n in range(count)), "/many/none"]))
    turns = 0
    while not reading.done():
        most = max(most, len(store._link._flying) + len(store._link._waiting))
        turns += 1
        await asyncio.sleep(0.001)
    found = await reading
    assert found[-1] is None
    assert [node and node[0] for node in found[:-1]] == [str(n).encode() for n in range(count)]
    assert 0 < most <= 10
    # The loop was never blocked.
    assert turns > 3
    assert await store.get_many([]) == []


async def test_the_number_of_requests_in_flight_is_limited(open_store: Open) -> None:
    store = await open_store(max_in_flight=3)
    await store.create("/a")
    tasks = [asyncio.ensure_future(store.exists("/a")) for _ in range(50)]
    most = 0
    while not all(task.done() for task in tasks):
        most = max(most, len(store._link._flying))
        await asyncio.sleep(0)
    assert most == 3


async def test_a_node_without_read_access_among_many_is_an_error(open_store: Open) -> None:
    mine = await open_store(digest=("broker", "x"), set_acl=True)
    await mine.create("/config/users/u", parents=True)
    other = await open_store()
    with pytest.raises(StoreFailedError, match="/config/users/u can't be accessed"):
        await other.get_many(["/config", "/config/users/u"])


async def test_a_thousand_requests_without_a_connection_do_not_stop_the_loop(
    relay: Relay, both: tuple[ZooKeeperStore, ZooKeeperStore]
) -> None:
    store, _ = both
    await store.create("/a")
    relay.refusing = True
    relay.cut()
    tasks = [asyncio.ensure_future(store.exists("/a")) for _ in range(1000)]
    await asyncio.sleep(0.2)
    relay.refusing = False
    assert set(await asyncio.gather(*tasks)) == {True}


async def test_a_frozen_zookeeper_does_not_stop_the_loop(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path / "zookeeper").start()
    store = await ZooKeeperStore.open(ZooKeeperSettings(server.address, session_timeout_ms=2000))
    server.signal(signal.SIGSTOP)
    states: list[SessionState] = []
    store.watch_session(states.append)
    task = asyncio.ensure_future(store.exists("/"))
    await until(lambda: SessionState.SUSPENDED in states)
    server.signal(signal.SIGCONT)
    assert (await asyncio.gather(task, return_exceptions=True))[0] is True or store.state is SessionState.LOST
    await store.close()
    server.kill()


async def test_a_request_for_a_session_is_repeated_if_the_server_forgets_it(
    open_store: Open, relay: Relay, connect: str
) -> None:
    """A starting ZooKeeper may do so."""
    await open_store()
    chroot = connect.partition("/")[2]
    store = await open_store(f"{await relay.start()}/{chroot}", session_timeout_ms=6000)
    relay.swallowing = True
    relay.cut()
    asked = relay.accepted
    await until(lambda: relay.accepted > asked)
    # The request on this connection gets no answer; the next one does.
    await until(lambda: relay.accepted > asked + 1)
    relay.swallowing = False
    await store.create("/after")
    assert store.state is SessionState.CONNECTED
    assert store.session_id


async def test_a_lease_counts_from_the_last_answered_request(
    both: tuple[ZooKeeperStore, Any], relay: Relay
) -> None:
    store, _ = both
    began = time.monotonic()
    first = store.lease.until
    assert began - 60 < first < began + 60
    await store.exists("/a")
    assert first < store.lease.until
    relay.holding = True
    task = asyncio.ensure_future(store.exists("/a"))
    await asyncio.sleep(0.2)
    held = store.lease.until
    await asyncio.sleep(0.2)
    assert store.lease.until == held
    relay.holding = False
    relay.cut()
    await asyncio.gather(task, return_exceptions=True)
    if store.state is not SessionState.LOST:
        assert store.lease.until > held
    await store.close()
    assert store.lease.until == -inf


async def test_pings_keep_a_lease_and_the_servers_timeout_holds(tmp_path: Path) -> None:
    server = ZooKeeperProcess(tmp_path / "zookeeper", settings={"minSessionTimeout": 1500}).start()
    store = await ZooKeeperStore.open(ZooKeeperSettings(server.address, session_timeout_ms=100))
    try:
        left = store.lease.until - time.monotonic()
        assert 0 < left <= 1.5
        first = store.lease.until
        await until(lambda: store.lease.until > first)
    finally:
        await store.close()
        server.kill()


@pytest.mark.parametrize("path", ["/a/./b", "/a/..", "/\x01", "/\ud800", "/\U0001f600"])
async def test_paths_that_zookeeper_refuses_are_refused_without_harm(open_store: Open, path: str) -> None:
    store = await open_store()
    with pytest.raises(ValueError, match="not a path"):
        await store.create(path)
    with pytest.raises(ValueError, match="not a path"):
        await store.transaction([Create("/a"), Set(path, b"")])
    assert await store.children("/") == []


async def test_a_node_without_data_is_created_as_in_kafka(open_store: Open) -> None:
    """It has no data: Kafka's controller can't parse empty text as JSON."""
    store = await open_store()
    await store.create("/without")
    await store.create("/parent/without", parents=True)
    await store.transaction([Create("/together")])
    for path in ("/without", "/parent", "/parent/without", "/together"):
        theirs = store._theirs(path)
        data, _ = await asyncio.to_thread(lambda: store._link._client.get(theirs))  # noqa: B023
        assert data is None
        assert (await store.get(path))[0] == b""
        assert await store.get_many([path]) == [(b"", 0)]
