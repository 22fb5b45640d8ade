"""Where a group and its cluster keep what in ZooKeeper.

::

    /brokers/ids/[0...N] --> {"jmx_port":...,"timestamp":...,"endpoints":[...],"host":...,"version":...,"port":...}
        (ephemeral node)
    /brokers/topics/[topic] --> {"version":...,"partitions":{"0":[replica, ...], ...}}
    /consumers/[group_id]/ids/[consumer_id] --> {"version":...,"subscription":{...:...},"pattern":...,"timestamp":...}
        (ephemeral node)
    /consumers/[group_id]/offsets/[topic]/[partition_id] --> offset_counter_value (persistent node)
    /consumers/[group_id]/owners/[topic]/[partition_id] --> consumer_node_id (ephemeral node)
    /ottla/coordinated/[group_id] --> broker_id (ephemeral node: the coordinator of 2012 has consumers of the group)

An owner is the id of one of the consumer's streams, ``consumer_id-0``, ``consumer_id-1``, ….
"""

from __future__ import annotations

import json
from typing import Any, Final

from ..errors import BadNodeError
from ..types import TopicPartition

BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONSUMERS: Final = "/consumers"
COORDINATOR: Final = "/consumers/coordinator"
"""The broker that is the coordinator of 2012 (ephemeral)."""


def members(group_id: str) -> str:
    return f"{CONSUMERS}/{group_id}/ids"


def member(group_id: str, consumer_id: str) -> str:
    return f"{members(group_id)}/{consumer_id}"


def owner(group_id: str, partition: TopicPartition) -> str:
    return of_partition(group_id, "owners", partition)


def offset(group_id: str, partition: TopicPartition) -> str:
    return of_partition(group_id, "offsets", partition)


def of_partition(group_id: str, kind: str, partition: TopicPartition) -> str:
    """``kind`` is ``owners`` or ``offsets``."""
    return f"{CONSUMERS}/{group_id}/{kind}/{partition.topic}/{partition.partition}"


def coordinated(group_id: str) -> str:
    return f"/ottla/coordinated/{group_id}"


def consumer_of(stream: str) -> str:
    """The id of the consumer that has this stream, as owners name it."""
    return stream.rpartition("-")[0]


def topic(name: str) -> str:
    return f"{TOPICS}/{name}"


def broker(broker_id: str) -> str:
    return f"{BROKERS}/{broker_id}"


LONGEST_PARTITION: Final = 10
"""The most digits of a partition's number."""


def read_object(path: str, data: bytes) -> dict[str, Any]:
    """A node's JSON object. Raises BadNodeError."""
    try:
        found = json.loads(data)
    except (RecursionError, ValueError) as error:
        raise BadNodeError(f"ZooKeeper's node {path} is not JSON: {data[:80]!r}") from error
    if not isinstance(found, dict):
        raise BadNodeError(f"ZooKeeper's node {path} is not a JSON object: {data[:80]!r}")
    return found


def read_offset(path: str, data: bytes) -> int:
    """A committed offset. Raises BadNodeError."""
    try:
        offset = int(data)
        if not -(1 << 63) <= offset < 1 << 63:
            raise ValueError("an offset has 64 bits")
    except ValueError as error:
        raise BadNodeError(
            f"ZooKeeper's node {path} is not an offset: {data[:80]!r}; set it to a number, or delete it"
        ) from error
    return offset


def read_partitions(path: str, data: bytes) -> list[int]:
    """A topic's partitions, sorted. Raises BadNodeError."""
    try:
        return sorted(map(int, read_object(path, data)["partitions"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(f"ZooKeeper's node {path} has no partitions: {data[:80]!r}") from error


def read_address(path: str, data: bytes, protocol: str) -> str | None:
    """A broker's ``host:port`` for ``protocol`` (PLAINTEXT, SSL), or None. Raises BadNodeError.

    Versions 1 to 3 name the protocol in an endpoint (``PLAINTEXT://host:port``); from version 4 on the endpoint has a
    listener's name, and a map has its protocol (KIP-103). Version 1 has ``host`` and ``port`` only.
    """
    found = read_object(path, data)
    protocols = found.get("listener_security_protocol_map") or {}
    try:
        for endpoint in found.get("endpoints") or ():
            name, _, address = endpoint.partition("://")
            if protocols.get(name, name) == protocol:
                return str(address)
        if protocol == "PLAINTEXT" and found.get("host"):
            return f"{found['host']}:{int(found['port'])}"
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise BadNodeError(f"ZooKeeper's node {path} has no address: {data[:200]!r}") from error
    return None
