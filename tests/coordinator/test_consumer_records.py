"""The records of groups of the consumer protocol, byte for byte as Apache Kafka 3.9.1 has written them.

Made by a KRaft node with ``group.coordinator.rebalance.protocols=classic,consumer`` and three consumers of a topic of
four partitions: a static one, a dynamic one, and one of the classic protocol.
"""

from __future__ import annotations

import pytest

from ottla_broker.coordinator.group.modern import records
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.modern.states import MemberState

MEMBER = "002431656362643762662d666334632d343264352d396430372d366235393031393739663237"
TOPIC = bytes.fromhex("2240dd3325f84a17b08aafa8baf61df9")
GOLDEN = {
    "epoch": ("0003000167", "00000000000100"),
    "topics": ("0004000167", "0000022240dd3325f84a17b08aafa8baf61df9027400000004010000"),
    "member": (
        f"0005000167{MEMBER}",
        "0000046f6e650002630b2f3132372e302e302e3102027401000493e00001000100",
    ),
    "classic member": (
        "000500016700167a7638737a31786951485754564547506e506f373677",
        "00000000046f6c640b2f3132372e302e302e3102027401000493e00001003b01000027100213636f6f70657261746976652d737469"
        "636b7920000300000001000174000000080000000000000003000000000000000300000000",
    ),
    "target epoch": ("0006000167", "00000000000100"),
    "target": (
        f"0007000167{MEMBER}",
        "0000022240dd3325f84a17b08aafa8baf61df905000000000000000100000002000000030000",
    ),
    "current": (
        f"0008000167{MEMBER}",
        "0000000000010000000101022240dd3325f84a17b08aafa8baf61df903000000000000000100022240dd3325f84a17b08aafa8baf6"
        "1df90300000002000000030000",
    ),
}


@pytest.mark.parametrize("what", GOLDEN)
def test_kafkas_bytes_are_read_and_written(what: str) -> None:
    key, value = (bytes.fromhex(text) for text in GOLDEN[what])
    assert records.encode(records.decode(key, value)) == (key, value)


def test_a_membership_of_kafkas_records() -> None:
    membership = Membership()
    for key, value in GOLDEN.values():
        membership.apply(records.decode(bytes.fromhex(key), bytes.fromhex(value)))
    static, old = membership.members.values()
    assert (static.instance_id, static.classic, static.epoch) == ("one", None, 1)
    assert static.state is MemberState.UNREVOKED_PARTITIONS
    assert (static.assigned, static.revoking) == ({TOPIC: {0, 1}}, {TOPIC: {2, 3}})
    assert old.classic is not None
    assert old.classic.name == "cooperative-sticky"
    assert membership.topics["t"].partitions == 4
    for one in (static, old):
        key, value = records.encode(records.member("g", one))
        assert [key.hex(), (value or b"").hex()] in map(list, GOLDEN.values())


def test_a_member_without_the_tagged_field_is_none_of_the_classic_protocol() -> None:
    """As Ottla's previews wrote it."""
    key, value = GOLDEN["member"]
    membership = Membership()
    membership.apply(records.decode(bytes.fromhex(key), bytes.fromhex(value[:-8] + "00")))
    (member,) = membership.members.values()
    assert member.classic is None
