"""The contents of the log's files, entry by entry, for ``ottla log dump``.

An entry is a dict that JSON can represent. Its keys are those of Kafka's ``kafka-dump-log``, so that people and scripts
can read either; ``kind`` says what the entry is. Damage doesn't end a dump: an entry of kind ``damage`` says what is
wrong, and reading goes on where that is possible.

Files are opened for reading only, so a dump may run beside the broker.
"""

from __future__ import annotations

import os.path
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final

from ottla_broker.log import names, txn_index
from ottla_broker.log.checkpoints import decode_lines, decode_offsets, decode_topic_id
from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.index import OFFSET_ENTRY, TIME_ENTRY
from ottla_broker.log.producer_snapshot import decode_snapshot
from ottla_broker.log.segment import LogSegment
from ottla_protocol.printable import printable
from ottla_protocol.records.batch import MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import decode_any, is_intact

Entry = dict[str, Any]
RecordDecoder = Callable[[bytes | None, bytes | None], Entry | None]
"""Decodes a record's key and value to text or a structure; None: the record is shown as any other."""

CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = frozenset(
    (names.RECOVERY_POINTS, names.HIGH_WATERMARKS, names.LOG_STARTS, CLEANER_CHECKPOINT)
)
METADATA_SNAPSHOT: Final = ".checkpoint"
"""Kafka's metadata at an offset (``<offset>-<epoch>.checkpoint``), or at first (``bootstrap.checkpoint``): batches."""
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

TEMPORARY: Final = (names.CLEANED, names.SWAP, names.DELETED)


def plain_name(path: str) -> str:
    """The file's name without a suffix ``.cleaned``, ``.swap`` or ``.deleted``."""
    name = os.path.basename(path)
    for suffix in TEMPORARY:
        name = name.removesuffix(suffix)
    return name


def base_offset_of(path: str) -> int:
    """The offset in a file's name; 0 for a name without one."""
    return names.offset_of(plain_name(path)) or 0


def dump_log(
    files: Files, path: str, *, records: bool = False, decode: RecordDecoder | None = None
) -> Iterator[Entry]:
    """The batches of a ``.log`` file, with ``records`` also their records. Raises OSError."""
    segment = open_segment(files, path)
    good = 0
    try:
        for position, header, batch in segment.batches():
            valid = is_intact(batch, 0, header)
            yield _batch_entry(position, header, valid)
            if records and valid:
                yield from _record_entries(header, batch, decode)
            good = position + header.size
    except CorruptRecordError as error:
        if is_zero_from(segment, good):
            yield {"kind": "preallocated", "position": good, "size": segment.size - good}
            return
        yield {"kind": "damage", "position": good, "bytes": segment.size - good, "problem": str(error)}


def open_segment(files: Files, path: str) -> LogSegment:
    """The segment of a ``.log`` file of any name, for reading. Raises OSError."""
    folder, name = os.path.split(path)
    stem = plain_name(path)
    segment = LogSegment(files, folder or ".", base_offset_of(path), suffix=name[len(stem) :])
    segment.file = files.file(path)
    segment.size = files.size(path)
    return segment


def is_zero_from(segment: LogSegment, position: int) -> bool:
    """Whether the rest is only zeros, as after the end of a preallocated file."""
    while position < segment.size:
        data = segment.file.read(position, 1 << 20)
        if not data or data.count(0) != len(data):
            return not data
        position += len(data)
    return True


def _batch_entry(position: int, header: BatchHeader, valid: bool) -> Entry:
    codec = header.codec
    common = {
        "position": position,
        _time_key(header): header.max_timestamp,
        "size": header.size,
        "magic": header.magic,
        "compresscodec": CODECS[codec] if codec < len(CODECS) else f"unknown({codec})",
        "crc": header.crc,
        "isvalid": valid,
    }
    if header.magic != MAGIC:
        return {"kind": "batch", "offset": header.last_offset, **common}
    return {
        "kind": "batch",
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.record_count,
        "baseSequence": header.base_sequence,
        "lastSequence": header.last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.partition_leader_epoch,
        "isTransactional": header.is_transactional,
        "isControl": header.is_control,
        "deleteHorizonMs": header.delete_horizon_ms,
        **common,
    }


def _time_key(header: BatchHeader) -> str:
    if not header.magic:
        return "NoTimestampType"
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _record_entries(header: BatchHeader, batch: memoryview, decode: RecordDecoder | None) -> Iterator[Entry]:
    try:
        decoded = decode_any(batch, 0, header)
    except CorruptRecordError as error:
        yield {"kind": "damage", "baseOffset": header.base_offset, "problem": str(error)}
        return
    base_sequence = header.base_sequence
    for record in decoded:
        sequence = -1
        if base_sequence >= 0:
            sequence = (base_sequence + record.offset - header.base_offset) & 0x7FFFFFFF
        entry: Entry = {
            "kind": "record",
            "offset": record.offset,
            _time_key(header): record.timestamp,
            "keySize": -1 if record.key is None else len(record.key),
            "valueSize": -1 if record.value is None else len(record.value),
        }
        if header.magic == MAGIC:
            entry |= {"sequence": sequence, "headerKeys": [key for key, _ in record.headers]}
        if header.is_control:
            entry |= control_entry(record.key, record.value)
        else:
            special = decode(record.key, record.value) if decode is not None else None
            entry |= (
                special if special is not None else {"key": text(record.key), "payload": text(record.value)}
            )
            if record.headers:
                entry["headers"] = {key: text(value) for key, value in record.headers}
        yield entry


def control_entry(key: bytes | None, value: bytes | None) -> Entry:
    """The fields of a control record, which ends a transaction."""
    if key is None or len(key) < 4:
        return {"controlType": "UNKNOWN"}
    kind = int.from_bytes(key[2:4], "big", signed=True)
    entry: Entry = {"endTxnMarker": {0: "ABORT", 1: "COMMIT"}.get(kind, f"UNKNOWN({kind})")}
    if value is not None and len(value) >= 6:
        entry["coordinatorEpoch"] = int.from_bytes(value[2:6], "big", signed=True)
    return entry


def text(data: bytes | None) -> str | Entry | None:
    """Bytes as text if they are text, else as ``{"hex": …}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def dump_offset_index(files: Files, path: str) -> Iterator[Entry]:
    """The entries of an ``.index`` file. Raises OSError."""
    data, base = files.read_all(path), base_offset_of(path)
    for offset, position in index_entries(data, OFFSET_ENTRY):
        yield {"kind": "index", "offset": base + offset, "position": position}
    yield from _odd_bytes(data, OFFSET_ENTRY)


def dump_time_index(files: Files, path: str) -> Iterator[Entry]:
    """The entries of a ``.timeindex`` file. Raises OSError."""
    data, base = files.read_all(path), base_offset_of(path)
    for timestamp, offset in index_entries(data, TIME_ENTRY):
        yield {"kind": "timeindex", "timestamp": timestamp, "offset": base + offset}
    yield from _odd_bytes(data, TIME_ENTRY)


def index_entries(data: bytes, entry: Struct) -> Iterator[tuple[int, int]]:
    """The entries up to the zeros that a preallocated index ends in."""
    end = len(data) - len(data) % entry.size
    for number, pair in enumerate(entry.iter_unpack(data[:end])):
        if number and pair == (0, 0):
            return
        yield pair


def _odd_bytes(data: bytes, entry: Struct) -> Iterator[Entry]:
    if odd := len(data) % entry.size:
        yield {"kind": "damage", "position": len(data) - odd, "problem": f"{odd} bytes that are not an entry"}


def dump_txn_index(files: Files, path: str) -> Iterator[Entry]:
    """The entries of a ``.txnindex`` file. Raises OSError."""
    for each in txn_index.read(files, path):
        yield {
            "kind": "txnindex",
            "version": 0,
            "producerId": each.producer_id,
            "firstOffset": each.first_offset,
            "lastOffset": each.last_offset,
            "lastStableOffset": each.last_stable_offset,
        }


def dump_snapshot(files: Files, path: str) -> Iterator[Entry]:
    """The producers of a ``.snapshot`` file. Raises OSError."""
    for producer in decode_snapshot(files.read_all(path)):
        entry: Entry = {
            "kind": "producer",
            "producerId": producer.producer_id,
            "producerEpoch": producer.epoch,
            "coordinatorEpoch": producer.coordinator_epoch,
            "currentTxnFirstOffset": None if producer.txn_first_offset < 0 else producer.txn_first_offset,
            "lastTimestamp": producer.last_timestamp,
        }
        if producer.batches:
            last = producer.batches[-1]
            entry |= {
                "firstSequence": last.first_sequence,
                "lastSequence": last.last_sequence,
                "lastOffset": last.last_offset,
                "offsetDelta": last.last_offset - last.first_offset,
                "timestamp": last.timestamp,
            }
        yield entry


def dump_leader_epochs(files: Files, path: str) -> Iterator[Entry]:
    """The lines of a ``leader-epoch-checkpoint``. Raises OSError."""
    for epoch, start in decode_lines(files.read_all(path), path, fields=2):
        yield {"kind": "leader epoch", "epoch": int(epoch), "startOffset": int(start)}


def dump_offset_checkpoint(files: Files, path: str) -> Iterator[Entry]:
    """The lines of an offset checkpoint of a data folder. Raises OSError."""
    for (topic, partition), offset in decode_offsets(files.read_all(path), path).items():
        yield {"kind": "checkpoint", "topic": topic, "partition": partition, "offset": offset}


def dump_partition_metadata(files: Files, path: str) -> Iterator[Entry]:
    """The topic id in ``partition.metadata``. Raises OSError."""
    topic_id = urlsafe_b64encode(decode_topic_id(files.read_all(path), path)).decode()
    yield {"kind": "partition metadata", "version": 0, "topicId": topic_id.rstrip("=")}


def dump_properties(files: Files, path: str) -> Iterator[Entry]:
    """The keys and values of ``meta.properties``. Raises OSError."""
    for line in files.read_all(path).decode("utf-8", "backslashreplace").splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "!")):
            key, _, value = stripped.partition("=")
            yield {"kind": "property", "key": key.strip(), "value": value.strip()}


_Reader = Callable[[Files, str], Iterator[Entry]]
_BY_SUFFIX: Final[dict[str, _Reader]] = {
    names.OFFSET_INDEX: dump_offset_index,
    names.TIME_INDEX: dump_time_index,
    names.TXN_INDEX: dump_txn_index,
    names.SNAPSHOT: dump_snapshot,
}
_BY_NAME: Final[dict[str, _Reader]] = {
    names.LEADER_EPOCHS: dump_leader_epochs,
    names.PARTITION_METADATA: dump_partition_metadata,
    names.META_PROPERTIES: dump_properties,
    **dict.fromkeys(OFFSET_CHECKPOINTS, dump_offset_checkpoint),
}


def dump_file(
    files: Files, path: str, *, records: bool = False, decode: RecordDecoder | None = None
) -> Iterator[Entry] | None:
    """The entries of a file, chosen by its name; None for a name that no file of a log has. Raises OSError."""
    name = plain_name(path)
    suffix = os.path.splitext(name)[1]
    if suffix in (names.LOG, METADATA_SNAPSHOT):
        return dump_log(files, path, records=records, decode=decode)
    reader = _BY_NAME.get(name) or _BY_SUFFIX.get(suffix)
    return _with_damage(reader(files, path)) if reader is not None else None


def _with_damage(entries: Iterator[Entry]) -> Iterator[Entry]:
    """All entries; if the file can't be read any further, the last one says why."""
    try:
        yield from entries
    except (CorruptFileError, ValueError) as error:
        yield {"kind": "damage", "problem": str(error)}


def as_line(entry: Entry) -> str:
    """An entry as a line of text, ``key: value key: value``; records begin with a bar, as in Kafka's tool."""
    parts = [f"{key}: {_as_word(value)}" for key, value in entry.items() if key != "kind"]
    line = " ".join(parts)
    if entry["kind"] == "record":
        return f"| {line}"
    return f"DAMAGE {line}" if entry["kind"] == "damage" else line


def _as_word(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return printable(value)
        case list():
            return "[" + ",".join(map(_as_word, value)) + "]"
        case {"hex": str(digits), **rest} if not rest:
            return f"0x{digits}"
        case dict():
            return "{" + ", ".join(f"{_as_word(key)}: {_as_word(each)}" for key, each in value.items()) + "}"
        case _:
            return str(value)
