"""The record of a classic group is what the message class writes."""

from __future__ import annotations

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.member import Member
from ottla_broker.coordinator.group.records import group_value
from ottla_broker.coordinator.shard import Shard
from ottla_protocol.messages.group_records import GroupMetadataValue
from ottla_protocol.versioned import decode_versioned, encode_versioned

_texts = st.text(max_size=5)
_members = st.lists(
    st.tuples(_texts, st.none() | _texts, _texts, st.integers(0, 2**31 - 1), st.binary(max_size=9)),
    max_size=4,
    unique_by=lambda one: one[0],
)


@given(_texts, st.none() | _texts, _members, st.integers(-1, 2**50))
def test_a_group_is_written_as_by_the_message_class(
    protocol_type: str,
    protocol: str | None,
    members: list[tuple[str, str | None, str, int, bytes]],
    since: int,
) -> None:
    group = Group("g", cast(Shard, None), since)
    group.protocol_type, group.protocol_name, group.generation = protocol_type, protocol, 7
    for member_id, instance, client, timeout, metadata in members:
        protocols = ((protocol, metadata),) if protocol is not None else ()
        group._insert(Member("g", member_id, instance, client, "/127.0.0.1", timeout, 6000, protocols))
    assignments = {members[0][0]: b"share"} if members else {}
    value = group_value(group, assignments)
    read = decode_versioned(GroupMetadataValue, value)
    assert encode_versioned(read, 3) == value
    assert (read.protocol_type, read.protocol, read.leader) == (protocol_type, protocol, group.leader_id)
    assert (read.generation, read.current_state_timestamp) == (7, since)
    assert [
        (
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.rebalance_timeout,
            bytes(each.subscription),
        )
        for each in read.members
    ] == [
        (member_id, instance, client, timeout, metadata if protocol is not None else b"")
        for member_id, instance, client, timeout, metadata in members
    ]
    assert [bytes(each.assignment) for each in read.members] == [b"share", b"", b"", b""][: len(members)]
