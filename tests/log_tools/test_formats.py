"""The code writes and reads the examples on the pages of docs/formats."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla_broker.coordinator.group.dump import decode_record
from ottla_broker.coordinator.transaction.metadata import TransactionMetadata
from ottla_broker.coordinator.transaction.records import (
    read_key,
    read_value,
    transaction_key,
    transaction_value,
)
from ottla_broker.coordinator.transaction.states import PREPARE_COMMIT
from ottla_broker.log.checkpoints import (
    decode_offsets,
    decode_topic_id,
    encode_offsets,
    encode_topic_id,
)
from ottla_broker.log.cleaner.filter import empty_batch, rebuild
from ottla_broker.log.cleaner.records import choose, walk
from ottla_broker.log.files import Files
from ottla_broker.log.folder import DataFolder
from ottla_broker.log.index import OffsetIndex, TimeIndex
from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.producer_snapshot import ProducerEntry, SentBatch, decode_snapshot, encode_snapshot
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.log.txn_index import encode as encode_txn_index
from ottla_broker.store.journal import MAGIC, Change, decode_changes, encode_changes, encode_frame, load
from ottla_broker.tools.group_lag import decode_record as decode_lag_record
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from ottla_protocol.messages.group_lag_records import GroupLagKey, GroupLagState, GroupLagValue
from ottla_protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla_protocol.records.batch import HEADER_SIZE, crc_is_valid, read_header
from ottla_protocol.records.compression import LZ4
from ottla_protocol.records.message_set import (
    decode_message_records,
    encode_messages,
    message_crc_is_valid,
    read_message,
)
from ottla_protocol.records.record import Record, decode_records, encode_batch
from ottla_protocol.versioned import encode_versioned

PAGES = Path(__file__).parents[2] / "docs" / "formats"
TIME_MS = 1_700_000_000_000
_EXAMPLE = re.compile(r"<!-- example: (\S+) -->\n```(bytes|text)\n(.*?)```", re.DOTALL)
_BYTES = re.compile(r"(?:[0-9a-f]{2} )*[0-9a-f]{2}(?=  |$)")


def examples() -> dict[str, bytes]:
    """All examples, by name."""
    found: dict[str, bytes] = {}
    for page in sorted(PAGES.glob("*.md")):
        for name, kind, body in _EXAMPLE.findall(page.read_text()):
            assert name not in found
            if kind == "text":
                found[name] = body.encode()
                continue
            data = bytearray()
            for line in body.splitlines():
                match = _BYTES.match(line)
                assert match is not None, f"{page.name}: {line}"
                data += bytes.fromhex(match.group())
            found[name] = bytes(data)
    return found


EXAMPLES = examples()


def the_batch() -> bytearray:
    return encode_batch(
        [(TIME_MS, b"AA", b"late", (("tz", b"EST"),)), (TIME_MS + 5, b"UA", None, ())],
        base_offset=42,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=0,
        base_sequence=10,
    )


def test_record_batch() -> None:
    data = EXAMPLES["batch"]
    assert data == the_batch()
    header = read_header(data)
    assert crc_is_valid(data, 0, header)
    assert decode_records(data) == [
        Record(42, TIME_MS, b"AA", b"late", (("tz", b"EST"),)),
        Record(43, TIME_MS + 5, b"UA", None),
    ]


def test_message_set() -> None:
    late = Record(42, TIME_MS, b"AA", b"late")
    gone = Record(43, TIME_MS + 5, b"UA", None)
    data = EXAMPLES["message"]
    assert encode_messages([late], 0) == data
    assert message_crc_is_valid(data, 0, read_message(data))
    assert decode_message_records(data) == [late._replace(timestamp=-1)]
    within = [late._replace(offset=0), gone._replace(offset=1)]
    assert encode_messages(within, 1) == EXAMPLES["messages"]
    data = EXAMPLES["wrapper"]
    assert message_crc_is_valid(data, 0, read_message(data))
    assert decode_message_records(data) == [late, gone]
    assert read_message(encode_messages([late, gone], 1, codec=LZ4)).base_offset == 43


def test_record_batch_after_compaction() -> None:
    batch = the_batch()
    header = read_header(batch)
    data = bytes(batch[HEADER_SIZE:])
    horizon = TIME_MS + 86_400_000
    choice = choose(
        walk(data, 2), lambda each: each.has_value, data, header.base_timestamp, horizon, covered=1
    )
    cleaned = rebuild(header, choice, horizon)
    assert EXAMPLES["horizon"] == bytes(cleaned.data)
    assert decode_records(EXAMPLES["horizon"]) == [Record(43, TIME_MS + 5, b"UA", None)]
    assert read_header(EXAMPLES["horizon"]).delete_horizon_ms == TIME_MS + 86_400_000
    assert EXAMPLES["empty"] == bytes(empty_batch(header).data)
    assert EXAMPLES["empty"] == bytes(empty_batch(read_header(cleaned.data)).data)
    assert read_header(EXAMPLES["empty"]).last_sequence == 11


def test_indexes(tmp_path: Path) -> None:
    files = Files(8)
    index = OffsetIndex(files, f"{tmp_path}/00000000000000000042.index", new=True)
    index.add(8, 4200)
    index.write()
    times = TimeIndex(files, f"{tmp_path}/00000000000000000042.timeindex", new=True)
    times.add(TIME_MS + 5, 8)
    times.write()
    assert (tmp_path / "00000000000000000042.index").read_bytes() == EXAMPLES["index"]
    assert (tmp_path / "00000000000000000042.timeindex").read_bytes() == EXAMPLES["timeindex"]
    assert encode_txn_index([AbortedTransaction(8, 12, 13, 14)]) == EXAMPLES["txnindex"]


def test_producer_snapshot() -> None:
    producer = ProducerEntry(7, 0)
    producer.last_timestamp = TIME_MS + 5
    producer.batches.append(SentBatch(10, 11, 42, 43, TIME_MS + 5, None))
    assert encode_snapshot([producer]) == EXAMPLES["snapshot"]
    (found,) = decode_snapshot(EXAMPLES["snapshot"])
    assert found.batches == producer.batches


def test_checkpoints(tmp_path: Path) -> None:
    offsets = {("flights", 0): 336776, ("flights", 1): 0}
    assert encode_offsets(offsets) == EXAMPLES["offsets"]
    assert decode_offsets(EXAMPLES["offsets"], "") == offsets
    epochs = LeaderEpochs()
    epochs.decode(EXAMPLES["epochs"], "")
    assert (epochs.epochs, epochs.starts) == ([0, 3], [0, 42])
    assert epochs.encode() == EXAMPLES["epochs"]
    # The page can't show that the last line has no line end.
    assert encode_topic_id(bytes(range(16))) == EXAMPLES["metadata"].rstrip(b"\n")
    assert decode_topic_id(EXAMPLES["metadata"].rstrip(b"\n"), "") == bytes(range(16))


def test_meta_properties(tmp_path: Path) -> None:
    folder = DataFolder(Files(8), str(tmp_path))
    folder.claim("Zk5tq3ZUR7i0kQJv1mHs3A", 1)
    folder.unlock()
    assert (tmp_path / "meta.properties").read_bytes() == EXAMPLES["properties"]


def test_consumer_offsets() -> None:
    commit = OffsetCommitValue(offset=12, leader_epoch=3, metadata="note", commit_timestamp=TIME_MS)
    key = OffsetCommitKey(group="g", topic="flights", partition=2)
    assert encode_versioned(key, 1) == EXAMPLES["offset-key"]
    assert encode_versioned(commit, 3) == EXAMPLES["offset-value"]
    partition = [TopicPartition(topic="flights", partitions=[2])]
    member = MemberMetadata(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        rebalance_timeout=60_000,
        subscription=encode_versioned(ConsumerProtocolSubscription(topics=["flights"]), 1),
        assignment=encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partition), 1),
    )
    group = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader="m-1",
        current_state_timestamp=TIME_MS,
        members=[member],
    )
    assert encode_versioned(GroupMetadataKey(group="g"), 2) == EXAMPLES["group-key"]
    assert encode_versioned(group, 3) == EXAMPLES["group-value"]
    shown = decode_record(EXAMPLES["group-key"], EXAMPLES["group-value"])
    assert shown is not None
    assert shown["payload"]["members"][0]["assignment"] == {"flights": [2]}


def test_transaction_state() -> None:
    metadata = TransactionMetadata(
        8,
        5,
        timeout_ms=60_000,
        state=PREPARE_COMMIT,
        partitions=frozenset({("flights", 2)}),
        start_ms=TIME_MS,
        update_ms=TIME_MS + 5,
    )
    assert transaction_key("orders") == EXAMPLES["transaction-key"]
    assert transaction_value(metadata) == EXAMPLES["transaction-value"]
    assert read_key(EXAMPLES["transaction-key"]) == "orders"
    assert read_value(EXAMPLES["transaction-value"]) == metadata


def test_group_lag() -> None:
    key = GroupLagKey(level=0, slot=7, source=3, part=0)
    group = GroupLagState(
        group_id="g",
        kind=0,
        records=5,
        most_records=9,
        lag_ms=60_000,
        commit_age_ms=1000,
        slope=-0.5,
        partitions=1,
        unknown_partitions=0,
    )
    value = GroupLagValue(time_ms=TIME_MS, groups=[group])
    assert encode_versioned(key, 0) == EXAMPLES["group-lag-key"]
    assert encode_versioned(value, 0) == EXAMPLES["group-lag-value"]
    shown = decode_lag_record(EXAMPLES["group-lag-key"], EXAMPLES["group-lag-value"])
    assert shown is not None
    assert shown["key"] == {"level": 0, "slot": 7, "source": 3, "part": 0}
    assert shown["payload"]["groups"][0]["lagMs"] == 60_000
    assert decode_lag_record(b"\0", None) is None


def test_store_journal(tmp_path: Path) -> None:
    first = [Change("/brokers", b"", 0, 0), Change("/brokers/ids", b"{}", 1, 0)]
    second = [Change("/brokers/ids", None)]
    written = MAGIC + encode_frame(1, encode_changes(first)) + encode_frame(2, encode_changes(second))
    assert written == EXAMPLES["journal"]
    path = tmp_path / "ottla-store.journal"
    path.write_bytes(EXAMPLES["journal"])
    assert [list(decode_changes(payload)) for payload in load(path).payloads] == [first, second]


def test_every_page_is_listed_and_every_example_is_tested() -> None:
    listed = (PAGES / "README.md").read_text()
    assert all(page.name in listed for page in PAGES.glob("*.md") if page.name != "README.md")
    source = Path(__file__).read_text()
    assert all(f'EXAMPLES["{name}"]' in source for name in EXAMPLES)


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.name)
def test_pages_are_short_and_narrow(page: Path) -> None:
    lines = page.read_text().splitlines()
    assert len(lines) < 150
    assert all(len(line) <= 120 or line.startswith("|") for line in lines)
