"""What the embedded store keeps through stops, crashes, damage and full disks."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla_broker.background import Background
from ottla_broker.store import embedded, journal
from ottla_broker.store.api import Create, Delete, Set, StoreError, StoreFailedError
from ottla_broker.store.embedded import JOURNAL_NAME, EmbeddedStore
from ottla_broker.store.journal import StoreDamagedError

Open = Callable[[], EmbeddedStore]


async def dump(store: EmbeddedStore, path: str = "/") -> dict[str, tuple[bytes, int]]:
    """All nodes below a path."""
    found = {path: await store.get(path)}
    for name in await store.children(path):
        found |= await dump(store, f"{path.rstrip('/')}/{name}")
    return found


async def test_everything_but_ephemeral_nodes_survives(open_embedded: Open) -> None:
    store = open_embedded()
    await store.create("/a/b", b"1", parents=True)
    await store.set("/a", b"2")
    await store.create("/q")
    number = await store.create("/q/n_", sequence=True)
    await store.create("/here", ephemeral=True)
    await store.create("/a/gone")
    await store.delete("/a/gone")
    before = await dump(store)
    await store.close()
    again = open_embedded()
    assert await dump(again) == {path: node for path, node in before.items() if path != "/here"}
    assert await again.create("/q/n_", sequence=True) > number
    await again.close()


async def test_a_node_that_turns_ephemeral_is_gone_afterwards(open_embedded: Open) -> None:
    store = open_embedded()
    await store.create("/a")
    await store.transaction([Delete("/a"), Create("/a", b"", ephemeral=True)])
    await store.close()
    again = open_embedded()
    assert not await again.exists("/a")
    await again.create("/a", ephemeral=True)
    await again.transaction([Delete("/a"), Create("/a", b"stays")])
    await again.close()
    last = open_embedded()
    assert await last.get("/a") == (b"stays", 0)
    await last.close()


async def test_the_store_is_found_in_any_data_folder(tmp_path: Path, background: Background) -> None:
    folders = [tmp_path / name for name in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    store = EmbeddedStore.open(folders, background)
    await store.create("/a")
    await store.close()
    assert (folders[0] / JOURNAL_NAME).exists()
    again = EmbeddedStore.open(folders[::-1], background)
    assert await again.exists("/a")
    await again.close()
    (folders[1] / JOURNAL_NAME).write_bytes(journal.MAGIC)
    with pytest.raises(StoreError, match="only one store may exist"):
        EmbeddedStore.open(folders, background)


async def test_a_torn_last_entry_is_cut_off(open_embedded: Open, tmp_path: Path) -> None:
    store = open_embedded()
    await store.create("/a", b"1")
    await store.create("/b", b"2")
    await store.close()
    path = tmp_path / JOURNAL_NAME
    path.write_bytes(path.read_bytes()[:-3])
    again = open_embedded()
    assert await again.exists("/a")
    assert not await again.exists("/b")
    await again.create("/c")
    await again.close()
    last = open_embedded()
    assert await last.children("/") == ["a", "c"]
    await last.close()


async def test_damage_before_the_last_entry_is_refused(open_embedded: Open, tmp_path: Path) -> None:
    store = open_embedded()
    await store.create("/a", b"1" * 100)
    await store.create("/b", b"2")
    await store.close()
    path = tmp_path / JOURNAL_NAME
    data = bytearray(path.read_bytes())
    for position in (len(journal.MAGIC), len(journal.MAGIC) + 30):
        damaged = bytearray(data)
        damaged[position] ^= 0x40
        path.write_bytes(damaged)
        with pytest.raises(StoreDamagedError, match=r"ottla-store\.journal: damaged at byte 14.*restore"):
            open_embedded()
    path.write_bytes(data)
    await open_embedded().close()


async def test_another_file_in_its_place_is_refused(open_embedded: Open, tmp_path: Path) -> None:
    (tmp_path / JOURNAL_NAME).write_bytes(b"something else, longer than the magic")
    with pytest.raises(StoreDamagedError, match="is not a store's journal"):
        open_embedded()


async def test_a_missing_folder_is_a_one_line_error(tmp_path: Path, background: Background) -> None:
    with pytest.raises(StoreFailedError, match=r"cannot be opened \(No such file or directory\)"):
        EmbeddedStore.open(tmp_path / "missing", background)


async def test_a_partly_created_journal_is_empty(open_embedded: Open, tmp_path: Path) -> None:
    for size in range(len(journal.MAGIC)):
        (tmp_path / JOURNAL_NAME).write_bytes(journal.MAGIC[:size])
        store = open_embedded()
        assert await store.children("/") == []
        await store.create("/a")
        await store.close()
        again = open_embedded()
        assert await again.children("/") == ["a"]
        await again.close()


async def test_the_journal_is_compacted_and_nothing_is_lost(
    open_embedded: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_COMPACT_MINIMUM", 2000)
    store = open_embedded()
    await store.create("/q")
    number = await store.create("/q/n_", sequence=True)
    await store.create("/here", ephemeral=True)
    await store.create("/a")
    for i in range(300):
        await store.set("/a", str(i).encode())
    assert (tmp_path / JOURNAL_NAME).stat().st_size < 4000
    before = await dump(store)
    await store.close()
    again = open_embedded()
    assert await dump(again) == {path: node for path, node in before.items() if path != "/here"}
    assert (await again.get("/a"))[1] == 300
    assert await again.create("/q/n_", sequence=True) > number
    await again.close()


async def test_damage_of_a_compacted_journal_is_not_a_torn_end(
    open_embedded: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_COMPACT_MINIMUM", 0)
    store = open_embedded()
    await store.create("/a", b"x" * 50)
    for i in range(20):
        await store.set("/a", str(i).encode() * 50)
    await store.close()
    path = tmp_path / JOURNAL_NAME
    data = bytearray(path.read_bytes())
    data[len(journal.MAGIC) + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamagedError):
        open_embedded()


async def test_a_compaction_that_fails_leaves_the_old_journal_in_use(
    open_embedded: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "_COMPACT_MINIMUM", 500)
    (tmp_path / (JOURNAL_NAME + ".new")).mkdir()
    store = open_embedded()
    await store.create("/a")
    for i in range(100):
        await store.set("/a", str(i).encode())
    await store.close()
    (tmp_path / (JOURNAL_NAME + ".new")).rmdir()
    again = open_embedded()
    assert await again.get("/a") == (b"99", 100)
    await again.close()


async def test_a_change_that_cannot_be_written_did_not_happen(
    open_embedded: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_embedded()
    await store.create("/a", b"1")
    real = os.fdatasync

    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdatasync", fail)
    for call in (store.set("/a", b"2"), store.create("/b"), store.delete("/a")):
        with pytest.raises(StoreFailedError, match=r"\.journal: cannot be written .*No space left"):
            await call
    assert await dump(store) == {"/": (b"", 0), "/a": (b"1", 0)}
    monkeypatch.setattr(os, "fdatasync", real)
    assert await store.set("/a", b"3") == 1
    await store.close()
    again = open_embedded()
    assert await dump(again) == {"/": (b"", 0), "/a": (b"3", 1)}
    await again.close()


async def test_a_journal_that_cannot_be_truncated_accepts_no_more_changes(
    open_embedded: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_embedded()
    await store.create("/a", b"1")

    def fail(*args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", fail)
    monkeypatch.setattr(os, "ftruncate", fail)
    with pytest.raises(StoreFailedError):
        await store.set("/a", b"2")
    monkeypatch.undo()
    with pytest.raises(StoreFailedError, match="then restart"):
        await store.set("/a", b"3")
    assert await store.get("/a") == (b"1", 0)
    await store.close()


async def test_many_changes_share_flushes(open_embedded: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_embedded()
    flushes = 0
    real = os.fdatasync

    def count(fd: int) -> None:
        nonlocal flushes
        flushes += 1
        real(fd)

    monkeypatch.setattr(os, "fdatasync", count)
    await asyncio.gather(*(store.create(f"/n{i}") for i in range(500)))
    assert flushes <= 3
    await store.transaction([Set(f"/n{i}", b"x") for i in range(500)])
    assert flushes <= 4
    await store.close()


async def test_a_cancelled_caller_does_not_stop_the_others(open_embedded: Open) -> None:
    store = open_embedded()
    given_up = asyncio.ensure_future(store.create("/a"))
    other = asyncio.ensure_future(store.create("/b"))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await other == "/b"
    with pytest.raises(asyncio.CancelledError):
        await given_up
    await store.close()
