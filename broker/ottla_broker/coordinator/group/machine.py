"""The groups of one partition of ``__consumer_offsets``: the state machine in a coordinator's shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.member import Member
from ottla_broker.coordinator.group.offsets import OffsetTable
from ottla_broker.coordinator.group.states import Event, GroupState
from ottla_protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue

if TYPE_CHECKING:
    from ottla_broker.coordinator.group.rebalance import Rebalancer
    from ottla_broker.coordinator.shard import Shard
    from ottla_protocol.records.batch import BatchHeader
    from ottla_protocol.records.record import Record


class GroupShard:
    """Loads groups and offsets, and gives them up. Owned by the loop thread.

    ``everywhere`` is the coordinator's index of the groups of all its active shards; a group is in it exactly
    while it is in ``groups`` here and the shard is active.
    """

    __slots__ = ("_everywhere", "_metadata", "_offsets", "_producers", "_rebalancer", "groups", "shard")

    def __init__(self, shard: Shard, everywhere: dict[str, Group], rebalancer: Rebalancer) -> None:
        self.shard = shard
        self.groups: dict[str, Group] = {}
        self._everywhere = everywhere
        self._rebalancer = rebalancer
        # What has been replayed so far, by group id; empty once it is published.
        self._metadata: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[str, OffsetTable] = {}
        self._producers: dict[int, set[str]] = {}

    def adopt(self, group: Group) -> None:
        """Let a new group be found."""
        self.groups[group.group_id] = self._everywhere[group.group_id] = group

    def forget(self, group: Group) -> None:
        """Let a group be found no more."""
        del self.groups[group.group_id]
        del self._everywhere[group.group_id]

    def replay(self, record: Record, batch: BatchHeader) -> None:
        """See :class:`~ottla_broker.coordinator.shard.StateMachine`."""
        key = records.read_key(record.key)
        if isinstance(key, GroupMetadataKey):
            if record.value is None:
                self._metadata.pop(key.group, None)
            else:
                self._metadata[key.group] = records.read_group(record.value)
            return
        table = self._offsets.get(key.group)
        if table is None:
            table = self._offsets[key.group] = OffsetTable()
        if not batch.is_transactional:
            if record.value is None:
                table.remove(key.topic, key.partition)
            else:
                table.put(key.topic, key.partition, records.read_offset(record.value, record.offset))
        elif record.value is None:
            table.unstage(batch.producer_id, key.topic, key.partition)
        else:
            offset = records.read_offset(record.value, record.offset)
            table.stage(batch.producer_id, key.topic, key.partition, offset)
            self._producers.setdefault(batch.producer_id, set()).add(key.group)

    def replay_marker(self, record: Record, batch: BatchHeader) -> None:
        """A transaction has ended: the offsets in it count from here on, or never."""
        commit = records.is_commit_marker(record.key)
        for group_id in self._producers.pop(batch.producer_id, ()):
            self._offsets[group_id].end_transaction(batch.producer_id, commit)

    def publish(self) -> Iterator[None]:
        """Build the groups in steps, then let them all be found at once."""
        loaded: list[Group] = []
        for group_id, value in self._metadata.items():
            loaded.append(self._build(group_id, value))
            yield
        for group_id, table in self._offsets.items():
            if group_id not in self._metadata and not table.is_idle:
                # Committed to by simple consumers only, so that there is no metadata in the log.
                group = Group(group_id, self, self._rebalancer.now_ms())
                group.offsets = table
                loaded.append(group)
                yield
        self._metadata, self._offsets, self._producers = {}, {}, {}
        for group in loaded:
            self.adopt(group)
            self._rebalancer.resume(group)

    def unload(self) -> None:
        """Send everybody who waits to the new coordinator."""
        groups, self.groups = list(self.groups.values()), {}
        for group in groups:
            del self._everywhere[group.group_id]
            group.fire(Event.RETIRED, self._rebalancer.now_ms())
            self._rebalancer.stop(group)
        for group in groups:
            for member in list(group.members.values()):
                group.answer_join(member, join_error(member.member_id, codes.NOT_COORDINATOR))
                group.answer_sync(member, sync_error(codes.NOT_COORDINATOR))

    def _build(self, group_id: str, value: GroupMetadataValue) -> Group:
        state = GroupState.STABLE if value.members else GroupState.EMPTY
        group = Group(group_id, self, value.current_state_timestamp, state)
        group.generation = value.generation
        group.protocol_type = value.protocol_type or None
        group.protocol_name = value.protocol
        for read in value.members:
            group.add(
                Member(
                    group,
                    read.member_id,
                    read.group_instance_id,
                    read.client_id,
                    read.client_host,
                    read.rebalance_timeout,
                    read.session_timeout,
                    ((value.protocol or "", bytes(read.subscription)),),
                    bytes(read.assignment),
                )
            )
        if value.leader in group.members:
            group.leader_id = value.leader
        group.subscribed = group.compute_subscribed()
        group.offsets = self._offsets.get(group_id) or OffsetTable()
        return group
