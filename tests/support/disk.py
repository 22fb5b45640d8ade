"""A disk in memory that loses what was not synced: files, folders, and every state a power failure may leave.

``Disk`` stands in for the module ``os`` in :mod:`ottla_broker.log.files` and :mod:`ottla_broker.store.journal` while
it is plugged in (``PluggedIn``), so the real code runs on it, and it records every change. ``Survivor`` follows a
recording and makes the disks that a power failure may leave after any of its steps:

- Data that a file was synced with is there. Of later writes any prefix may be, or any pages; a file may have its new
  size without its new data, which then is zeros.
- Names in a folder that was synced are there. Of later changes of names a prefix is there, in the order in which they
  were made, as journaling file systems keep it; so it is with files that are made shorter. Syncing a file does not
  make its name durable.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from ottla_broker.log import files
from ottla_broker.store import embedded, journal

PAGE = 256
"""Small, as the files in these tests are."""
ROOT = 1

_open_files: dict[int, tuple[Disk, _Node]] = {}
_first_fd = 1_000_000


class Op(NamedTuple):
    """A change: create, unlink, rename, write, truncate, sync, sync all; or a test's note."""

    kind: str
    node: int = 0
    name: str = ""
    other: int = 0
    other_name: str = ""
    at: int = 0
    data: Any = b""


class _Node:
    """A file, or a folder with ``entries``."""

    __slots__ = ("data", "entries", "modified_ns", "number")

    def __init__(self, number: int, is_folder: bool) -> None:
        self.number = number
        self.data = bytearray()
        self.entries: dict[str, _Node] | None = {} if is_folder else None
        self.modified_ns = 0


class Disk:
    """Has the functions of ``os`` that the broker's files need, and a recording of all changes, ``ops``."""

    O_RDONLY, O_RDWR, O_CREAT, O_TRUNC = os.O_RDONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC
    O_CLOEXEC, O_DIRECTORY = os.O_CLOEXEC, os.O_DIRECTORY
    strerror = staticmethod(os.strerror)
    fspath = staticmethod(os.fspath)

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._root = _Node(ROOT, is_folder=True)
        self._numbers = ROOT
        self.path = SimpleNamespace(
            exists=self._exists, dirname=posixpath.dirname, abspath=posixpath.abspath, join=posixpath.join
        )

    def note(self, what: Any) -> None:
        """Put a test's own event into the recording."""
        self.ops.append(Op("note", data=what))

    # Names

    def _node(self, path: str) -> _Node:
        node = self._root
        for name in filter(None, str(path).split("/")):
            found = node.entries.get(name) if node.entries is not None else None
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = found
        return node

    def _parent(self, path: str) -> tuple[_Node, str]:
        folder, _, name = str(path).rstrip("/").rpartition("/")
        return self._node(folder), name

    def _exists(self, path: str) -> bool:
        try:
            self._node(path)
        except FileNotFoundError:
            return False
        return True

    def _create(self, path: str, is_folder: bool) -> _Node:
        parent, name = self._parent(path)
        assert parent.entries is not None
        self._numbers += 1
        node = parent.entries[name] = _Node(self._numbers, is_folder)
        self.ops.append(Op("create", parent.number, name, node.number, at=int(is_folder)))
        return node

    def listdir(self, path: str) -> list[str]:
        entries = self._node(path).entries
        if entries is None:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return sorted(entries)

    def scandir(self, path: str) -> _Entries:
        entries = self._node(path).entries or {}
        return _Entries([_Entry(name, node.entries is not None) for name, node in sorted(entries.items())])

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        made = ""
        for name in filter(None, path.split("/")):
            made += f"/{name}"
            if not self._exists(made):
                self._create(made, is_folder=True)

    def rename(self, old: Any, new: Any) -> None:
        source, name = self._parent(old)
        target, new_name = self._parent(new)
        assert source.entries is not None
        assert target.entries is not None
        if name not in source.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(old))
        target.entries[new_name] = source.entries.pop(name)
        self.ops.append(Op("rename", source.number, name, target.number, new_name))

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        assert parent.entries is not None
        if name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        del parent.entries[name]
        self.ops.append(Op("unlink", parent.number, name))

    def rmtree(self, path: str) -> None:
        for name, node in list((self._node(path).entries or {}).items()):
            if node.entries is not None:
                self.rmtree(f"{path}/{name}")
            else:
                self.unlink(f"{path}/{name}")
        self.unlink(path)

    def stat(self, path: str) -> SimpleNamespace:
        return _stat(self._node(path))

    def statvfs(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(f_blocks=1 << 20, f_frsize=4096, f_bavail=1 << 19)

    def utime(self, path: str, ns: tuple[int, int]) -> None:
        self._node(path).modified_ns = ns[1]

    # Files

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:
        try:
            node = self._node(path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            node = self._create(path, is_folder=False)
        fd = _first_fd + len(_open_files)
        while fd in _open_files:
            fd += 1
        _open_files[fd] = (self, node)
        if flags & os.O_TRUNC:
            self.ftruncate(fd, 0)
        return fd

    def open_stream(self, path: str, mode: str) -> Any:
        if mode == "rb":
            return io.BytesIO(bytes(self._file(path).data))
        return _Stream(self, self.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))

    def _file(self, path: str) -> _Node:
        node = self._node(path)
        if node.entries is not None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def close(self, fd: int) -> None:
        del _open_files[fd]

    def fstat(self, fd: int) -> SimpleNamespace:
        return _stat(_open_files[fd][1])

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(_open_files[fd][1].data[position : position + size])

    def pwrite(self, fd: int, data: Any, position: int) -> int:
        node = _open_files[fd][1]
        data = bytes(data)
        if data:
            _write(node.data, position, data)
            self.ops.append(Op("write", node.number, at=position, data=data))
        return len(data)

    def ftruncate(self, fd: int, size: int) -> None:
        node = _open_files[fd][1]
        if len(node.data) != size:
            _truncate(node.data, size)
            self.ops.append(Op("truncate", node.number, at=size))

    def fsync(self, fd: int) -> None:
        self.ops.append(Op("sync", _open_files[fd][1].number))

    fdatasync = fsync

    def sync(self) -> None:
        self.ops.append(Op("sync all"))

    def read_file(self, path: str) -> bytes:
        return bytes(self._file(path).data)

    def tree(self) -> dict[str, bytes]:
        """Every file and its bytes."""

        def walk(node: _Node, path: str) -> Iterator[tuple[str, bytes]]:
            for name, child in sorted((node.entries or {}).items()):
                if child.entries is None:
                    yield f"{path}/{name}", bytes(child.data)
                else:
                    yield from walk(child, f"{path}/{name}")

        return dict(walk(self._root, ""))


class DiskPath(PurePosixPath):
    """A ``Path`` on the disk that is installed, as far as the store needs it."""

    plugged_in: PluggedIn

    def exists(self) -> bool:
        return self.plugged_in.disk._exists(str(self))

    def read_bytes(self) -> bytes:
        return self.plugged_in.disk.read_file(str(self))


class _Entry(NamedTuple):
    name: str
    folder: bool

    def is_dir(self) -> bool:
        return self.folder


class _Entries(list[_Entry]):
    def __enter__(self) -> _Entries:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Stream:
    """A file open for writing, whose bytes are written when it is flushed or closed."""

    def __init__(self, disk: Disk, fd: int) -> None:
        self._disk = disk
        self._fd = fd
        self._held = b""
        self._position = 0

    def write(self, data: bytes) -> None:
        self._held += data

    def flush(self) -> None:
        self._position += self._disk.pwrite(self._fd, self._held, self._position)
        self._held = b""

    def fileno(self) -> int:
        return self._fd

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()
        self._disk.close(self._fd)


class _DiskDescriptor(files.Descriptor):
    """Closed when it is dropped, also after its disk was unplugged."""

    __slots__ = ()

    def __del__(self, _close: object = None) -> None:
        _open_files.pop(self.fd, None)


class PluggedIn:
    """What the broker's modules have in place of ``os``: the disk that is plugged in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = Disk()
        for module in (files, journal, embedded):
            monkeypatch.setattr(module, "os", self)
        monkeypatch.setattr(
            files, "open", lambda path, mode: self.disk.open_stream(path, mode), raising=False
        )
        monkeypatch.setattr(files, "shutil", SimpleNamespace(rmtree=lambda path: self.disk.rmtree(path)))
        monkeypatch.setattr(
            files, "fcntl", SimpleNamespace(flock=_nothing, lockf=_nothing, LOCK_EX=0, LOCK_NB=0)
        )
        monkeypatch.setattr(files, "Descriptor", _DiskDescriptor)
        monkeypatch.setattr(DiskPath, "plugged_in", self, raising=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.disk, name)


def _nothing(*_: object) -> None:
    pass


def _stat(node: _Node) -> SimpleNamespace:
    return SimpleNamespace(st_size=len(node.data), st_mtime_ns=node.modified_ns)


def _write(data: bytearray, position: int, new: bytes) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    data[position : position + len(new)] = new


def _truncate(data: bytearray, size: int) -> None:
    if size < len(data):
        del data[size:]
    else:
        data.extend(bytes(size - len(data)))


class _FileState:
    """A file's durable bytes, and the states it went through since; ``cuts`` are the states that made it shorter."""

    __slots__ = ("cuts", "states", "synced")

    def __init__(self) -> None:
        self.synced = b""
        self.states: list[bytes] = []
        self.cuts: list[int] = []

    def change(self, op: Op) -> bool:
        """Take a write or a truncation; whether the file is shorter now."""
        before = self.states[-1] if self.states else self.synced
        data = bytearray(before)
        if op.kind == "write":
            _write(data, op.at, op.data)
        else:
            _truncate(data, op.at)
        self.states.append(bytes(data))
        if len(data) >= len(before):
            return False
        self.cuts.append(len(self.states))
        return True

    def sync(self) -> None:
        if self.states:
            self.synced = self.states[-1]
            self.states = []
            self.cuts = []

    def survive(self, chance: Random, cuts: int) -> bytes:
        """What may be left of the file, if the first ``cuts`` truncations are."""
        if not self.states:
            return self.synced
        every = [self.synced, *self.states]
        first = self.cuts[cuts - 1] if cuts else 0
        behind = self.cuts[cuts] if cuts < len(self.cuts) else len(every)
        sure, possible = every[first:behind], every[first:]
        how = chance.randrange(5)
        if how == 0:
            return sure[0]
        if how == 1:
            return sure[-1]
        if how == 2:
            return chance.choice(sure)
        # Each page in any state it had, the size too; pages that were not written are zeros.
        newest, size = chance.choice(sure), len(chance.choice(sure))
        pages = []
        for at in range(0, size, PAGE):
            end = min(at + PAGE, size)
            data = chance.choice((sure[0], newest) if how == 3 else possible)
            if data not in sure and len(data) < end:
                data = newest
            pages.append(data[at:end].ljust(end - at, b"\0"))
        return b"".join(pages)


class Survivor:
    """Follows a recording; what a power failure may leave after the steps so far."""

    def __init__(self) -> None:
        self._files: dict[int, _FileState] = {}
        self._folders: dict[int, dict[str, int]] = {ROOT: {}}
        # Changes of names, and truncations, that are not durable.
        self._pending: list[Op] = []

    def apply(self, op: Op) -> None:
        """Take the next step."""
        if op.kind in ("create", "unlink", "rename"):
            self._pending.append(op)
            if op.kind == "create":
                if op.at:
                    self._folders[op.other] = {}
                else:
                    self._files[op.other] = _FileState()
        elif op.kind in ("write", "truncate"):
            if self._files[op.node].change(op):
                self._pending.append(op)
        elif op.kind == "sync":
            if op.node in self._files:
                self._files[op.node].sync()
                self._pending = [
                    each for each in self._pending if each.kind != "truncate" or each.node != op.node
                ]
            else:
                self._sync_folder(op.node)
        elif op.kind == "sync all":
            for file in self._files.values():
                file.sync()
            self._apply_names(self._folders, self._pending)
            self._pending = []

    def _sync_folder(self, number: int) -> None:
        pending, self._pending = self._pending, []
        mine = []
        for op in pending:
            is_mine = op.kind != "truncate" and number in (op.node, _target(op))
            (mine if is_mine else self._pending).append(op)
        self._apply_names(self._folders, mine)

    def _apply_names(self, folders: dict[int, dict[str, int]], ops: list[Op]) -> None:
        for op in ops:
            if op.kind == "truncate":
                continue
            entries = folders[op.node]
            if op.kind == "create":
                entries[op.name] = op.other
            elif op.kind == "unlink":
                entries.pop(op.name, None)
            elif op.name in entries:
                folders[op.other][op.other_name] = entries.pop(op.name)

    def disk(self, chance: Random) -> Disk:
        """One of the disks that may be left."""
        folders = {number: entries.copy() for number, entries in self._folders.items()}
        pending = self._pending
        how = chance.randrange(4)
        kept = 0 if how == 0 else len(pending) if how == 1 else chance.randint(0, len(pending))
        self._apply_names(folders, pending[:kept])
        cuts = Counter(op.node for op in pending[:kept] if op.kind == "truncate")
        made = Disk()

        def fill(node: _Node, number: int) -> None:
            assert node.entries is not None
            for name, child in folders[number].items():
                made._numbers += 1
                new = node.entries[name] = _Node(made._numbers, child in folders)
                made.ops.append(Op("create", node.number, name, new.number, at=int(child in folders)))
                if child in folders:
                    fill(new, child)
                else:
                    new.data = bytearray(self._files[child].survive(chance, cuts[child]))
                    made.ops.append(Op("write", new.number, data=bytes(new.data)))

        fill(made._root, ROOT)
        made.ops.append(Op("sync all"))
        return made


def _target(op: Op) -> int:
    return op.other if op.kind == "rename" else 0


def crashes(
    ops: list[Op], chance: Random, on_note: Callable[[Any], None], *, each: int, most: int, first: int = 0
) -> Iterator[tuple[int, Disk]]:
    """Disks that may be left by a power failure, ``each`` after every step of a recording from ``first`` on.

    There are ``most`` in all, more or less. ``on_note`` gets the notes between the steps.
    """
    survivor = Survivor()
    steps = sum(op.kind != "note" for op in ops[first:])
    share = min(1.0, most / max(1, steps * each))
    for number, op in enumerate(ops):
        if op.kind == "note":
            on_note(op.data)
            continue
        survivor.apply(op)
        for _ in range(each):
            if number >= first and chance.random() < share:
                yield number, survivor.disk(chance)
