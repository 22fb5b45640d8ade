"""The embedded store's journal on a disk that loses what wasn't synced.

Whatever the plug leaves, the store opens. It holds every change that was answered, in order, and of a change that
wasn't either everything or nothing.
"""

from __future__ import annotations

import asyncio
import os
from random import Random
from typing import Any

import pytest
from tests.support.disk import Disk, DiskPath, PluggedIn, crashes
from tests.support.jobs import Jobs

from ottla_broker.store import embedded, journal
from ottla_broker.store.api import Create, Delete, Operation, Set
from ottla_broker.store.embedded import JOURNAL_NAME, EmbeddedStore
from ottla_broker.store.journal import StoreDamagedError

FOLDER = "/data"
FIRST = int(os.environ.get("OTTLA_FAULT_SEED", "1"))
RUNS = int(os.environ.get("OTTLA_POWER_RUNS", "1"))

State = dict[str, bytes]


def opened(disk: Disk, plug: PluggedIn) -> tuple[EmbeddedStore, Jobs]:
    plug.disk = disk
    jobs: Any = Jobs()
    folders: Any = [DiskPath(FOLDER)]
    return EmbeddedStore.open(folders, jobs), jobs


def state_of(store: EmbeddedStore) -> State:
    return {path: node.data for path, node in store._nodes.items() if path != "/"}


def changed(state: State, operations: list[Operation]) -> State:
    after = state.copy()
    for operation in operations:
        if isinstance(operation, Delete):
            del after[operation.path]
        else:
            assert isinstance(operation, (Create, Set))
            after[operation.path] = operation.data
    return after


def some_change(chance: Random, state: State) -> list[Operation]:
    """Operations that succeed: some of them together must all survive, or none."""
    operations: list[Operation] = []
    for _ in range(chance.randint(1, 3)):
        path = f"/n{chance.randrange(6)}"
        data = chance.randbytes(chance.choice((0, 20, 600)))
        if path not in state:
            operations.append(Create(path, data))
        elif chance.random() < 0.3:
            operations.append(Delete(path))
        else:
            operations.append(Set(path, data))
        state = changed(state, operations[-1:])
    return operations


async def play(store: EmbeddedStore, jobs: Jobs, disk: Disk, chance: Random, rounds: int) -> None:
    """Change the store, a few transactions at a time; the notes are the state after each, and when it was answered."""
    state = state_of(store)
    number = 0
    for _ in range(rounds):
        tasks = []
        for _ in range(chance.randint(1, 3)):
            operations = some_change(chance, state)
            state = changed(state, operations)
            number += 1
            disk.note(("changing", number, state))
            task = asyncio.ensure_future(store.transaction(operations))
            task.add_done_callback(lambda _, number=number: disk.note(("answered", number, None)))
            tasks.append(task)
        for task in tasks:
            await jobs.until(task)


class Story:
    """The states that the store may be in: the last one that was answered, and those after it."""

    def __init__(self, state: State) -> None:
        self.states = {0: state}
        self.answered = 0

    def on_note(self, note: tuple[str, int, State]) -> None:
        kind, number, state = note
        if kind == "changing":
            self.states[number] = state
        else:
            self.answered = max(self.answered, number)

    def check(self, state: State) -> None:
        possible = [state for number, state in self.states.items() if number >= self.answered]
        assert state in possible


@pytest.mark.parametrize(
    "left", [b"", journal.MAGIC[:5], bytes(len(journal.MAGIC)), journal.MAGIC[:3] + bytes(4)]
)
async def test_a_journal_that_was_never_durable_is_empty(
    left: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug = PluggedIn(monkeypatch)
    disk = Disk()
    store, _ = opened(disk_with(disk, left), plug)
    assert state_of(store) == {}
    plug.disk = disk_with(Disk(), bytes(100))
    with pytest.raises(StoreDamagedError):
        opened(plug.disk, plug)


def disk_with(disk: Disk, content: bytes) -> Disk:
    disk.makedirs(FOLDER)
    with disk.open_stream(f"{FOLDER}/{JOURNAL_NAME}", "wb") as stream:
        stream.write(content)
    return disk


@pytest.mark.parametrize("seed", range(FIRST, FIRST + RUNS))
async def test_the_plug_is_pulled(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = Random(seed)
    plug = PluggedIn(monkeypatch)
    monkeypatch.setattr(embedded, "_COMPACT_MINIMUM", 4000)
    disk = Disk()
    disk.makedirs(FOLDER)
    disk.sync()
    store, jobs = opened(disk, plug)
    await play(store, jobs, disk, chance, 30)
    story = Story({})
    for number, left in crashes(disk.ops, chance, story.on_note, each=3, most=600):
        try:
            if FOLDER.strip("/") not in left.listdir("/"):
                continue
            first = len(left.ops)
            again, jobs = opened(left, plug)
            story.check(state_of(again))
            if chance.random() < 0.1:
                later = Story(state_of(again))
                await play(again, jobs, left, chance, 2)
                for _, last in crashes(left.ops, chance, later.on_note, each=1, most=10, first=first):
                    later.check(state_of(opened(last, plug)[0]))
        except BaseException as error:
            error.add_note(f"the plug was pulled after step {number}: {disk.ops[number]!r:.300}")
            raise
