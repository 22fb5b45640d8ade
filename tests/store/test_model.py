"""The embedded store compared with a dictionary, and after crashes at any byte with the acknowledged changes."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.background import Background
from ottla_broker.store.api import Create, Delete, Operation, Set, StoreError
from ottla_broker.store.embedded import JOURNAL_NAME, EmbeddedStore

Nodes = dict[str, tuple[bytes, int]]

PATHS = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/z"])
OPERATIONS = st.one_of(
    st.builds(lambda path, data: Create(path, data), PATHS, st.binary(max_size=20)),
    st.builds(Set, PATHS, st.binary(max_size=20), st.sampled_from([-1, -1, 0, 1, 2])),
    st.builds(Delete, PATHS, st.sampled_from([-1, -1, 0, 1])),
)
TRANSACTIONS = st.lists(st.lists(OPERATIONS, min_size=1, max_size=4), max_size=25)


def apply(nodes: Nodes, operations: list[Operation]) -> Nodes | None:
    """The nodes after a transaction; ``None`` if it fails."""
    after = dict(nodes)
    for operation in operations:
        path = operation.path
        if isinstance(operation, Create):
            if path in after or (path.rpartition("/")[0] or "/") not in {"/", *after}:
                return None
            after[path] = operation.data, 0
            continue
        if path not in after:
            return None
        version = after[path][1]
        assert isinstance(operation, Set | Delete)
        if operation.version not in (-1, version):
            return None
        if isinstance(operation, Set):
            after[path] = operation.data, version + 1
        elif any(other.startswith(path + "/") for other in after):
            return None
        else:
            del after[path]
    return after


async def dump(store: EmbeddedStore, path: str = "/") -> Nodes:
    found: Nodes = {}
    for name in await store.children(path):
        child = f"{path.rstrip('/')}/{name}"
        found[child] = await store.get(child)
        found |= await dump(store, child)
    return found


async def run(folder: Path, transactions: list[list[Operation]], background: Background) -> list[Nodes]:
    """Do the transactions. Returns the nodes after each successful one, starting with the empty store."""
    store = EmbeddedStore.open(folder, background)
    states: list[Nodes] = [{}]
    for operations in transactions:
        expected = apply(states[-1], operations)
        done = False
        with contextlib.suppress(StoreError):
            await store.transaction(operations)
            done = True
        assert done == (expected is not None)
        if expected is not None:
            states.append(expected)
        assert await dump(store) == states[-1]
    await store.close()
    return states


@settings(max_examples=examples(20), deadline=None)
@given(TRANSACTIONS, st.data())
def test_a_crash_leaves_what_a_number_of_whole_transactions_made(
    transactions: list[list[Operation]], data: st.DataObject
) -> None:
    async def scenario(folder: Path, background: Background) -> None:
        states = await run(folder, transactions, background)
        path = folder / JOURNAL_NAME
        whole = path.read_bytes()
        store = EmbeddedStore.open(folder, background)
        assert await dump(store) == states[-1]
        await store.close()
        cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=5))
        for cut in sorted({*cuts, len(whole)}):
            # Blocks of zeros after the cut: a file whose size was written before its bytes.
            path.write_bytes(whole[:cut] + bytes(data.draw(st.sampled_from([0, 0, 40])) if cut > 14 else 0))
            store = EmbeddedStore.open(folder, background)
            found = await dump(store)
            await store.close()
            assert found in states
        assert found == states[-1]

    background = Background(1)
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(scenario(Path(name), background))
    background.close()
