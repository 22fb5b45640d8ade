"""Checks and lists a partition's folder while a broker in another process writes it.

It only reads, and expects change: folders are renamed when a topic is deleted, segments are replaced by compaction. An
open folder stays the same one whatever its name becomes. Files and names are in ``docs/formats``.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from struct import Struct
from time import sleep
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import numpy as np

from ottla_protocol.properties import PropertiesError, parse_properties

from .aborted import Aborted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .ranges import OffsetRange

_SWAP_TRIES: Final = 40
_SWAP_PAUSE: Final = 0.025
_TXN_ENTRY: Final = Struct(">hqqqq")
_LOG, _SWAP, _TXN_INDEX = ".log", ".swap", ".txnindex"


class NotHere(Exception):
    """The folder can't be read from this machine, or isn't the range's; the text says why."""


class Unsure(Exception):
    """The files don't show what the log holds: they are being replaced, or end too early."""


class Listing(NamedTuple):
    """The segments' base offsets in order, and those that have an index of aborted transactions."""

    bases: tuple[int, ...]
    with_aborted: tuple[int, ...]


class Folder:
    """An open folder. Raises NotHere if it isn't the range's."""

    def __init__(self, range: OffsetRange) -> None:
        place = range.segments
        if place is None:
            raise NotHere("no broker reported where the log is")
        if range.topic_uuid is None:
            raise NotHere(
                "the topic's id isn't known, so its folder can't be distinguished from another topic's"
            )
        properties = _properties(os.path.join(place.folder, "meta.properties"))
        if properties.get("cluster.id") != place.cluster_id:
            raise NotHere(f"{place.folder} on this machine is of another cluster")
        if properties.get("broker.id", properties.get("node.id")) != str(place.broker_id):
            raise NotHere(f"{place.folder} on this machine is of another broker than {place.broker_id}")
        self.path = os.path.join(place.folder, f"{range.topic}-{range.partition}")
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise NotHere(f"{self.path} can't be opened on this machine: {error.strerror}") from None
        try:
            self._check_topic(range.topic_uuid)
        except BaseException:
            self.close()
            raise

    def _check_topic(self, wanted: bytes) -> None:
        try:
            with open(self.open("partition.metadata"), "rb") as file:
                lines = dict(line.partition(b": ")[::2] for line in file.read(4096).splitlines())
            found = urlsafe_b64decode(lines.get(b"topic_id", b"").strip() + b"==")
        except (OSError, ValueError) as error:
            raise NotHere(f"{self.path}/partition.metadata can't be read: {error}") from None
        if found != wanted:
            raise NotHere(f"{self.path} is of another topic by that name")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._fd)

    def open(self, name: str) -> int:
        """A file descriptor. Raises OSError."""
        return os.open(name, os.O_RDONLY, dir_fd=self._fd)

    @property
    def is_taken(self) -> bool:
        """Whether its name now leads elsewhere: a deleted topic's folder is renamed, and removed later."""
        try:
            now = os.stat(self.path)
        except OSError:
            return False
        mine = os.fstat(self._fd)
        return (now.st_dev, now.st_ino) != (mine.st_dev, mine.st_ino)

    def segments(self) -> Listing:
        """The segments, at a moment when none is being replaced. Raises Unsure.

        While a segment is replaced, the new file is named ``.swap`` and the old one is gone already. A listing may miss
        entries that are renamed meanwhile, so two listings have to agree.
        """
        before: set[str] | None = None
        for _ in range(_SWAP_TRIES):
            try:
                names = {name for name in os.listdir(self._fd) if name.endswith((_LOG, _SWAP, _TXN_INDEX))}
            except OSError as error:
                raise Unsure(f"{self.path} can't be listed: {error.strerror}") from None
            if any(name.endswith(_SWAP) for name in names):
                before = None
                sleep(_SWAP_PAUSE)
            elif names == before:
                return Listing(_offsets(names, _LOG), _offsets(names, _TXN_INDEX))
            else:
                before = names
        raise Unsure(f"the segments in {self.path} are being replaced")

    def position(self, base: int, offset: int) -> int:
        """Where in a segment file to start looking for an offset, by the sparse index: 0 if that doesn't help.

        The index may belong to an earlier file of that name, so check what is at that position.
        """
        try:
            with open(self.open(f"{base:020d}.index"), "rb") as file:
                data = file.read()
        except OSError:
            return 0
        entries = np.frombuffer(data, ">i4", len(data) // 8 * 2).reshape(-1, 2)
        positions: NDArray[np.int32] = entries[:, 1]
        # A preallocated file ends with zeros.
        falling = np.flatnonzero(positions[1:] <= positions[:-1])
        if len(falling):
            entries = entries[: falling[0] + 1]
        row = int(np.searchsorted(entries[:, 0], offset - base, side="right")) - 1
        return int(entries[row, 1]) if row >= 0 else 0

    def aborted(self, bases: tuple[int, ...]) -> list[Aborted]:
        """The aborted transactions whose markers are in these segments. Raises Unsure."""
        found = []
        for base in bases:
            name = f"{base:020d}{_TXN_INDEX}"
            try:
                with open(self.open(name), "rb") as file:
                    data = file.read()
            except OSError as error:
                raise Unsure(f"{self.path}/{name} can't be read: {error.strerror}") from None
            whole = len(data) // _TXN_ENTRY.size * _TXN_ENTRY.size
            for version, producer, first, last, _ in _TXN_ENTRY.iter_unpack(data[:whole]):
                if version != 0:
                    raise Unsure(f"{self.path}/{name} has an entry of version {version}")
                found.append(Aborted(producer, first, last))
        return found


def _properties(path: str) -> dict[str, str]:
    try:
        with open(path, "rb") as file:
            return parse_properties(file.read(65536), path)
    except (OSError, PropertiesError) as error:
        raise NotHere(f"{path} can't be read on this machine: {error}") from None


def _offsets(names: set[str], suffix: str) -> tuple[int, ...]:
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return tuple(sorted(int(stem) for stem in stems if stem.isascii() and stem.isdigit()))
