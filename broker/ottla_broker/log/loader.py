"""Opening a partition's folder after a stop of any kind; Kafka's LogLoader.

Files that may be found there, and what is done about them::

    *.deleted                         scheduled for deletion       removed
    *.cleaned                         unfinished compaction        removed
    *.swap, at or above a .cleaned    unfinished split             removed
    *.swap, otherwise                 finished compaction          renamed; the segments it replaces are removed
    an index without its .log         lost its segment             removed
    a .log without its index          lost its index               index rebuilt
    an index that contradicts its log damaged                      index rebuilt

After a clean stop that is all. After any other, every segment that reaches above the recovery point is scanned: its
checksums and offsets are checked, its indexes and the producer state rebuilt. At the first batch that is short, isn't a
batch, or doesn't match its checksum, the log is truncated and every later segment removed: nothing above it was ever
acknowledged as flushed.

A power failure may keep a later segment but lose the last batches of an earlier one. So recovery also removes a segment
that doesn't begin where the one before it ends, and every later one. Kafka keeps it, with a gap that no follower
notices. Compaction leaves gaps that aren't damage: a gap is accepted in a topic that is compacted, in a
partition that the cleaner's checkpoint names, in a topic without a known config, after a gap inside a segment, and if
offsets are too far apart for one segment. A segment that begins before the end of the one before it is always damage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ottla_broker.events import get_logger
from ottla_broker.log import names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.index import MAX_RELATIVE
from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.recovery_scan import SegmentScan
from ottla_broker.log.segment import LogSegment
from ottla_protocol.records.batch import CorruptRecordError

_log = get_logger()


@dataclass(slots=True, eq=False)
class Loaded:
    """The findings in a folder."""

    segments: list[LogSegment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: int = 0
    log_end_offset: int = 0
    recovery_point: int = 0
    # Whether the folder has names, or lacks some, that are not on the device yet.
    new_files: bool = False
    # Segments that recovery made shorter.
    truncated: list[LogSegment] = field(default_factory=list)
    # Whether recovery removed anything from the log's end.
    was_cut: bool = False


def load(
    environment: LogEnvironment,
    path: str,
    name: str,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    may_have_gaps: bool = False,
) -> Loaded:
    """Open a partition's folder; the offsets are what the checkpoints say. Raises OSError, CorruptRecordError."""
    files = environment.files
    now_ms = environment.now_ms()
    found = _finish_interrupted(files, path, name, set(files.names(path)))
    producers = ProducerStates(environment, path, name)
    producers.find_snapshots(list(found))
    epochs = LeaderEpochs()
    if names.LEADER_EPOCHS in found:
        epoch_path = f"{path}/{names.LEADER_EPOCHS}"
        epochs.decode(files.read_all(epoch_path), epoch_path)

    segments = _open_segments(files, path, name, found, now_ms)
    loaded = Loaded(segments, epochs, producers)
    recovery = _Recovery(
        name, config, segments, epochs, producers, log_start_offset, now_ms, config.compact or may_have_gaps
    )
    loaded.truncated = recovery.truncated
    replayed = False
    if clean:
        recovery.rebuild_damaged_indexes(found)
        end = recovery.clean_end()
    else:
        recovery.rebuild_damaged_indexes(found, below=recovery_point)
        replayed = recovery.recover_from(recovery_point)
        end = segments[-1].next_offset() if segments else log_start_offset

    if segments and end < log_start_offset:
        _log.warning(
            "the log ends before its start: segment files are missing, restarting at its start",
            partition=name,
            end_offset=end,
            start_offset=log_start_offset,
        )
        for segment in segments:
            segment.unlink()
        segments.clear()
        epochs.clear()
        producers.clear(log_start_offset)
    if not segments:
        segments.append(LogSegment.create(files, path, log_start_offset, config, now_ms=now_ms))
        end = log_start_offset
        loaded.new_files = True
    loaded.new_files |= recovery.has_removed
    loaded.was_cut = recovery.has_removed or bool(recovery.truncated)
    epochs.truncate_from_end(end)
    loaded.log_start_offset = max(log_start_offset, segments[0].base_offset)
    epochs.truncate_from_start(loaded.log_start_offset)
    loaded.log_end_offset = end
    loaded.recovery_point = end if clean else min(recovery_point, end)
    producers.remove_stray([segment.base_offset for segment in segments])
    if not replayed:
        if clean and not producers.snapshots:
            producers.end_offset = producers.last_snapshot = end
        else:
            producers.load(loaded.log_start_offset, end, now_ms)
            rebuild_producers(producers, segments, end)
    for _ in producers.expire(now_ms):
        pass
    return loaded


def rebuild_producers(producers: ProducerStates, segments: Sequence[LogSegment], end: int) -> None:
    """Replay the batches from where the producers' state ends to ``end``. Raises OSError, CorruptRecordError."""
    for index, segment in enumerate(segments):
        start = producers.end_offset
        if start >= end or segment.base_offset >= end:
            break
        if index + 1 < len(segments) and segments[index + 1].base_offset <= start:
            continue
        for _, header, batch in segment.batches(segment.position_below(start)):
            if header.base_offset >= end:
                break
            if header.base_offset >= start:
                producers.replay(header, batch)
    producers.end_offset = end


def _finish_interrupted(files: Files, path: str, name: str, found: set[str]) -> set[str]:
    """Undo or finish what a crash interrupted; returns the names that are left. Raises OSError."""
    if not any(one.endswith((names.DELETED, names.CLEANED, names.SWAP, ".tmp")) for one in found):
        return found
    swaps = {one for one in found if one.endswith(names.SWAP)}
    cleaned = [
        offset
        for one in found
        if one.endswith(names.CLEANED) and (offset := names.offset_of(one)) is not None
    ]
    for one in swaps:
        if cleaned and (names.offset_of(one) or 0) >= min(cleaned):
            files.unlink(f"{path}/{one}")
    for one in found:
        if one.endswith((names.DELETED, names.CLEANED, ".tmp")):
            files.unlink(f"{path}/{one}")
    if cleaned:
        swaps = {one for one in swaps if (names.offset_of(one) or 0) < min(cleaned)}

    bases = sorted(
        offset
        for one in swaps
        if one.endswith(names.LOG + names.SWAP) and (offset := names.offset_of(one)) is not None
    )
    if bases:
        end = max(LogSegment(files, path, base, suffix=names.SWAP).next_offset() for base in bases)
        for one in found - swaps:
            offset = names.offset_of(one)
            if offset is not None and bases[0] <= offset < end and one.endswith(names.SEGMENT_SUFFIXES):
                files.unlink(f"{path}/{one}")
        _log.info("compaction finished after a restart", partition=name, segments=bases)
    for one in swaps:
        files.rename(f"{path}/{one}", f"{path}/{one.removesuffix(names.SWAP)}")
    return set(files.names(path))


def _open_segments(files: Files, path: str, name: str, found: set[str], now_ms: int) -> list[LogSegment]:
    """The segments, ascending; indexes without a segment are removed. Raises OSError."""
    bases = sorted(
        offset for one in found if one.endswith(names.LOG) and (offset := names.offset_of(one)) is not None
    )
    known = set(bases)
    for one in found:
        if one.endswith(names.INDEX_SUFFIXES) and names.offset_of(one) not in known:
            _log.warning("index without a segment removed", partition=name, file=one)
            files.unlink(f"{path}/{one}")
    return [LogSegment(files, path, base, now_ms=now_ms) for base in bases]


@dataclass(slots=True, eq=False)
class _Recovery:
    """Scans a log's segments, and changes the lists it is given."""

    name: str
    config: LogConfig
    segments: list[LogSegment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: int
    now_ms: int
    # Compaction leaves offsets out; in other logs, one that is missing was lost.
    may_have_gaps: bool
    truncated: list[LogSegment] = field(default_factory=list)
    has_removed: bool = False

    def rebuild_damaged_indexes(self, found: set[str], below: int | None = None) -> None:
        """Rebuild missing or wrong indexes; ``below``: only of segments that end before that offset."""
        for index, segment in enumerate(self.segments):
            is_last = index + 1 == len(self.segments)
            if below is not None and (is_last or self.segments[index + 1].base_offset > below):
                return
            try:
                stem = names.segment_name(segment.base_offset)
                if stem + names.OFFSET_INDEX not in found or stem + names.TIME_INDEX not in found:
                    if not segment.size:
                        continue
                    raise CorruptFileError("index file missing")
                segment.check_indexes()
            except CorruptFileError as error:
                _log.warning(
                    "index rebuilt", partition=self.name, segment=segment.base_offset, why=str(error)
                )
                damage = self._scan(segment, replay=False)
                if damage is not None:
                    _log.error(
                        "segment damaged", partition=self.name, segment=segment.base_offset, why=damage[1]
                    )
                segment.write_indexes()

    def clean_end(self) -> int:
        """The end of the log after a clean stop; a damaged end is recovered."""
        if not self.segments:
            return self.log_start_offset
        try:
            return self.segments[-1].next_offset()
        except CorruptRecordError as error:
            _log.warning("the log's end is damaged despite a clean stop", partition=self.name, why=str(error))
        self.recover_from(self.segments[-1].base_offset)
        return self.segments[-1].next_offset()

    def recover_from(self, recovery_point: int) -> bool:
        """Scan segments that reach above the recovery point, and truncate at the first damage.

        Returns whether anything was scanned.
        """
        segments = self.segments
        first = 0
        while first + 1 < len(segments) and segments[first + 1].base_offset <= recovery_point:
            first += 1
        if first >= len(segments):
            return False
        start = segments[first].base_offset
        self.producers.load(min(self.log_start_offset, start), start, self.now_ms)
        if first:
            rebuild_producers(self.producers, segments[: first + 1], start)
        self.producers.end_offset = start
        for index in range(first, len(segments)):
            segment = segments[index]
            end = self.producers.end_offset
            if index > first and self._is_elsewhere(segment, end):
                self._remove_from(index, f"it begins at {segment.base_offset} where {end} is next")
                break
            self.producers.end_offset = max(end, segment.base_offset)
            if index > first:
                self.producers.write_snapshot()
            damage = self._scan(segment, replay=True)
            if damage is not None:
                self._truncate(index, *damage)
                break
            if index + 1 < len(segments):
                segment.seal()
            else:
                segment.write_indexes()
        return True

    def _is_elsewhere(self, segment: LogSegment, end: int) -> bool:
        """Whether a segment begins before or after ``end``, and the gap is damage: see the module docstring."""
        distance = segment.base_offset - end
        return distance < 0 or (0 < distance <= MAX_RELATIVE and not self.may_have_gaps)

    def _remove_from(self, index: int, why: str) -> None:
        """Remove the segments from ``index`` on: what was written before them is lost."""
        later = self._remove(index)
        _log.warning(
            "segments removed, records before them are missing",
            partition=self.name,
            end_offset=self.producers.end_offset,
            segments=[one.base_offset for one in later],
            bytes_cut=sum(one.size for one in later),
            why=why,
        )

    def _remove(self, index: int) -> list[LogSegment]:
        """Remove the segments from ``index`` on, the last one first, so that no power failure leaves a gap."""
        later = self.segments[index:]
        for one in reversed(later):
            self.producers.remove_snapshot(one.base_offset)
            one.unlink()
        del self.segments[index:]
        self.has_removed |= bool(later)
        return later

    def _truncate(self, index: int, position: int, why: str) -> None:
        segment = self.segments[index]
        later = self._remove(index + 1)
        lost = segment.size - position
        segment.cut(position)
        self.truncated.append(segment)
        segment.write_indexes()
        _log.warning(
            "log truncated at the first damaged batch",
            partition=self.name,
            segment=segment.file.path,
            position=position,
            end_offset=self.producers.end_offset,
            bytes_cut=lost,
            later_segments_removed=[one.base_offset for one in later],
            why=why,
        )

    def _scan(self, segment: LogSegment, *, replay: bool) -> tuple[int, str] | None:
        """Check every batch and index it; with ``replay``, update producers and epochs from it too.

        Returns the position of the first damaged batch and what is wrong with it.
        """
        epochs, producers = (self.epochs, self.producers) if replay else (None, None)
        scan = SegmentScan(segment, self.config.index_interval_bytes, epochs, producers)
        why = scan.run()
        self.may_have_gaps |= replay and scan.has_gap
        return None if why is None else (scan.good, why)
