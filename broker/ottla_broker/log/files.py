"""The log's only way to the disk: descriptors, positional reads and writes, atomic small files, locks.

All other modules of ``log/`` use a :class:`Files` and its :class:`LogFile` objects, so tests can replace them by faulty
ones: a full disk, a failing fsync, a crash between two steps.

A descriptor lives while an object refers to it. A :class:`LogFile` keeps one while it is in use, up to a limit per
:class:`Files` (the process may be limited to 20,000 descriptors with 10,000 partitions open). Every :class:`FileSlice`
keeps its own reference, so bytes on their way to a socket stay readable after their segment was evicted, renamed or
unlinked. The operating system's descriptor is closed with the last reference.

Thread safety: any method may be called from any thread. Callers decide which thread writes which file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import shutil
import threading
from collections import deque
from contextlib import suppress
from typing import Final

_PERMISSIONS: Final = 0o644
_LOG_SHARE: Final = 2
"""Logs may use 1/2 of the process's descriptors; sockets, checkpoints and libraries need the rest."""


class CorruptFileError(Exception):
    """A file beside the ``.log`` files contradicts its format or its segment; the message says how."""


class LockedError(Exception):
    """The lock file is held by another process."""


class Descriptor:
    """One open file descriptor; closed when the last reference to this object is dropped."""

    __slots__ = ("fd",)

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __del__(self, _close: object = os.close) -> None:
        # Bound at definition: at interpreter exit the module's globals may be gone.
        _close(self.fd)  # type: ignore[operator]


class LogFile:
    """A file that opens on first use and may be closed whenever it isn't in use."""

    __slots__ = ("_descriptor", "_files", "_recent", "_tracked", "path")

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._descriptor: Descriptor | None = None
        self._recent = False
        self._tracked = False

    def descriptor(self) -> Descriptor:
        """An open descriptor; keep the object while you use its number. Raises OSError; never creates the file."""
        self._recent = True
        return self._descriptor or self._files.open_descriptor(self)

    def create(self) -> None:
        """Create the file if it doesn't exist. Raises OSError."""
        if self._descriptor is None:
            self._recent = True
            self._files.open_descriptor(self, create=True)

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``position``; fewer only at the end of the file. Raises OSError."""
        descriptor = self.descriptor()
        data = os.pread(descriptor.fd, size, position)
        return data if len(data) == size else _read_on(descriptor.fd, data, size, position)

    def write(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of ``data`` at ``position``. Raises OSError, after which any part may have been written."""
        descriptor = self.descriptor()
        written = os.pwrite(descriptor.fd, data, position)
        if written != len(data):
            view = memoryview(data)
            while written < len(view):
                count = os.pwrite(descriptor.fd, view[written:], position + written)
                if count == 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
                written += count

    def sync(self) -> None:
        """Wait until the data is on the device (fdatasync). Raises OSError."""
        descriptor = self.descriptor()
        os.fdatasync(descriptor.fd)

    def truncate(self, size: int) -> None:
        """Truncate the file to ``size`` bytes, or extend it with zeros for preallocation. Raises OSError."""
        descriptor = self.descriptor()
        os.ftruncate(descriptor.fd, size)

    def pinned(self) -> LogFile:
        """Another handle on the same open file, never closed while it exists. Raises OSError.

        For a thread that reads a file whose owner may rename or unlink it meanwhile: opened again by name, it could be
        another file.
        """
        handle = LogFile(self._files, self.path)
        handle._descriptor = self.descriptor()
        return handle

    def size(self) -> int:
        """Bytes in the file; 0 when it does not exist."""
        descriptor = self._descriptor
        if descriptor is not None:
            return os.fstat(descriptor.fd).st_size
        return self._files.size(self.path)

    def close(self) -> None:
        """Drop this object's reference to the descriptor; the file opens again on its next use."""
        self._descriptor = None


class FileSlice:
    """``size`` bytes of a file from ``position``, ready for ``os.sendfile(socket, slice.fd, …)``.

    It holds the file open while it exists: drop it when it was sent.
    """

    __slots__ = ("_descriptor", "file", "position", "size")

    def __init__(self, file: LogFile, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size
        self._descriptor = file.descriptor()

    def __len__(self) -> int:
        return self.size

    @property
    def fd(self) -> int:
        """The descriptor's number, valid while this slice exists."""
        return self._descriptor.fd

    def part(self, start: int, size: int) -> FileSlice:
        """``size`` of these bytes, from the slice's byte ``start`` on, of the same open file."""
        part = FileSlice.__new__(FileSlice)
        part.file, part.position, part.size = self.file, self.position + start, size
        part._descriptor = self._descriptor
        return part

    def read(self) -> bytes:
        """The bytes themselves. Raises OSError."""
        return self.read_at(0, self.size)

    def read_at(self, start: int, size: int) -> bytes:
        """``size`` bytes from the slice's byte ``start`` on, which the slice has. Raises OSError."""
        fd, position = self._descriptor.fd, self.position + start
        data = os.pread(fd, size, position)
        return data if len(data) == size else _read_on(fd, data, size, position)


def _read_on(fd: int, data: bytes, size: int, position: int) -> bytes:
    """``data``, which was read at ``position``, and what is missing of ``size`` bytes, unless the file ends before."""
    while 0 < len(data) < size:
        more = os.pread(fd, size - len(data), position + len(data))
        if not more:
            break
        data += more
    return data


class FileLock:
    """An advisory lock on a file, held until it is closed or the process ends (Kafka's ``.lock``)."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def descriptor_budget() -> int:
    """Return the number of log files that may be open at once: half of what the process may open at all.

    Raises the process's soft limit to the hard one first.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return max(64, min(hard if hard != resource.RLIM_INFINITY else 1 << 20, 1 << 20) // _LOG_SHARE)


class Files:
    """The file system as the log sees it, with a bound on the descriptors that are kept open.

    Eviction is the clock algorithm: a file used since the hand last passed gets another round.
    """

    def __init__(self, max_open: int = 1024, *, read_only: bool = False) -> None:
        """``read_only`` opens nothing for writing: for tools that read the files of a running broker."""
        self._flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        self._max_open = max(8, max_open)
        self._open: deque[LogFile] = deque()
        self._lock = threading.Lock()

    def file(self, path: str) -> LogFile:
        """A closed handle on ``path``."""
        return LogFile(self, path)

    def open_descriptor(self, file: LogFile, create: bool = False) -> Descriptor:
        """Open ``file`` for reading and writing, closing others when too many are open. Raises OSError."""
        flags = self._flags | os.O_CREAT if create else self._flags
        with self._lock:
            descriptor = file._descriptor
            if descriptor is not None:
                return descriptor
            self._evict(self._max_open - 1)
            try:
                fd = os.open(file.path, flags, _PERMISSIONS)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise
                self._evict(len(self._open) // 2)
                fd = os.open(file.path, flags, _PERMISSIONS)
            descriptor = Descriptor(fd)
            file._descriptor = descriptor
            if not file._tracked:
                file._tracked = True
                self._open.append(file)
            return descriptor

    def _evict(self, keep: int) -> None:
        opened = self._open
        while len(opened) > keep:
            file = opened.popleft()
            if file._descriptor is not None and file._recent:
                file._recent = False
                opened.append(file)
            else:
                file._descriptor = None
                file._tracked = False

    def close(self) -> None:
        """Close all descriptors; a file that is used later opens again.

        Without this they would wait for the garbage collector, as files and their :class:`Files` refer to each other.
        """
        with self._lock:
            self._evict(0)

    def names(self, directory: str) -> list[str]:
        """Names in a folder, in no order. Raises OSError."""
        return os.listdir(directory)

    def folders(self, directory: str) -> list[str]:
        """Names of the folders in a folder, in no order. Raises OSError."""
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        """Bytes in the file; 0 when it doesn't exist. Raises OSError for other errors."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0

    def modified_ms(self, path: str) -> int:
        """Return when the file was last written, in ms since the epoch; 0 when it does not exist."""
        try:
            return os.stat(path).st_mtime_ns // 1_000_000
        except FileNotFoundError:
            return 0

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Set when the file was last written. Raises OSError."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove a file; one that doesn't exist is fine. Raises OSError."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def make_folder(self, path: str, *, sync: bool = False) -> None:
        """Create a folder with its parents; one that exists is fine. Raises OSError.

        ``sync`` waits until the device has the names of those that were made.
        """
        parents = []
        while sync and path and not os.path.exists(path):
            parents.append(path)
            path = os.path.dirname(path)
        os.makedirs(parents[0] if parents else path, exist_ok=True)
        for made in parents:
            self.sync_folder(os.path.dirname(made) or ".")

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its contents. Raises OSError."""
        with suppress(FileNotFoundError):
            shutil.rmtree(path)

    def space(self, path: str) -> tuple[int, int]:
        """``(total, usable)`` bytes of the volume that holds ``path``."""
        stat = os.statvfs(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize

    def read_all(self, path: str) -> bytes:
        """The whole file. Raises OSError (FileNotFoundError when it is not there)."""
        with open(path, "rb") as stream:
            return stream.read()

    def write_all(self, path: str, data: bytes) -> None:
        """Write a small file in place, without waiting for the device. Raises OSError."""
        with open(path, "wb") as stream:
            stream.write(data)

    def replace(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Put ``data`` in the place of the file in one step: readers and crashes see the old or the new, never half.

        ``sync`` waits for the device, for the data and for the name. Raises OSError.
        """
        temporary = path + ".tmp"
        with open(temporary, "wb") as stream:
            stream.write(data)
            if sync:
                stream.flush()
                os.fsync(stream.fileno())
        os.rename(temporary, path)
        if sync:
            self.sync_folder(os.path.dirname(path))

    def sync_path(self, path: str) -> None:
        """Flush a file by name with fsync, if it still exists. Raises OSError."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_descriptor(self, descriptor: Descriptor) -> None:
        """Wait until what was written through ``descriptor`` is on the device. Raises OSError."""
        os.fdatasync(descriptor.fd)

    def sync_folder(self, directory: str) -> None:
        """Make the names in a folder durable. Raises OSError."""
        self.sync_path(directory)

    def sync_all(self) -> None:
        """Block until everything dirty on the machine is written back; a later fsync shows errors."""
        os.sync()

    def lock(self, path: str) -> FileLock:
        """Take the lock file. Raises LockedError when another process has it, OSError when it can't be created.

        It is a POSIX record lock, as Java's FileChannel.lock takes, so it excludes Kafka as well.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PERMISSIONS)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise LockedError(path) from None
            raise
        return FileLock(fd)
