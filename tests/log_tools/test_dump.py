"""``ottla log dump``: every kind of file, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla_broker.coordinator.transaction.metadata import TransactionMetadata
from ottla_broker.coordinator.transaction.records import transaction_key, transaction_value
from ottla_broker.coordinator.transaction.states import PREPARE_COMMIT
from ottla_broker.log.dump import as_line
from ottla_broker.tools.dump import UnknownFileError, dump
from ottla_protocol.records.record import encode_batch

from .conftest import START_MS, TOPIC_ID


def entries(path: Path, kind: str | None = None, **options: Any) -> list[dict[str, Any]]:
    found = list(dump(str(path), **options))
    return [each for each in found if kind is None or each["kind"] == kind]


def lines(path: Path, **options: Any) -> list[str]:
    return [as_line(each) for each in dump(str(path), **options)]


def test_batches_have_the_keys_of_kafkas_tool(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000008.log"
    first = lines(path)[0]
    entry = entries(path)[0]
    assert first == (
        "baseOffset: 8 lastOffset: 8 count: 1 baseSequence: 8 lastSequence: 8 producerId: 7 producerEpoch: 0 "
        "partitionLeaderEpoch: 1 isTransactional: false isControl: false deleteHorizonMs: null position: 0 "
        f"CreateTime: {START_MS + 8} size: {entry['size']} magic: 2 compresscodec: lz4 "
        f"crc: {entry['crc']} isvalid: true"
    )


def test_records_are_shown_on_request(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.log"
    assert entries(path, "record") == []
    found = entries(path, "record", records=True)
    assert found[0] == {
        "kind": "record",
        "offset": 4,
        "CreateTime": START_MS + 4,
        "keySize": 5,
        "valueSize": 7,
        "sequence": 4,
        "headerKeys": ["h"],
        "key": "key-1",
        "payload": "value-4",
        "headers": {"h": {"hex": "ff"}},
    }
    assert lines(path, records=True)[1] == (
        f"| offset: 4 CreateTime: {START_MS + 4} keySize: 5 valueSize: 7 sequence: 4 headerKeys: [h] "
        "key: key-1 payload: value-4 headers: {h: 0xff}"
    )


def test_transaction_markers(data: Path) -> None:
    found = entries(data / "flights-0" / "00000000000000000012.log", "record", records=True)
    assert (found[0]["payload"], found[0]["valueSize"]) == (None, -1)
    assert (found[1]["endTxnMarker"], found[1]["coordinatorEpoch"]) == ("ABORT", 4)


def test_entries_are_json(data: Path) -> None:
    for path in (data / "flights-0" / "00000000000000000004.log", data / "ottla-store.journal"):
        found = entries(path, records=True)
        assert [json.loads(json.dumps(each)) for each in found] == found


def test_indexes(data: Path) -> None:
    folder = data / "flights-0"
    batches = entries(folder / "00000000000000000004.log", "batch")
    starts = {each["position"]: each["lastOffset"] for each in batches}
    index = entries(folder / "00000000000000000004.index")
    assert index
    assert all(starts[each["position"]] == each["offset"] for each in index)
    times = entries(folder / "00000000000000000004.timeindex")
    assert times[-1] == {"kind": "timeindex", "timestamp": START_MS + 7, "offset": 7}


def test_a_snapshot(data: Path) -> None:
    found = entries(data / "flights-0" / "00000000000000000008.snapshot")
    assert found == [
        {
            "kind": "producer",
            "producerId": 7,
            "producerEpoch": 0,
            "coordinatorEpoch": -1,
            "currentTxnFirstOffset": None,
            "lastTimestamp": START_MS + 7,
            "firstSequence": 7,
            "lastSequence": 7,
            "lastOffset": 7,
            "offsetDelta": 0,
            "timestamp": START_MS + 7,
        }
    ]


def test_a_transaction_index(data: Path) -> None:
    found = entries(data / "flights-0" / "00000000000000000012.txnindex")
    assert found == [
        {
            "kind": "txnindex",
            "version": 0,
            "producerId": 8,
            "firstOffset": 12,
            "lastOffset": 13,
            "lastStableOffset": 14,
        }
    ]


def test_checkpoints_and_properties(data: Path) -> None:
    epochs = entries(data / "flights-0" / "leader-epoch-checkpoint")
    assert [(each["epoch"], each["startOffset"]) for each in epochs] == [(0, 0), (1, 5), (2, 10)]
    points = entries(data / "recovery-point-offset-checkpoint")
    assert {(each["topic"], each["partition"], each["offset"]) for each in points} == {
        ("flights", 0, 14),
        ("__consumer_offsets", 0, 3),
    }
    assert entries(data / "cleaner-offset-checkpoint") == [
        {"kind": "checkpoint", "topic": "flights", "partition": 0, "offset": 4}
    ]
    assert entries(data / "flights-0" / "partition.metadata") == [
        {"kind": "partition metadata", "version": 0, "topicId": "AAECAwQFBgcICQoLDA0ODw"}
    ]
    assert {each["key"]: each["value"] for each in entries(data / "meta.properties")} == {
        "version": "0",
        "broker.id": "1",
        "cluster.id": "Zk5tq3ZUR7i0kQJv1mHs3A",
    }
    assert TOPIC_ID[:3] == b"\x00\x01\x02"


def test_groups_and_offsets(data: Path) -> None:
    path = data / "__consumer_offsets-0" / "00000000000000000000.log"
    commit, group, gone = entries(path, "record", records=True)
    assert commit["key"] == {"group": "g", "topic": "flights", "partition": 0}
    assert (commit["payload"]["offset"], commit["payload"]["metadata"]) == (12, "note")
    assert group["key"] == {"group": "g"}
    assert group["payload"]["members"][0]["assignment"] == {"flights": [0]}
    assert gone["payload"] is None
    assert "key: {group: g, topic: flights, partition: 0}" in lines(path, records=True)[1]


def test_group_records_in_a_file_that_was_moved(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes((data / "__consumer_offsets-0" / path.name).read_bytes())
    assert entries(path, "record", records=True)[1]["key"] == "\x00\x02\x00\x01g"
    assert entries(path, "record", records=True, topic="__consumer_offsets")[1]["key"] == {"group": "g"}


def test_transactional_ids(tmp_path: Path) -> None:
    ended = TransactionMetadata(
        8, 5, timeout_ms=60_000, state=PREPARE_COMMIT, partitions=frozenset({("flights", 2)}), start_ms=1
    )
    rows = [
        (0, transaction_key("orders"), transaction_value(ended), ()),
        (0, transaction_key("old"), None, ()),
        (0, None, b"odd", ()),
        (0, transaction_key("odd"), b"", ()),
    ]
    folder = tmp_path / "__transaction_state-3"
    folder.mkdir()
    path = folder / "00000000000000000000.log"
    path.write_bytes(encode_batch(rows))
    shown, gone, *odd = entries(path, "record", records=True)
    assert shown["key"] == {"transactionalId": "orders"}
    assert shown["payload"]["state"] == "PrepareCommit"
    assert shown["payload"]["partitions"] == {"flights": [2]}
    assert (gone["key"], gone["payload"]) == ({"transactionalId": "old"}, None)
    assert [each["payload"] for each in odd] == ["odd", ""]
    moved = tmp_path / path.name
    moved.write_bytes(path.read_bytes())
    found = entries(moved, "record", records=True, topic="__transaction_state")
    assert found[0]["key"] == {"transactionalId": "orders"}


def test_the_stores_journal(data: Path) -> None:
    found = entries(data / "ottla-store.journal")
    assert [each["number"] for each in found if each["kind"] == "frame"] == [1, 2]
    changes = [each for each in found if each["kind"] == "change"]
    assert {each.get("put") for each in changes} >= {"/brokers", "/brokers/ids"}
    assert {"hex": "00ff"} in [each.get("data") for each in changes]
    assert "/brokers/ids" in [each.get("delete") for each in changes]


def test_damage_is_reported_and_the_rest_is_shown(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.log"
    raw = bytearray(path.read_bytes())
    raw[70] ^= 0xFF
    path.write_bytes(raw[:-10])
    found = entries(path, records=True)
    assert [each["isvalid"] for each in found if each["kind"] == "batch"] == [False, True, True]
    assert found[-1]["kind"] == "damage"
    assert "ends in the batch" in found[-1]["problem"]
    assert lines(path)[-1].startswith("DAMAGE position: ")


def test_zeros_after_the_batches_are_a_preallocated_file(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.log"
    size = path.stat().st_size
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert entries(path)[-1] == {"kind": "preallocated", "position": size, "size": 5000}


@pytest.mark.parametrize(
    "name",
    [
        "flights-0/00000000000000000008.snapshot",
        "flights-0/00000000000000000012.txnindex",
        "flights-0/leader-epoch-checkpoint",
        "flights-0/partition.metadata",
        "cleaner-offset-checkpoint",
        "ottla-store.journal",
    ],
)
def test_garbage_in_a_small_file_is_one_line(data: Path, name: str) -> None:
    (data / name).write_bytes(b"\xff\x01nonsense\n\n\n")
    assert [each["kind"] for each in entries(data / name)] == ["damage"]


def test_leftovers_of_a_compaction_are_readable(data: Path) -> None:
    folder = data / "flights-0"
    for suffix in (".cleaned", ".swap", ".deleted"):
        for kind in (".log", ".index"):
            path = folder / f"00000000000000000004{kind}"
            path.with_name(path.name + suffix).write_bytes(path.read_bytes())
            assert entries(path.with_name(path.name + suffix)) == entries(path)


def test_a_foreign_file(data: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path in (tmp_path / "notes.txt", tmp_path / "missing.log", data):
        with pytest.raises(UnknownFileError, match=str(path)):
            dump(str(path))


def test_nothing_is_written(data: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in data.rglob("*")}

    before = state()
    for path in data.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            list(dump(str(path), records=True))
    assert state() == before
