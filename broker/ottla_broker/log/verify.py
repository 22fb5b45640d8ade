"""Checks that the log's files are sound, for ``ottla log verify``.

Each check yields findings: the file, a position in it where that makes sense, and what is wrong. Files are opened for
reading only. Verify a folder while no broker writes to it: beside a running one, a batch may be read half written. The
active segment's indexes and checkpoints may lag behind its batches, which is no finding.

What is checked::

    .log                     framing, checksums, offsets that grow and fit the segment, the records of a batch
    .index                   entries that grow; a batch begins there, and one ends at the offset
    .timeindex               entries that grow, each the largest timestamp up to its offset
    .txnindex                whole entries, markers in order and inside the segment
    .snapshot                checksum; no producer's last batch at or above the offset in the file's name
    leader-epoch-checkpoint  both columns grow; the batches carry its epochs
    offset checkpoints       format
    partition.metadata       format
    a partition's folder     segments that do not overlap
"""

from __future__ import annotations

import os.path
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.log import names, txn_index
from ottla_broker.log.checkpoints import decode_lines, decode_offsets, decode_topic_id
from ottla_broker.log.dump import (
    OFFSET_CHECKPOINTS,
    TEMPORARY,
    base_offset_of,
    dump_properties,
    index_entries,
    is_zero_from,
    open_segment,
    plain_name,
)
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.index import MAX_RELATIVE, OFFSET_ENTRY, TIME_ENTRY
from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.producer_snapshot import decode_snapshot
from ottla_protocol.records.batch import MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import decode_any, is_intact

ORPHAN: Final = "an index without its segment"

Problem = tuple[int | None, str]
"""A position in the file in bytes, None for the whole file, and what is wrong there."""


class Finding(NamedTuple):
    """A problem. ``position`` is in bytes; None for the whole file."""

    file: str
    position: int | None
    problem: str

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file} at byte {self.position}"
        return f"{where}: {self.problem}"


@dataclass(slots=True)
class Tally:
    """The amount that was checked, and the number of findings."""

    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    findings: int = 0

    def finding(self, file: str, position: int | None, problem: str) -> Finding:
        """A finding, counted."""
        self.findings += 1
        return Finding(file, position, problem)


class SegmentMap:
    """The batches of one segment, to compare its indexes with: columns, in order of position."""

    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        # The offset after the last batch.
        self.end_offset = base_offset
        # The position after the last message of an old format. What old brokers have put into indexes about such ones
        # differs: an offset may be the first one of several messages.
        self.old_end = 0
        self.positions = array("q")
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        # The largest timestamp from the segment's start to the batch, and the batch's own.
        self.largest_timestamps = array("q")
        self.timestamps = array("q")
        # Leader epochs where they change: (epoch, first offset, position).
        self.epochs: list[tuple[int, int, int]] = []

    def add(self, position: int, header: BatchHeader) -> None:
        timestamp = header.max_timestamp
        largest = self.largest_timestamps[-1] if self.largest_timestamps else -1
        self.positions.append(position)
        self.first_offsets.append(header.base_offset)
        self.last_offsets.append(header.last_offset)
        self.largest_timestamps.append(max(largest, timestamp))
        self.timestamps.append(timestamp)
        epoch = header.partition_leader_epoch
        if header.magic != MAGIC:
            self.old_end = position + header.size
        elif not self.epochs or self.epochs[-1][0] != epoch:
            self.epochs.append((epoch, header.base_offset, position))
        self.end_offset = header.last_offset + 1


def verify_log(files: Files, path: str, found: SegmentMap, tally: Tally) -> Iterator[Problem]:
    """Problems of a ``.log`` file; its batches are added to ``found``. Raises OSError."""
    segment = open_segment(files, path)
    good = 0
    try:
        for position, header, batch in segment.batches():
            good = position + header.size
            tally.batches += 1
            for problem in _batch_problems(header, batch, found, tally):
                yield position, problem
            found.add(position, header)
    except CorruptRecordError as error:
        if not is_zero_from(segment, good):
            left = segment.size - good
            yield good, f"no batch can be read here, {left} bytes before the file's end: {error}"


def _batch_problems(header: BatchHeader, batch: memoryview, found: SegmentMap, tally: Tally) -> Iterator[str]:
    base = found.base_offset
    first, last = header.base_offset, header.last_offset
    if first < found.end_offset:
        yield f"offset {first} where {found.end_offset} or more has to follow"
    if last < first or last - base > MAX_RELATIVE:
        yield f"offsets {first} to {last} do not fit a segment that begins at {base}"
    if not is_intact(batch, 0, header):
        yield f"the checksum of the batch with offsets {first} to {last} does not match its bytes"
        return
    if header.magic == MAGIC and not 0 <= header.record_count <= header.last_offset_delta + 1:
        yield f"{header.record_count} records in a batch with offsets {first} to {last}"
        return
    yield from _record_problems(header, batch, found, tally)


def _record_problems(
    header: BatchHeader, batch: memoryview, found: SegmentMap, tally: Tally
) -> Iterator[str]:
    try:
        records = decode_any(batch, 0, header)
    except CorruptRecordError as error:
        yield f"the records of the batch at offset {header.base_offset} cannot be read: {error}"
        return
    tally.records += len(records)
    # Only its records tell where a message set of an old format begins.
    previous = (header.base_offset if header.magic == MAGIC else found.end_offset) - 1
    for record in records:
        if not previous < record.offset <= header.last_offset:
            yield f"record offset {record.offset} behind {previous}, the batch ends at {header.last_offset}"
            return
        previous = record.offset
    if records:
        largest = max(record.timestamp for record in records)
        if largest != header.max_timestamp:
            yield f"the batch says its largest timestamp is {header.max_timestamp}, its records say {largest}"


def verify_offset_index(files: Files, path: str, found: SegmentMap) -> Iterator[Problem]:
    """Problems of an ``.index`` file, compared with its segment's batches. Raises OSError."""
    previous = (-1, -1)
    data = files.read_all(path)
    yield from _whole_entries(data, OFFSET_ENTRY.size)
    for number, (relative, position) in enumerate(index_entries(data, OFFSET_ENTRY)):
        at = number * OFFSET_ENTRY.size
        if relative <= previous[0] or position <= previous[1]:
            yield at, f"entry ({relative}, {position}) does not grow from {previous}"
        previous = (relative, position)
        offset = found.base_offset + relative
        row = bisect_left(found.positions, position)
        last = bisect_left(found.last_offsets, offset)
        if row == len(found.positions) or found.positions[row] != position:
            yield at, f"points at position {position}, where no batch begins"
        elif offset < found.first_offsets[row] and position >= found.old_end:
            yield at, f"offset {offset} lies before the batch at {position}, of {found.first_offsets[row]}"
        elif position >= found.old_end and (
            last == len(found.last_offsets) or found.last_offsets[last] != offset
        ):
            yield at, f"offset {offset} is not the last one of a batch"


def verify_time_index(files: Files, path: str, found: SegmentMap) -> Iterator[Problem]:
    """Problems of a ``.timeindex`` file, compared with its segment's batches. Raises OSError."""
    previous = (-1, -1)
    data = files.read_all(path)
    yield from _whole_entries(data, TIME_ENTRY.size)
    for number, (timestamp, relative) in enumerate(index_entries(data, TIME_ENTRY)):
        at = number * TIME_ENTRY.size
        if timestamp <= previous[0] or relative < previous[1]:
            yield at, f"entry ({timestamp}, {relative}) does not grow from {previous}"
        previous = (timestamp, relative)
        offset = found.base_offset + relative
        row = bisect_left(found.last_offsets, offset)
        if row == len(found.last_offsets):
            yield at, f"offset {offset} is in no batch"
        elif found.positions[row] < found.old_end:
            continue
        elif offset < found.first_offsets[row]:
            yield at, f"offset {offset} is in no batch"
        elif found.timestamps[row] != timestamp:
            yield at, f"says offset {offset} has timestamp {timestamp}, its batch has {found.timestamps[row]}"
        elif found.largest_timestamps[row] != timestamp:
            yield at, f"the largest timestamp up to offset {offset} is {found.largest_timestamps[row]}"


def _whole_entries(data: bytes, size: int) -> Iterator[Problem]:
    if odd := len(data) % size:
        yield len(data) - odd, f"{odd} bytes at the end are not a whole entry of {size}"


def verify_txn_index(files: Files, path: str, found: SegmentMap) -> Iterator[Problem]:
    """Problems of a ``.txnindex`` file. Raises OSError, CorruptFileError."""
    previous = -1
    for number, entry in enumerate(txn_index.read(files, path)):
        at = number * txn_index.ENTRY_SIZE
        if entry.last_offset <= previous or entry.first_offset > entry.last_offset:
            yield at, f"transaction {entry.first_offset} to {entry.last_offset} behind {previous}"
        if not found.base_offset <= entry.last_offset < found.end_offset:
            yield at, f"the marker at offset {entry.last_offset} is not in this segment"
        previous = entry.last_offset


def verify_snapshot(files: Files, path: str) -> Iterator[Problem]:
    """Problems of a ``.snapshot`` file. Raises OSError, CorruptFileError."""
    end = base_offset_of(path)
    for producer in decode_snapshot(files.read_all(path)):
        for batch in producer.batches[-1:]:
            if batch.last_offset >= end:
                yield (
                    None,
                    f"producer {producer.producer_id} has a batch at {batch.last_offset}, not below {end}",
                )


def verify_leader_epochs(files: Files, path: str, segments: list[SegmentMap]) -> Iterator[Problem]:
    """Problems of a ``leader-epoch-checkpoint``, compared with the batches. Raises OSError.

    Epochs above the file's last one are no problem: it is written before the recovery point passes them, not before.
    """
    epochs = LeaderEpochs()
    previous = (-1, -1)
    try:
        lines = [
            (int(epoch), int(start)) for epoch, start in decode_lines(files.read_all(path), path, fields=2)
        ]
    except (CorruptFileError, ValueError) as error:
        yield None, f"is not a checkpoint of leader epochs: {error}"
        return
    for epoch, start in lines:
        if epoch <= previous[0] or start <= previous[1]:
            yield None, f"epoch {epoch} from offset {start} does not grow from {previous}"
        previous = (epoch, start)
        epochs.assign(epoch, start)
    for segment in segments:
        for epoch, offset, _ in segment.epochs:
            said = epochs.epoch_at(offset)
            # Offsets before the first entry lie below the log start offset; their entries were removed with it.
            if said >= 0 and 0 <= epoch <= epochs.latest and said != epoch:
                yield None, f"says epoch {said} for offset {offset}, whose batch has {epoch}"


def verify_checkpoint(files: Files, path: str) -> Iterator[Problem]:
    """Problems of an offset checkpoint or ``partition.metadata``. Raises OSError, CorruptFileError."""
    data = files.read_all(path)
    if plain_name(path) == names.PARTITION_METADATA:
        decode_topic_id(data, path)
        return
    for (topic, partition), offset in decode_offsets(data, path).items():
        if offset < 0 or partition < 0:
            yield None, f"offset {offset} for {topic}-{partition}"


def verify_properties(files: Files, path: str) -> Iterator[Problem]:
    """Problems of ``meta.properties``. Raises OSError."""
    values = {entry["key"]: entry["value"] for entry in dump_properties(files, path)}
    if values.get("version") not in ("0", "1"):
        yield None, f"version {values.get('version')!r}, known are 0 and 1"
    for key in ("broker.id", "node.id"):
        if not values.get(key, "0").isdigit():
            yield None, f"{key} is not a number: {values[key]!r}"


def verify_partition(files: Files, folder: str, tally: Tally) -> Iterator[Finding]:
    """Findings about a partition's folder with all its files. Raises OSError."""
    found = sorted(name for name in files.names(folder) if not name.endswith(TEMPORARY))
    segments: dict[int, SegmentMap] = {}
    end = latest_epoch = -1
    for name in found:
        base = names.offset_of(name)
        if base is not None and name.endswith(names.LOG):
            path = f"{folder}/{name}"
            segment = segments[base] = SegmentMap(base)
            yield from _counted(files, path, tally, verify_log(files, path, segment, tally))
            if base < end:
                yield tally.finding(path, 0, f"the segment before this one ends at offset {end}")
            end = max(end, segment.end_offset)
            for epoch, offset, position in segment.epochs:
                if epoch < latest_epoch:
                    problem = f"leader epoch {epoch} at offset {offset} behind epoch {latest_epoch}"
                    yield tally.finding(path, position, problem)
                latest_epoch = max(latest_epoch, epoch)
    for name in found:
        path = f"{folder}/{name}"
        if name.endswith(names.INDEX_SUFFIXES):
            problems = _verify_index(files, path, segments.get(base_offset_of(path)))
        elif name == names.LEADER_EPOCHS:
            problems = verify_leader_epochs(files, path, [segments[base] for base in sorted(segments)])
        elif name.endswith(names.LOG):
            continue
        else:
            yield from verify_file(files, path, tally) or ()
            continue
        yield from _counted(files, path, tally, problems)


def verify_file(files: Files, path: str, tally: Tally) -> Iterator[Finding] | None:
    """Findings about one file, chosen by its name; None for a name that no file of a log has. Raises OSError.

    An index is compared with the ``.log`` file beside it.
    """
    name = plain_name(path)
    suffix = os.path.splitext(name)[1]
    problems: Iterator[Problem]
    if suffix == names.LOG:
        problems = verify_log(files, path, SegmentMap(base_offset_of(path)), tally)
    elif suffix in names.INDEX_SUFFIXES:
        problems = _verify_index(files, path, _segment_beside(files, path))
    elif suffix == names.SNAPSHOT:
        problems = verify_snapshot(files, path)
    elif name == names.LEADER_EPOCHS:
        problems = verify_leader_epochs(files, path, [])
    elif name == names.META_PROPERTIES:
        problems = verify_properties(files, path)
    elif name in OFFSET_CHECKPOINTS or name == names.PARTITION_METADATA:
        problems = verify_checkpoint(files, path)
    else:
        return None
    return _counted(files, path, tally, problems)


def _segment_beside(files: Files, path: str) -> SegmentMap | None:
    """The batches of an index's segment; None when the segment is missing."""
    name = plain_name(path)
    log = path.replace(name, os.path.splitext(name)[0] + names.LOG)
    if not files.exists(log):
        return None
    found = SegmentMap(base_offset_of(path))
    deque(verify_log(files, log, found, Tally()), maxlen=0)
    return found


def _verify_index(files: Files, path: str, found: SegmentMap | None) -> Iterator[Problem]:
    if found is None:
        yield None, ORPHAN
        return
    verify = {
        names.OFFSET_INDEX: verify_offset_index,
        names.TIME_INDEX: verify_time_index,
        names.TXN_INDEX: verify_txn_index,
    }[os.path.splitext(plain_name(path))[1]]
    yield from verify(files, path, found)


def _counted(files: Files, path: str, tally: Tally, problems: Iterable[Problem]) -> Iterator[Finding]:
    """The problems of a file as findings; counts them and the file."""
    tally.files += 1
    tally.bytes += files.size(path)
    try:
        for position, problem in problems:
            yield tally.finding(path, position, problem)
    except CorruptFileError as error:
        yield tally.finding(path, None, str(error))
