"""Dumps the files of a data folder: logs, records of internal topics, the embedded store's journal."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.log import names
from ottla_broker.log.dump import METADATA_SNAPSHOT, Entry, RecordDecoder, dump_file, text
from ottla_broker.log.files import Files
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTION_TOPIC
from ottla_broker.store.keys import encode_uuid
from ottla_protocol.fields import Struct
from ottla_protocol.partitioning import LAG_TOPIC

if TYPE_CHECKING:
    from ottla_broker.store.journal import Change

JOURNAL: Final = "ottla-store.journal"
_UUID_BYTES: Final = 16


class UnknownFileError(Exception):
    """The broker writes no such file; the message is one line."""


def dump(path: str, *, records: bool = False, topic: str | None = None) -> Iterator[Entry]:
    """Yield the entries of a file, as :mod:`ottla_broker.log.dump` defines them.

    ``records`` adds the records of a ``.log`` file. In a folder of ``__consumer_offsets`` they are decoded as groups
    and offsets, in one of ``__transaction_state`` as transactional ids; those of Kafka's metadata log always are.
    ``topic``: the file belongs to this one, whatever its folder's name is.

    Raises:
        UnknownFileError: the broker writes no such file.
        OSError: the file can't be read.
    """
    files = Files(8, read_only=True)
    if os.path.isdir(path):
        raise UnknownFileError(f"{path} is a folder: name the files in it")
    if not os.path.exists(path):
        raise UnknownFileError(f"{path} does not exist")
    if os.path.basename(path) == JOURNAL:
        return _dump_journal(path)
    entries = dump_file(files, path, records=records, decode=_decoder_for(path, topic))
    if entries is None:
        raise UnknownFileError(f"{path} is not a file of a log or a store")
    return _and_close(files, entries)


def _and_close(files: Files, entries: Iterator[Entry]) -> Iterator[Entry]:
    with closing(files):
        yield from entries


def _decoder_for(path: str, topic: str | None) -> RecordDecoder | None:
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    partition = names.partition_of(folder)
    if folder == names.CLUSTER_METADATA or path.endswith(METADATA_SNAPSHOT):
        return decode_metadata
    if topic is None and partition is not None:
        topic = partition[0]
    if topic == OFFSETS_TOPIC:
        from ottla_broker.coordinator.group.dump import decode_record
    elif topic == TRANSACTION_TOPIC:
        from ottla_broker.coordinator.transaction.dump import decode_record
    elif topic == LAG_TOPIC:
        from ottla_broker.tools.group_lag import decode_record
    else:
        return None
    return decode_record


def decode_metadata(key: bytes | None, value: bytes | None) -> Entry | None:
    """A record of Kafka's metadata log as a structure; None for a type that isn't known."""
    from ottla_protocol.errors import ProtocolError
    from ottla_protocol.messages.metadata_records import decode_metadata_record

    try:
        found = None if value is None else decode_metadata_record(value)
    except ProtocolError as error:
        return {"problem": str(error)}
    if found is None:
        return None
    return {"type": type(found).__name__, "payload": _plain(found)}


def _plain(value: Any) -> Any:
    """A message, or a value in one, as JSON can represent it."""
    if isinstance(value, Struct):
        return {name: _plain(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return encode_uuid(value) if len(value) == _UUID_BYTES else value.hex()
    return value


def _dump_journal(path: str) -> Iterator[Entry]:
    """Yield the changes in an embedded store's journal, frame by frame."""
    from pathlib import Path

    from ottla_broker.store.api import StoreError
    from ottla_broker.store.journal import FRAME, MAGIC, decode_changes, load

    try:
        loaded = load(Path(path))
    except StoreError as error:
        yield {"kind": "damage", "problem": str(error)}
        return
    position = len(MAGIC)
    for number, payload in enumerate(loaded.payloads, start=1):
        size = FRAME.size + len(payload)
        yield {"kind": "frame", "number": number, "position": position, "size": size}
        try:
            for change in decode_changes(payload):
                yield {"kind": "change", **_change_entry(change)}
        except ValueError as error:
            yield {"kind": "damage", "position": position, "problem": str(error)}
        position += size
    if loaded.cut:
        yield {
            "kind": "damage",
            "position": loaded.end,
            "bytes": loaded.cut,
            "problem": "an incomplete frame",
        }


def _change_entry(change: Change) -> Entry:
    if change.data is None:
        return {"delete": change.path}
    return {
        "put": change.path,
        "version": change.version,
        "sequence": change.sequence,
        "data": text(change.data),
    }
