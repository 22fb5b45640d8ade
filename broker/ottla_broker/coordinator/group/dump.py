"""Records of ``__consumer_offsets`` as ``ottla log dump`` shows them."""

from __future__ import annotations

from typing import Any

from ottla_broker.coordinator.group.modern import records as modern_records
from ottla_broker.store.keys import encode_uuid
from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages import group_records as wire
from ottla_protocol.messages.consumer_protocol import decode_assignment, decode_subscription
from ottla_protocol.schema import ZERO_UUID, Struct
from ottla_protocol.versioned import decode_versioned

Entry = dict[str, Any]


def decode_record(key: bytes | None, value: bytes | None) -> Entry | None:
    """Key and value of an offset or group record as a structure; ``None`` for another record."""
    if key is None:
        return None
    try:
        if modern_records.is_modern(key):
            return _modern(key, value)
        about = wire.decode_key(key)
        if isinstance(about, wire.OffsetCommitKey):
            return {
                "key": {"group": about.group, "topic": about.topic, "partition": about.partition},
                "payload": None if value is None else _plain(decode_versioned(wire.OffsetCommitValue, value)),
            }
        return {
            "key": {"group": about.group},
            "payload": None if value is None else _group(decode_versioned(wire.GroupMetadataValue, value)),
        }
    except ProtocolError:
        return None


def _modern(key: bytes, value: bytes | None) -> Entry:
    """A record of a group of the consumer protocol, with the names of Kafka's schemas."""
    about, change = modern_records.decode(key, value)
    payload = None if change is None else _plain(change)
    return {"key": {"type": type(about).__name__.removesuffix("Key"), **_plain(about)}, "payload": payload}


def _plain(message: Struct) -> Entry:
    return {_camel(each.name): _plain_value(getattr(message, each.name)) for each in message.FIELDS}


def _plain_value(value: object) -> object:
    if isinstance(value, Struct):
        return _plain(value)
    if isinstance(value, list):
        return [_plain_value(each) for each in value]
    if isinstance(value, bytes):
        return {"hex": value.hex()} if len(value) != len(ZERO_UUID) else encode_uuid(value)
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _group(value: wire.GroupMetadataValue) -> Entry:
    is_consumer = value.protocol_type == "consumer"
    return {
        "protocolType": value.protocol_type,
        "generation": value.generation,
        "protocol": value.protocol,
        "leader": value.leader,
        "currentStateTimestamp": value.current_state_timestamp,
        "members": [_member(member, is_consumer) for member in value.members],
    }


def _member(member: wire.MemberMetadata, is_consumer: bool) -> Entry:
    entry: Entry = {
        "memberId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "clientId": member.client_id,
        "clientHost": member.client_host,
        "rebalanceTimeoutMs": member.rebalance_timeout,
        "sessionTimeoutMs": member.session_timeout,
    }
    try:
        if not is_consumer:
            raise ProtocolError("the metadata of other protocols is opaque")
        entry["topics"] = list(decode_subscription(member.subscription).topics)
        entry["assignment"] = {
            part.topic: list(part.partitions)
            for part in (
                decode_assignment(member.assignment).assigned_partitions if member.assignment else ()
            )
        }
    except ProtocolError:
        entry["subscription"] = {"hex": member.subscription.hex()}
        entry["assignment"] = {"hex": member.assignment.hex()}
    return entry
