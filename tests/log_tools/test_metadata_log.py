"""Kafka's metadata log: snapshots, transactions, changes, and damage."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from ottla_broker.log.files import Files
from ottla_broker.tools.metadata_log import MetadataImage, MetadataLogError, read_metadata_log
from ottla_protocol.messages.metadata_records import (
    AbortTransactionRecord,
    AccessControlEntryRecord,
    BeginTransactionRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EndTransactionRecord,
    EntityData,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UserScramCredentialRecord,
    encode_metadata_record,
)
from ottla_protocol.records.record import encode_batch
from ottla_protocol.schema import Message

FLIGHTS, STATES = bytes(range(16)), bytes(range(1, 17))


def batch(offset: int, records: Iterable[Message]) -> bytes:
    rows = [(0, None, encode_metadata_record(record, 0), ()) for record in records]
    return bytes(encode_batch(rows, base_offset=offset))


def control(offset: int) -> bytes:
    return bytes(encode_batch([(0, b"\0\0\0\2", b"\0\0", ())], base_offset=offset, control=True))


def topic(name: str, topic_id: bytes, partitions: int = 1) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *(
            PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=3
            )
            for index in range(partitions)
        ),
    ]


def write(folder: Path, *batches: bytes, name: str = f"{0:020d}.log") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(b"".join(batches))


def read(folder: Path) -> MetadataImage:
    return read_metadata_log(Files(8, read_only=True), str(folder))


def named(image: MetadataImage) -> dict[str, set[int]]:
    return {each.name: set(each.partitions) for each in image.topics.values()}


def test_topics_come_change_and_go(tmp_path: Path) -> None:
    write(
        tmp_path,
        control(0),
        batch(1, topic("flights", FLIGHTS, 2)),
        batch(4, topic("states", STATES)),
        batch(
            6,
            [
                ConfigRecord(resource_type=2, resource_name="flights", name="a", value="1"),
                ConfigRecord(resource_type=2, resource_name="flights", name="b", value="2"),
                ConfigRecord(resource_type=2, resource_name="flights", name="a", value=None),
                ConfigRecord(resource_type=2, resource_name="states", name="c", value="3"),
                PartitionChangeRecord(partition_id=1, topic_id=FLIGHTS, isr=[2]),
                PartitionChangeRecord(partition_id=1, topic_id=FLIGHTS, leader=2),
                PartitionChangeRecord(partition_id=1, topic_id=FLIGHTS, leader=-1, replicas=[2]),
                RemoveTopicRecord(topic_id=STATES),
                ProducerIdsRecord(next_producer_id=3000),
            ],
        ),
    )
    image = read(tmp_path)
    assert named(image) == {"flights": {0, 1}}
    changed = image.topics[FLIGHTS].partitions[1]
    assert (changed.replicas, changed.isr, changed.leader, changed.leader_epoch) == ([2], [2], -1, 5)
    assert image.topics[FLIGHTS].partitions[0].leader_epoch == 3
    assert image.configs == {(2, "flights"): {"b": "2"}}
    assert (image.next_producer_id, image.end_offset, image.damage) == (3000, 15, None)


def test_what_ottla_has_not_is_counted(tmp_path: Path) -> None:
    user = [EntityData(entity_type="user", entity_name=None)]
    write(
        tmp_path,
        batch(
            0,
            [
                AccessControlEntryRecord(id=FLIGHTS),
                AccessControlEntryRecord(id=STATES),
                RemoveAccessControlEntryRecord(id=STATES),
                UserScramCredentialRecord(name="ann", mechanism=1),
                UserScramCredentialRecord(name="bob", mechanism=1),
                RemoveUserScramCredentialRecord(name="bob", mechanism=1),
                ClientQuotaRecord(entity=user, key="producer_byte_rate", value=1.0),
                ClientQuotaRecord(entity=user, key="consumer_byte_rate", value=1.0),
                ClientQuotaRecord(entity=user, key="consumer_byte_rate", remove=True),
                DelegationTokenRecord(token_id="a"),
                DelegationTokenRecord(token_id="b"),
                RemoveDelegationTokenRecord(token_id="b"),
            ],
        ),
    )
    image = read(tmp_path)
    assert (image.acls, image.users, image.tokens) == ({FLIGHTS}, {("ann", 1)}, {"a"})
    assert image.quotas == {(("user", ""), "producer_byte_rate")}


def test_only_ended_transactions_count(tmp_path: Path) -> None:
    write(
        tmp_path,
        batch(0, [BeginTransactionRecord(), *topic("flights", FLIGHTS)]),
        batch(3, [AbortTransactionRecord(), BeginTransactionRecord(), *topic("states", STATES)]),
        batch(7, [EndTransactionRecord(), BeginTransactionRecord(), RemoveTopicRecord(topic_id=STATES)]),
    )
    assert named(read(tmp_path)) == {"states": {0}}


def test_a_snapshot_stands_for_what_is_before_it(tmp_path: Path) -> None:
    old = batch(0, topic("states", STATES))
    write(
        tmp_path,
        control(0),
        batch(1, topic("flights", FLIGHTS)),
        control(3),
        name=f"{7:020d}-{2:010d}.checkpoint",
    )
    write(tmp_path, old, name=f"{3:020d}-{1:010d}.checkpoint")
    write(
        tmp_path,
        batch(5, topic("states", STATES)),
        batch(7, [ProducerIdsRecord(next_producer_id=9)]),
        name=f"{5:020d}.log",
    )
    image = read(tmp_path)
    assert named(image) == {"flights": {0}}
    assert (image.next_producer_id, image.end_offset) == (9, 8)


def test_a_torn_end_is_left_out(tmp_path: Path) -> None:
    whole = batch(0, topic("flights", FLIGHTS))
    for end in (batch(2, topic("states", STATES))[:-1], b"\x01" * 70, whole[:20]):
        write(tmp_path, whole, end)
        image = read(tmp_path)
        assert named(image) == {"flights": {0}}
        assert image.end_offset == 2
        assert f"from byte {len(whole)} on" in (image.damage or "")
    write(tmp_path, whole, bytes(4096))
    assert read(tmp_path).damage is None


def test_what_it_was_made_from_can_be_told_apart(tmp_path: Path) -> None:
    write(tmp_path, batch(0, topic("flights", FLIGHTS)))
    one = read(tmp_path)
    write(tmp_path, batch(0, topic("flights", STATES)))
    other = read(tmp_path)
    assert one.end_offset == other.end_offset
    assert one.last_crc != other.last_crc


@pytest.mark.parametrize(
    ("name", "batches", "why"),
    [
        (f"{5:020d}.log", [batch(5, topic("flights", FLIGHTS))], "has no snapshot"),
        (f"{0:020d}.log", [batch(0, [RemoveTopicRecord(topic_id=FLIGHTS)])], "doesn't exist"),
        (f"{0:020d}.log", [batch(0, [PartitionRecord(topic_id=FLIGHTS)])], "doesn't exist"),
        (
            f"{0:020d}.log",
            [batch(0, [*topic("flights", FLIGHTS), PartitionChangeRecord(topic_id=FLIGHTS, partition_id=4)])],
            "flights-4",
        ),
        (f"{0:020d}.log", [control(0), control(2)], "where 1 is next"),
        (f"{0:020d}.log", [bytes(encode_batch([(0, None, None, ())]))], "has no value"),
        (f"{0:020d}.log", [bytes(encode_batch([(0, None, b"\x07", ())]))], "ends in its head"),
        (f"{0:020d}-{0:010d}.checkpoint", [batch(0, topic("flights", FLIGHTS))[:-2]], "can't be read"),
    ],
)
def test_what_can_not_be_read(tmp_path: Path, name: str, batches: list[bytes], why: str) -> None:
    write(tmp_path, *batches, name=name)
    with pytest.raises(MetadataLogError, match=why):
        read(tmp_path)
