"""The leaders that wrote a log: epochs and the offsets they begin at (KIP-101, Kafka's LeaderEpochFileCache).

``leader-epoch-checkpoint`` is text: a line ``0`` (version), a line with the number of entries, and one line ``<epoch>
<start offset>`` per entry; both columns grow. It is written before the recovery point moves past an entry's batch;
entries above the recovery point are found again in the batches. Owned by the log's thread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from ottla_broker.events import get_logger
from ottla_broker.log.checkpoints import decode_lines, encode_lines
from ottla_broker.log.files import CorruptFileError

UNDEFINED_EPOCH: Final = -1
UNDEFINED_OFFSET: Final = -1

_log = get_logger()


class LeaderEpochs:
    """The epochs of one partition, ascending."""

    __slots__ = ("dirty", "epochs", "latest", "starts")

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.starts: list[int] = []
        # Epoch of the last entry, or -1; each append compares it.
        self.latest = UNDEFINED_EPOCH
        self.dirty = False

    def decode(self, data: bytes, path: str) -> None:
        """Read a checkpoint file; one that can't be read counts as none."""
        try:
            entries = [(int(epoch), int(start)) for epoch, start in decode_lines(data, path, fields=2)]
        except (CorruptFileError, ValueError) as error:
            _log.warning(
                "leader epoch checkpoint can't be read, epochs are read from the batches",
                file=path,
                why=str(error),
            )
            return
        for epoch, start in entries:
            self.assign(epoch, start)
        self.dirty = False

    def copy(self) -> LeaderEpochs:
        """The same epochs, not written to a file yet."""
        copied = LeaderEpochs()
        copied.epochs, copied.starts = self.epochs.copy(), self.starts.copy()
        copied.latest, copied.dirty = self.latest, True
        return copied

    def encode(self) -> bytes:
        return encode_lines(
            [f"{epoch} {start}" for epoch, start in zip(self.epochs, self.starts, strict=True)]
        )

    def assign(self, epoch: int, start: int) -> None:
        """Record that ``epoch`` begins at ``start``, and remove later entries that contradict it."""
        if epoch < 0 or start < 0 or (self.epochs and epoch == self.latest and start >= self.starts[-1]):
            return
        while self.epochs and (self.epochs[-1] >= epoch or self.starts[-1] >= start):
            self.epochs.pop()
            self.starts.pop()
        self.epochs.append(epoch)
        self.starts.append(start)
        self.latest = epoch
        self.dirty = True

    def confirm(self, epoch: int, offset: int, last: int) -> None:
        """Take the epoch of a batch from ``offset`` to ``last`` in the log, and remove entries that contradict it."""
        if epoch < 0 or (epoch == self.latest and offset >= self.starts[-1]):
            return
        later = bisect_right(self.epochs, epoch)
        if later < len(self.epochs) and self.starts[later] <= last:
            self.truncate_from_end(self.starts[later])
        if later and self.epochs[later - 1] == epoch:
            if self.starts[later - 1] <= offset:
                return
            later -= 1
            del self.epochs[later], self.starts[later]
        first = bisect_left(self.starts, offset, 0, later)
        self.epochs[first:later], self.starts[first:later] = [epoch], [offset]
        self.latest = self.epochs[-1]
        self.dirty = True

    def truncate_from_end(self, end: int) -> None:
        """Remove the entries that begin at ``end`` or after: the log ends there now."""
        keep = bisect_left(self.starts, end)
        if keep < len(self.starts):
            del self.epochs[keep:], self.starts[keep:]
            self.latest = self.epochs[-1] if self.epochs else UNDEFINED_EPOCH
            self.dirty = True

    def truncate_from_start(self, start: int) -> None:
        """Remove epochs that end before ``start``, where the log begins now; the first one left begins there."""
        passed = bisect_right(self.starts, start)
        if passed > 1 or (passed == 1 and self.starts[0] < start):
            del self.epochs[: passed - 1], self.starts[: passed - 1]
            self.starts[0] = start
            self.dirty = True

    def clear(self) -> None:
        """Remove all entries: the log is empty."""
        self.epochs.clear()
        self.starts.clear()
        self.latest = UNDEFINED_EPOCH
        self.dirty = True

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The largest epoch up to ``epoch``, and where it ends; ``(-1, -1)`` when unknown."""
        epochs = self.epochs
        if epoch == UNDEFINED_EPOCH or not epochs or epoch > epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == epochs[-1]:
            return epoch, log_end
        above = bisect_right(epochs, epoch)
        return (epochs[above - 1] if above else epoch), self.starts[above]

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote ``offset``; -1 when unknown."""
        at = bisect_right(self.starts, offset)
        return self.epochs[at - 1] if at else UNDEFINED_EPOCH
