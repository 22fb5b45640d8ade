"""Dumps any file that a broker writes: the log's, the records of its internal topics, the embedded store's
journal.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla_broker.log import names
from ottla_broker.log.dump import Entry, RecordDecoder, as_line, dump_file, text
from ottla_broker.log.files import Files
from ottla_protocol.errors import ProtocolError

if TYPE_CHECKING:
    from ottla_broker.store.journal import Change
    from ottla_protocol.messages.group_records import GroupMetadataValue, OffsetCommitValue

OFFSETS_TOPIC: Final = "__consumer_offsets"
_JOURNAL: Final = "ottla-store.journal"


class UnknownFileError(Exception):
    """The file is none that a broker writes; the message is one line that says so."""


def dump(path: str, *, records: bool = False) -> Iterator[Entry]:
    """The entries of a file; see :mod:`ottla_broker.log.dump` for what an entry is.

    ``records`` adds the records of a ``.log`` file's batches; those of ``__consumer_offsets``, told by the
    name of the file's folder, are shown as the groups and offsets that they are.

    Raises UnknownFileError, OSError.
    """
    files = Files(8, read_only=True)
    if os.path.isdir(path):
        raise UnknownFileError(f"{path} is a folder: name the files in it")
    if not os.path.exists(path):
        raise UnknownFileError(f"{path} does not exist")
    if os.path.basename(path) == _JOURNAL:
        return _dump_journal(path)
    entries = dump_file(files, path, records=records, decode=_decoder_for(path))
    if entries is None:
        raise UnknownFileError(f"{path} is not a file of a log or a store")
    return entries


def dump_lines(path: str, *, records: bool = False, as_json: bool = False) -> Iterator[str]:
    """The entries as lines: JSON objects, or words as Kafka's ``kafka-dump-log`` has them. Raises as
    :func:`dump`.
    """
    for entry in dump(path, records=records):
        yield json.dumps(entry, ensure_ascii=False) if as_json else as_line(entry)


def _decoder_for(path: str) -> RecordDecoder | None:
    folder = os.path.basename(os.path.dirname(os.path.abspath(path)))
    partition = names.partition_of(folder)
    return decode_group_record if partition is not None and partition[0] == OFFSETS_TOPIC else None


def decode_group_record(key: bytes | None, value: bytes | None) -> Entry | None:
    """A record of ``__consumer_offsets`` as a structure; None for one of a kind that is not known here."""
    from ottla_protocol.messages.group_records import (
        GroupMetadataKey,
        GroupMetadataValue,
        OffsetCommitValue,
        decode_key,
    )
    from ottla_protocol.versioned import decode_versioned, peek_version

    if key is None:
        return None
    try:
        about = decode_key(key)
        entry: Entry = {"group": about.group}
        if isinstance(about, GroupMetadataKey):
            kind = "groupMetadata"
            body = None if value is None else _group_entry(decode_versioned(GroupMetadataValue, value))
        else:
            kind = "offsetCommit"
            entry |= {"topic": about.topic, "partition": about.partition}
            body = None if value is None else _offset_entry(decode_versioned(OffsetCommitValue, value))
    except ProtocolError:
        return None
    if body is not None and value is not None:
        body = {"version": peek_version(value), **body}
    return {kind: entry, "payload": body}


def _offset_entry(value: OffsetCommitValue) -> Entry:
    entry: Entry = {
        "offset": value.offset,
        "leaderEpoch": value.leader_epoch,
        "metadata": value.metadata,
        "commitTimestamp": value.commit_timestamp,
    }
    if value.expire_timestamp >= 0:
        entry["expireTimestamp"] = value.expire_timestamp
    return entry


def _group_entry(value: GroupMetadataValue) -> Entry:
    return {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "currentStateTimestamp": value.current_state_timestamp,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "rebalanceTimeout": member.rebalance_timeout,
                "sessionTimeout": member.session_timeout,
                "subscription": _subscription(member.subscription),
                "assignment": _assignment(member.assignment),
            }
            for member in value.members
        ],
    }


def _subscription(data: bytes) -> object:
    """What a consumer subscribed to; bytes as they are if it is another protocol's."""
    from ottla_protocol.messages.consumer_protocol import ConsumerProtocolSubscription
    from ottla_protocol.versioned import decode_versioned

    try:
        return decode_versioned(ConsumerProtocolSubscription, data, tolerate_newer=True).topics
    except ProtocolError:
        return text(data)


def _assignment(data: bytes) -> object:
    """What a consumer was given; bytes as they are if it is another protocol's."""
    from ottla_protocol.messages.consumer_protocol import ConsumerProtocolAssignment
    from ottla_protocol.versioned import decode_versioned

    try:
        decoded = decode_versioned(ConsumerProtocolAssignment, data, tolerate_newer=True)
    except ProtocolError:
        return text(data)
    return {each.topic: list(each.partitions) for each in decoded.assigned_partitions}


def _dump_journal(path: str) -> Iterator[Entry]:
    """The changes in an embedded store's journal, frame by frame."""
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
            "problem": "a frame that is not whole",
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
