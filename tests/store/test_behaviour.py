"""The behaviour of every store."""

from __future__ import annotations

import asyncio
import io

import pytest
from tests.support.waiting import until

from ottla_broker.store.api import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionLostError,
    SessionState,
    Set,
    Store,
    StoreEvent,
)


async def test_a_created_node_is_read_back(store: Store) -> None:
    assert await store.create("/a", b"one") == "/a"
    assert await store.get("/a") == (b"one", 0)
    assert await store.get_many(["/b", "/a", "/"]) == [None, (b"one", 0), (b"", 0)]
    assert await store.exists("/a")


async def test_the_root_exists_and_cannot_be_created_or_deleted(store: Store) -> None:
    assert await store.exists("/")
    assert await store.children("/") == []
    with pytest.raises(NotEmptyError):
        await store.delete("/")
    with pytest.raises(ValueError, match="not a path"):
        await store.create("/")


async def test_a_node_is_not_created_twice(store: Store) -> None:
    await store.create("/a", b"one")
    with pytest.raises(NodeExistsError, match="/a"):
        await store.create("/a", b"two")
    assert await store.get("/a") == (b"one", 0)


async def test_a_node_needs_its_parent(store: Store) -> None:
    with pytest.raises(NoNodeError, match="/a"):
        await store.create("/a/b")
    assert await store.create("/a/b/c", b"x", parents=True) == "/a/b/c"
    assert await store.get("/a") == (b"", 0)


async def test_missing_parents_may_be_created_concurrently(store: Store) -> None:
    made = await asyncio.gather(*(store.create(f"/a/b/{i}", parents=True) for i in range(20)))
    assert len(made) == 20
    assert len(await store.children("/a/b")) == 20


@pytest.mark.parametrize("path", ["", "a", "/a/", "//a", "/a//b", "/a\0b"])
async def test_an_invalid_path_is_refused(store: Store, path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        await store.create(path)


async def test_a_missing_node_is_an_error(store: Store) -> None:
    for call in (store.get("/a"), store.set("/a", b""), store.delete("/a"), store.children("/a")):
        with pytest.raises(NoNodeError, match="/a"):
            await call
    assert not await store.exists("/a")


async def test_a_version_counts_changes_of_data(store: Store) -> None:
    await store.create("/a", b"0")
    assert await store.set("/a", b"1") == 1
    assert await store.set("/a", b"2", version=1) == 2
    await store.create("/a/child")
    assert await store.get("/a") == (b"2", 2)


async def test_a_stale_version_changes_nothing(store: Store) -> None:
    await store.create("/a", b"0")
    await store.set("/a", b"1")
    with pytest.raises(BadVersionError, match="/a"):
        await store.set("/a", b"2", version=0)
    with pytest.raises(BadVersionError):
        await store.delete("/a", version=0)
    assert await store.get("/a") == (b"1", 1)
    await store.delete("/a", version=1)
    assert not await store.exists("/a")


async def test_one_of_two_writers_of_the_same_version_wins(store: Store) -> None:
    await store.create("/a", b"0")
    results = await asyncio.gather(
        *(store.set("/a", str(i).encode(), version=0) for i in range(5)), return_exceptions=True
    )
    assert results.count(1) == 1
    assert sum(isinstance(result, BadVersionError) for result in results) == 4


async def test_a_node_with_children_stays(store: Store) -> None:
    await store.create("/a/b", parents=True)
    with pytest.raises(NotEmptyError, match="/a"):
        await store.delete("/a")
    await store.delete("/a/b")
    await store.delete("/a")
    assert await store.children("/") == []


async def test_children_are_named_and_sorted(store: Store) -> None:
    for name in ("b", "a", "c"):
        await store.create(f"/p/{name}", parents=True)
        await store.create(f"/p/{name}/below")
    assert await store.children("/p") == ["a", "b", "c"]


async def test_a_recreated_node_starts_over(store: Store) -> None:
    await store.create("/a", b"0")
    await store.set("/a", b"1")
    await store.delete("/a")
    await store.create("/a", b"2")
    assert await store.get("/a") == (b"2", 0)


async def test_numbers_of_sequence_nodes_only_go_up(store: Store) -> None:
    await store.create("/q")
    first = await store.create("/q/n_", b"x", sequence=True)
    second = await store.create("/q/n_", b"y", sequence=True)
    assert first < second
    assert len(first) == len("/q/n_") + 10
    await store.delete(second)
    third = await store.create("/q/n_", sequence=True)
    assert third > second
    assert await store.get(first) == (b"x", 0)


async def test_an_ephemeral_node_has_no_children(store: Store) -> None:
    await store.create("/e", b"here", ephemeral=True)
    assert await store.get("/e") == (b"here", 0)
    with pytest.raises(NoChildrenForEphemeralsError):
        await store.create("/e/child")
    assert await store.set("/e", b"still") == 1
    await store.delete("/e")


async def test_a_transaction_does_all(store: Store) -> None:
    await store.create("/old", b"0")
    await store.create("/gone")
    results = await store.transaction(
        [Create("/a", b"1"), Create("/a/b", b"2"), Set("/old", b"3", 0), Check("/a", 0), Delete("/gone")]
    )
    assert results == ["/a", "/a/b", 1, None, None]
    assert await store.get("/a/b") == (b"2", 0)
    assert await store.get("/old") == (b"3", 1)
    assert not await store.exists("/gone")


async def test_a_transaction_does_nothing_if_one_operation_fails(store: Store) -> None:
    await store.create("/old", b"0")
    await store.create("/p/q", parents=True)
    for last, error in (
        (Create("/old"), NodeExistsError),
        (Create("/missing/b"), NoNodeError),
        (Set("/old", b"", 7), BadVersionError),
        (Check("/missing"), NoNodeError),
        (Delete("/p"), NotEmptyError),
    ):
        with pytest.raises(error):
            await store.transaction(
                [
                    Create("/a"),
                    Create("/a/b"),
                    Delete("/a/b"),
                    Set("/old", b"1"),
                    Create("/p/s_", b"", False, True),
                    last,
                ]
            )
        assert await store.children("/") == ["old", "p"]
        assert await store.children("/p") == ["q"]
        assert await store.get("/old") == (b"0", 0)
    await store.transaction([Create("/a"), Create("/a/b"), Delete("/a/b"), Delete("/a")])
    assert not await store.exists("/a")


async def test_a_failed_transaction_does_not_harm_its_neighbours(store: Store) -> None:
    results = await asyncio.gather(
        store.transaction([Create("/a"), Create("/a/1")]),
        store.transaction([Create("/a/2"), Create("/a")]),
        store.transaction([Create("/a/3")]),
        return_exceptions=True,
    )
    assert results[0] == ["/a", "/a/1"]
    assert isinstance(results[1], NodeExistsError)
    assert await store.children("/a") == ["1", "3"]


async def test_a_watch_reports_changes_of_a_node_and_its_children(store: Store) -> None:
    events: list[StoreEvent] = []
    watch = store.watch("/a", events.append)

    async def reported(kind: EventKind) -> None:
        await until(lambda: StoreEvent(kind, "/a") in events)
        events.clear()

    await store.create("/a")
    await reported(EventKind.CREATED)
    await store.set("/a", b"1")
    await reported(EventKind.CHANGED)
    await store.create("/a/b")
    await reported(EventKind.CHILDREN)
    await store.set("/a/b", b"not news of /a")
    await store.delete("/a/b")
    await reported(EventKind.CHILDREN)
    await store.delete("/a")
    await reported(EventKind.DELETED)
    watch.cancel()
    watch.cancel()
    events.clear()
    await store.create("/a")
    await store.exists("/a")
    assert not events


async def test_a_watch_reports_only_readable_changes(store: Store) -> None:
    seen: list[bytes] = []

    async def read() -> None:
        seen.append((await store.get("/a"))[0])

    tasks: list[asyncio.Task[None]] = []
    store.watch("/a", lambda event: tasks.append(asyncio.ensure_future(read())))
    await store.create("/a", b"1")
    await until(lambda: bool(tasks))
    await asyncio.gather(*tasks)
    # Twice if the node is created while the watch is being set.
    assert set(seen) == {b"1"}


async def test_the_last_of_many_changes_is_never_missed(store: Store) -> None:
    await store.create("/a", b"0")
    seen: list[bytes] = []
    tasks: set[asyncio.Task[None]] = set()

    async def read() -> None:
        seen.append((await store.get("/a"))[0])

    store.watch("/a", lambda event: tasks.add(asyncio.ensure_future(read())))
    for number in range(1, 101):
        await store.set("/a", str(number).encode())
    await until(lambda: b"100" in seen)
    await asyncio.gather(*tasks)


async def test_a_failing_watch_does_not_affect_others(store: Store, events_log: io.StringIO) -> None:
    def fail(event: StoreEvent) -> None:
        raise RuntimeError("oops")

    events: list[StoreEvent] = []
    store.watch("/a", fail)
    store.watch("/a", events.append)
    await store.create("/a", b"1")
    await until(lambda: bool(events))
    assert "oops" in events_log.getvalue()


async def test_requests_fail_after_the_session(store: Store) -> None:
    states: list[SessionState] = []
    store.watch_session(states.append)
    assert store.state is SessionState.CONNECTED
    await store.close()
    assert states == [SessionState.LOST]
    for call in (store.get("/"), store.create("/a"), store.exists("/"), store.children("/")):
        with pytest.raises(SessionLostError):
            await call
    with pytest.raises(SessionLostError):
        store.watch("/a", lambda event: None)
    await store.close()
