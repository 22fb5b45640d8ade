"""The coordination store of one broker: a tree in memory, journaled in the data folder.

One writer makes the changes in the order of the requests. Requests that arrive while a frame is being flushed share the
next frame, so that many changes need few flushes. The tree changes only when the frame is durable, so that no reader
sees a change that a crash could undo.

The session is the process: ephemeral nodes are in memory only and are gone after a restart.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ottla_broker.background import Background
from ottla_broker.counters import Timings
from ottla_broker.events import get_logger
from ottla_broker.store import journal
from ottla_broker.store.api import (
    ANY_VERSION,
    BadVersionError,
    Create,
    Delete,
    EventKind,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionLostError,
    SessionState,
    Set,
    StoreError,
    StoreEvent,
    StoreFailedError,
    Watch,
    check_path,
)
from ottla_broker.tasks import in_pauses, unhurried

_log = get_logger()

JOURNAL_NAME = "ottla-store.journal"

# Compact the journal when it is larger than its nodes need by this factor, or this many bytes.
_COMPACT_FACTOR = 3
_COMPACT_MINIMUM = 4 * 1024 * 1024

_PORTION = 2_000
"""Operations that are worked on before others get their turn on the event loop."""

# How many children a node has more after one of them has met with this.
_STEPS = {EventKind.CREATED: 1, EventKind.DELETED: -1}

Result = str | int | None


class _Node(NamedTuple):
    """One node, replaced as a whole when it changes. ``sequence`` counts its children's sequence numbers."""

    data: bytes
    version: int
    sequence: int
    ephemeral: bool


class _Transaction(NamedTuple):
    """Operations that wait for their turn, and the future of their results."""

    operations: Sequence[Operation]
    done: asyncio.Future[list[Result]]


class _Draft:
    """The tree as it will be when a frame is durable: an overlay of changes, in order."""

    def __init__(self, nodes: dict[str, _Node], children: dict[str, dict[str, None]]) -> None:
        # For undoing the current transaction: path, whether the draft had it, and its node there.
        self._undo: list[tuple[str, bool, _Node | None]] = []
        self._base = nodes
        self._base_children = children
        self.nodes: dict[str, _Node | None] = {}
        # The difference in a node's number of children from the tree.
        self._more: dict[str, int] = {}
        self.events: list[StoreEvent] = []

    def get(self, path: str) -> _Node | None:
        if path in self.nodes:
            return self.nodes[path]
        return self._base.get(path)

    def child_count(self, path: str) -> int:
        return len(self._base_children.get(path, ())) + self._more.get(path, 0)

    def apply(self, operations: Sequence[Operation]) -> Generator[None, None, list[Result]]:
        """Apply all operations to the draft, or none. Yields after every ``_PORTION`` of them.

        Raises StoreError: the error of the first operation that fails.
        """
        self._undo.clear()
        events = len(self.events)
        try:
            results = []
            for done, operation in enumerate(operations, 1):
                results.append(self._apply(operation))
                if done % _PORTION == 0:
                    yield
            return results
        except StoreError:
            for path, known, node in reversed(self._undo):
                if known:
                    self.nodes[path] = node
                else:
                    del self.nodes[path]
            for event in self.events[events:]:
                if event.kind in _STEPS:
                    self._more[parent_of(event.path)] -= _STEPS[event.kind]
            del self.events[events:]
            raise

    def _put(self, path: str, node: _Node | None) -> None:
        self._undo.append((path, path in self.nodes, self.nodes.get(path)))
        self.nodes[path] = node

    def changes(self) -> Generator[None, None, list[journal.Change]]:
        """The changes to make durable: all but those of ephemeral nodes. Yields after every ``_PORTION`` of them."""
        found = []
        for done, (path, node) in enumerate(self.nodes.items(), 1):
            if node is not None and not node.ephemeral:
                found.append(journal.Change(path, node.data, node.version, node.sequence))
            elif path in self._base and not self._base[path].ephemeral:
                found.append(journal.Change(path, None))
            if done % _PORTION == 0:
                yield
        return found

    def _apply(self, operation: Operation) -> Result:
        if isinstance(operation, Create):
            return self._create(operation)
        path = operation.path
        node = self.get(path)
        if node is None:
            raise NoNodeError(f"{path}: does not exist")
        if operation.version not in (ANY_VERSION, node.version):
            raise BadVersionError(f"{path}: has version {node.version}, not {operation.version}")
        if isinstance(operation, Set):
            self._put(path, _Node(operation.data, node.version + 1, node.sequence, node.ephemeral))
            self.events.append(StoreEvent(EventKind.CHANGED, path))
            return node.version + 1
        if isinstance(operation, Delete):
            if path == "/":
                raise NotEmptyError("/: can't be deleted")
            if self.child_count(path):
                raise NotEmptyError(f"{path}: has children")
            self._put(path, None)
            self._count(path, EventKind.DELETED)
        return None

    def _create(self, operation: Create) -> str:
        path = operation.path
        above = parent_of(path)
        parent = self.get(above)
        if parent is None:
            raise NoNodeError(f"{path}: its parent {above} does not exist")
        if parent.ephemeral:
            raise NoChildrenForEphemeralsError(f"{path}: {above} is ephemeral and can have no children")
        if operation.sequence:
            path = f"{path}{parent.sequence:010d}"
            self._put(above, _Node(parent.data, parent.version, parent.sequence + 1, False))
        if self.get(path) is not None:
            raise NodeExistsError(f"{path}: exists already")
        self._put(path, _Node(operation.data, 0, 0, operation.ephemeral))
        self._count(path, EventKind.CREATED)
        return path

    def _count(self, path: str, kind: EventKind) -> None:
        above = parent_of(path)
        self._more[above] = self._more.get(above, 0) + _STEPS[kind]
        self.events.append(StoreEvent(kind, path))
        self.events.append(StoreEvent(EventKind.CHILDREN, above))


class EmbeddedStore:
    """A :class:`ottla_broker.store.api.Store`. Owned by the loop thread; created by :meth:`open`.

    Attributes:
        timings: how long it took to make changes durable.
    """

    def __init__(self, path: Path, background: Background, monotonic: Callable[[], float]) -> None:
        self.timings = Timings()
        self._monotonic = monotonic
        self.state = SessionState.CONNECTED
        self._path = path
        self._background = background
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0, False)}
        self._children: dict[str, dict[str, None]] = {"/": {}}
        self._fd = -1
        self._end = 0
        self._number = 0
        self._live = 0
        self._compact_at = _COMPACT_MINIMUM
        self._waiting: list[_Transaction] = []
        self._writer: asyncio.Task[None] | None = None
        self._failed: str | None = None
        self._watches: dict[str, list[Callable[[StoreEvent], None]]] = {}
        self._session_watches: list[Callable[[SessionState], None]] = []

    @classmethod
    def open(
        cls,
        folders: Path | Sequence[Path],
        background: Background,
        monotonic: Callable[[], float] = lambda: 0.0,
    ) -> EmbeddedStore:
        """Open the store in the data folder that has it, or create it in the first one.

        The caller holds the folders' locks. Blocks while reading.

        Raises:
            StoreError: the journal is damaged or can't be read, or several exist; the message names the file and what
                to do.
        """
        store = cls(_find(folders), background, monotonic)
        try:
            store._load()
        except OSError as error:
            raise StoreFailedError(
                f"{store._path}: cannot be opened ({error.strerror}); check the folder"
            ) from error
        return store

    def _load(self) -> None:
        loaded = journal.load(self._path)
        nodes, children = self._nodes, self._children
        try:
            for payload in loaded.payloads:
                for path, data, version, sequence in journal.decode_changes(payload):
                    if data is None:
                        del nodes[path]
                        self._unlink(path)
                        continue
                    if path not in nodes:
                        above, _, name = path.rpartition("/")
                        children.setdefault(above or "/", {})[name] = None
                    nodes[path] = _Node(data, version, sequence, False)
        except (ValueError, KeyError) as error:
            raise journal.StoreDamagedError(f"{self._path}: has an invalid frame ({error})") from error
        if loaded.cut and loaded.end:
            _log.warning("store journal truncated at its torn end", file=str(self._path), bytes=loaded.cut)
        self._fd = journal.open_for_append(self._path, loaded)
        self._end = loaded.end or len(journal.MAGIC)
        self._number = loaded.number
        self._live = sum(len(path) + len(node.data) + 16 for path, node in nodes.items())

    async def get(self, path: str) -> tuple[bytes, int]:
        node = self._node(path)
        return node.data, node.version

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, int] | None]:
        self._check_session()
        nodes = [self._nodes.get(path) async for path in unhurried(paths, _PORTION)]
        return [None if node is None else (node.data, node.version) for node in nodes]

    async def children(self, path: str) -> list[str]:
        self._node(path)
        return sorted(self._children.get(path, ()))

    async def exists(self, path: str) -> bool:
        self._check_session()
        return path in self._nodes

    def _node(self, path: str) -> _Node:
        self._check_session()
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(f"{path}: does not exist")
        return node

    def _check_session(self) -> None:
        if self.state is SessionState.LOST:
            raise SessionLostError("the store is closed")

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        parents: bool = False,
    ) -> str:
        if parents:
            await self._create_parents(path)
        made = (await self.transaction([Create(path, data, ephemeral, sequence)]))[0]
        assert isinstance(made, str)
        return made

    async def _create_parents(self, path: str) -> None:
        """One at a time, because another caller may create the same ones."""
        missing = []
        above = parent_of(path)
        while above not in self._nodes:
            missing.append(above)
            above = parent_of(above)
        for parent in reversed(missing):
            try:
                await self.transaction([Create(parent)])
            except NodeExistsError:
                continue

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        made = (await self.transaction([Set(path, data, version)]))[0]
        assert isinstance(made, int)
        return made

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.transaction([Delete(path, version)])

    async def transaction(self, operations: Sequence[Operation]) -> list[Result]:
        async for operation in unhurried(operations, _PORTION):
            check_path(operation)
        self._check_session()
        if self._failed is not None:
            raise StoreFailedError(self._failed)
        done: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Transaction(operations, done))
        if self._writer is None:
            self._writer = asyncio.get_running_loop().create_task(self._write_waiting())
        return await done

    async def _write_waiting(self) -> None:
        """Write waiting transactions, a frame at a time."""
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._write(batch)
                if self._end > max(self._compact_at, _COMPACT_FACTOR * self._live) and self._failed is None:
                    await self._compact()
        finally:
            self._writer = None

    async def _write(self, batch: list[_Transaction]) -> None:
        draft = _Draft(self._nodes, self._children)
        ready: list[tuple[asyncio.Future[list[Result]], list[Result]]] = []
        for transaction in batch:
            try:
                results, _ = await in_pauses(draft.apply(transaction.operations))
                ready.append((transaction.done, results))
            except StoreError as error:
                _fail(transaction.done, error)
        changes, _ = await in_pauses(draft.changes())
        if changes:
            encoded = [
                journal.encode_changes(changes[at : at + _PORTION])
                async for at in unhurried(range(0, len(changes), _PORTION), 1)
            ]
            frame = journal.encode_frame(self._number + 1, b"".join(encoded))
            failure = await self._append(frame)
            if failure is not None:
                for done, _ in ready:
                    _fail(done, failure)
                return
            del encoded, frame
            if len(changes) > _PORTION:
                await asyncio.sleep(0)
        self._install(draft)
        for done, results in ready:
            if not done.done():
                done.set_result(results)
        if len(changes) > _PORTION:
            # Before all of it is freed.
            await asyncio.sleep(0)

    async def _append(self, frame: bytes) -> StoreError | None:
        """Make a frame durable. Returns the error if it isn't in the file."""
        if self._failed is not None:
            return StoreFailedError(self._failed)
        since = self._monotonic()
        try:
            await self._background.run(journal.append, self._fd, self._end, frame)
        except OSError as error:
            try:
                await self._background.run(journal.cut, self._fd, self._end)
            except OSError as second:
                self._failed = (
                    f"{self._path}: cannot be written ({second.strerror}); free the disk, then restart"
                )
            return StoreFailedError(f"{self._path}: cannot be written ({error.strerror}); check the disk")
        self.timings.add(self._monotonic() - since)
        self._end += len(frame)
        self._number += 1
        return None

    def _install(self, draft: _Draft) -> None:
        """Apply a durable draft to the tree, and call the watches."""
        for path, node in draft.nodes.items():
            before = self._nodes.get(path)
            if before is not None:
                self._live -= len(path) + len(before.data) + 16
            if node is None:
                if before is not None:
                    del self._nodes[path]
                    self._unlink(path)
                continue
            if before is None:
                above, _, name = path.rpartition("/")
                self._children.setdefault(above or "/", {})[name] = None
            self._nodes[path] = node
            self._live += len(path) + len(node.data) + 16
        self._notify(draft.events)

    def _unlink(self, path: str) -> None:
        above, _, name = path.rpartition("/")
        siblings = self._children[above or "/"]
        del siblings[name]
        if not siblings:
            del self._children[above or "/"]

    async def _compact(self) -> None:
        """Rewrite the journal with the current nodes. If that fails, the old one stays in use."""
        nodes = self._nodes.copy()
        try:
            beside, fd, size, number = await self._background.run(
                journal.write_compacted, self._path, _by_depth(nodes)
            )
        except OSError as error:
            _log.warning("store journal not compacted", file=str(self._path), error=str(error))
            self._compact_at = 2 * self._end
            return
        os.close(self._fd)
        self._fd, self._end, self._number = fd, size, number
        try:
            await self._background.run(journal.replace, beside, self._path)
        except OSError as error:
            self._failed = (
                f"{self._path}: cannot be replaced ({error.strerror}); check the disk, then restart"
            )

    def watch(self, path: str, callback: Callable[[StoreEvent], None]) -> Watch:
        self._check_session()
        self._watches.setdefault(path, []).append(callback)

        def remove() -> None:
            callbacks = self._watches.get(path, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._watches.pop(path, None)

        return Watch(remove)

    def watch_session(self, callback: Callable[[SessionState], None]) -> Watch:
        self._session_watches.append(callback)

        def remove() -> None:
            if callback in self._session_watches:
                self._session_watches.remove(callback)

        return Watch(remove)

    def _notify(self, events: Sequence[StoreEvent]) -> None:
        watched = self._watches
        for event in dict.fromkeys(each for each in events if each.path in watched):
            for callback in list(self._watches.get(event.path, ())):
                try:
                    callback(event)
                except Exception:
                    _log.exception("a watch of the store failed", path=event.path)

    async def close(self) -> None:
        if self.state is SessionState.LOST:
            return
        while self._writer is not None:
            await asyncio.wait([self._writer])
        self.state = SessionState.LOST
        for callback in list(self._session_watches):
            callback(SessionState.LOST)
        os.close(self._fd)


def _find(folders: Path | Sequence[Path]) -> Path:
    """The journal's path in any data folder: reordering ``log.dirs`` must not start an empty store."""
    paths = [folder / JOURNAL_NAME for folder in ([folders] if isinstance(folders, Path) else folders)]
    found = [path for path in paths if path.exists()]
    if len(found) > 1:
        raise StoreError(
            f"{found[0]} and {found[1]}: only one store may exist; move away the one that isn't this broker's"
        )
    return (found or paths)[0]


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _by_depth(nodes: dict[str, _Node]) -> Iterator[journal.Change]:
    """All durable nodes, parents before their children."""
    for path in sorted(nodes):
        node = nodes[path]
        if not node.ephemeral:
            yield journal.Change(path, node.data, node.version, node.sequence)


def _fail(done: asyncio.Future[list[Result]], error: StoreError) -> None:
    if not done.done():
        done.set_exception(error)
