"""Members and topics as the assignors are given them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla_broker.coordinator.group.modern.member import Partitions


class MemberSpec(NamedTuple):
    """A member: the ids of the topics it subscribes to, and its part of the target so far."""

    topics: frozenset[bytes]
    target: Partitions
    instance_id: str | None = None
    rack_id: str | None = None


class TopicSpec(NamedTuple):
    """A topic's number of partitions, and the racks of each one's replicas; no racks: unknown."""

    partitions: int
    racks: Sequence[frozenset[str]] = ()

    def racks_of(self, index: int) -> frozenset[str]:
        return self.racks[index] if index < len(self.racks) else _UNKNOWN


_UNKNOWN: frozenset[str] = frozenset()

Members = Mapping[str, MemberSpec]
Topics = Mapping[bytes, TopicSpec]
Target = dict[str, Partitions]
