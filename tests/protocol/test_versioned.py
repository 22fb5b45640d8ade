"""Data with a version of its own: group records and the consumers' metadata."""

from __future__ import annotations

import pytest

from ottla_protocol.errors import LocalProtocolError, ProtocolError
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from ottla_protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
)
from ottla_protocol.versioned import decode_versioned, encode_versioned

OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=7)
OFFSET_VALUE = OffsetCommitValue(offset=42, leader_epoch=3, metadata="m", commit_timestamp=1000)


def test_the_bytes_of_an_offset_record() -> None:
    assert encode_versioned(OFFSET_KEY, 1).hex() == "0001" + "000167" + "000174" + "00000007"
    assert encode_versioned(OFFSET_VALUE, 1).hex() == (
        "0001" + "000000000000002a" + "00016d" + "00000000000003e8" + "ffffffffffffffff"
    )
    assert encode_versioned(OFFSET_VALUE, 3).hex() == (
        "0003" + "000000000000002a" + "00000003" + "00016d" + "00000000000003e8"
    )


def test_the_bytes_of_a_group_record() -> None:
    assert encode_versioned(GroupMetadataKey(group="g"), 2).hex() == "0002" + "000167"
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=1,
        session_timeout=2,
        subscription=b"s",
        assignment=b"",
    )
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol=None,
        leader="m",
        current_state_timestamp=5,
        members=[member],
    )
    assert encode_versioned(value, 3).hex() == (
        "0003" + "0008636f6e73756d6572" + "00000001" + "ffff" + "00016d" + "0000000000000005" + "00000001"
        "00016d" + "ffff" + "000163" + "00022f68" + "00000001" + "00000002" + "0000000173" + "00000000"
    )
    for version in range(5):
        decoded = decode_versioned(GroupMetadataValue, encode_versioned(value, version))
        assert decoded.members[0].subscription == b"s"


def test_versions_distinguish_keys() -> None:
    for version in (0, 1):
        assert decode_key(encode_versioned(OFFSET_KEY, version)) == OFFSET_KEY
    assert decode_key(encode_versioned(GroupMetadataKey(group="g"), 2)) == GroupMetadataKey(group="g")
    for data in (b"", b"\x00", b"\x00\x03abc", b"\xff\xffabc", b"\x00\x02\x00\x05a"):
        with pytest.raises(ProtocolError):
            decode_key(data)


def test_unknown_versions() -> None:
    data = b"\x00\x05" + OFFSET_VALUE.encode(4)
    with pytest.raises(ProtocolError, match="OffsetCommitValue has no version 5"):
        decode_versioned(OffsetCommitValue, data)
    assert decode_versioned(OffsetCommitValue, data, tolerate_newer=True) == OFFSET_VALUE
    with pytest.raises(LocalProtocolError):
        encode_versioned(OFFSET_VALUE, 5)


def test_the_known_part_of_a_newer_subscription_is_read() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        owned_partitions=[TopicPartition(topic="a", partitions=[0, 1])],
        generation_id=4,
        rack_id="r",
    )
    encoded = encode_subscription(subscription, 3)
    assert decode_subscription(encoded) == subscription
    assert decode_subscription(b"\x00\x09" + encoded[2:] + b"more") == subscription
    with pytest.raises(ProtocolError):
        decode_subscription(b"\xff\xff" + encoded[2:])
    oldest = decode_subscription(encode_subscription(subscription, 0))
    assert oldest == ConsumerProtocolSubscription(topics=["a", "b"])


def test_assignment() -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="a", partitions=[2])], user_data=b"u"
    )
    for version in range(4):
        assert decode_assignment(encode_assignment(assignment, version)) == assignment
    with pytest.raises(ProtocolError):
        decode_assignment(b"")
