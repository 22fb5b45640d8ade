"""Records of Kafka's metadata log, and bytes that Kafka 3.9.1 has written."""

from __future__ import annotations

import pytest

from ottla_protocol.errors import LocalProtocolError, ProtocolError
from ottla_protocol.messages.group_records import OffsetCommitKey
from ottla_protocol.messages.metadata_records import (
    RECORD_TYPES,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from ottla_protocol.schema import Message

TOPIC_ID = bytes(range(16))

KAFKA = {
    # From the metadata log of a broker of 3.9.1, with other ids.
    "01170001001212" + b"Bootstrap records".hex(): (BeginTransactionRecord(name="Bootstrap records"), 0),
    "010c0011" + b"metadata.version".hex() + "001500": (
        FeatureLevelRecord(name="metadata.version", feature_level=21),
        0,
    ),
    "01180000": (EndTransactionRecord(), 0),
    "01020007" + b"orders".hex() + TOPIC_ID.hex() + "00": (TopicRecord(name="orders", topic_id=TOPIC_ID), 0),
    "01040002" + "07" + b"orders".hex() + "0d" + b"retention.ms".hex() + "03" + b"-1".hex() + "00": (
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="-1"),
        0,
    ),
    "01030100000002" + TOPIC_ID.hex() + "0200000001" * 2 + "010100000001" + "0" * 16 + "02" + "22" * 16 + "00": (
        PartitionRecord(
            partition_id=2,
            topic_id=TOPIC_ID,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[b"\x22" * 16],
        ),
        1,
    ),
    "01050100000000" + TOPIC_ID.hex() + "01" + "0104ffffffff": (
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1),
        1,
    ),
    "010f0000000001000000000000000c00000000000003e800": (
        ProducerIdsRecord(broker_id=1, broker_epoch=12, next_producer_id=1000),
        0,
    ),
    "010900" + TOPIC_ID.hex() + "00": (RemoveTopicRecord(topic_id=TOPIC_ID), 0),
}  # fmt: skip


@pytest.mark.parametrize("text", KAFKA)
def test_the_bytes_are_those_of_kafka(text: str) -> None:
    record, version = KAFKA[text]
    assert encode_metadata_record(record, version).hex() == text
    assert decode_metadata_record(bytes.fromhex(text)) == record


@pytest.mark.parametrize("number", RECORD_TYPES)
def test_every_type_in_every_version(number: int) -> None:
    cls: type[Message] = RECORD_TYPES[number]
    for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
        encoded = encode_metadata_record(cls(), version)
        assert encoded[1:3] == bytes((number, version))
        assert decode_metadata_record(encoded) == cls()
        with pytest.raises(ProtocolError):
            decode_metadata_record(encoded[:-1])


def test_other_records_are_passed_over() -> None:
    assert decode_metadata_record(bytes.fromhex("01140000")) is None


@pytest.mark.parametrize(
    "text", ["", "01", "0102", "00020000", "02020000", "010209", "01ff", "01ffffffffff00"]
)
def test_what_is_no_record(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_metadata_record(bytes.fromhex(text))


def test_another_message_is_no_record() -> None:
    with pytest.raises(LocalProtocolError, match="no record of the metadata log"):
        encode_metadata_record(OffsetCommitKey(), 0)
