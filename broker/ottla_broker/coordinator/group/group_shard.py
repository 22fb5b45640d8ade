"""The groups of one partition of ``__consumer_offsets``: the state machine in a coordinator's shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.group import Group, join_error, sync_error
from ottla_broker.coordinator.group.metadata_limit import MetadataLimit
from ottla_broker.coordinator.group.modern import records as modern_records
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_broker.coordinator.group.modern.membership import Membership
from ottla_broker.coordinator.group.offsets import OffsetTable
from ottla_broker.coordinator.group.share.groups import ShareGroupLoader
from ottla_broker.coordinator.group.share.records import is_of_share_group
from ottla_broker.coordinator.shard import Shard, ShardState
from ottla_protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
from ottla_protocol.records.batch import BatchHeader
from ottla_protocol.records.control import ABORT, COMMIT, control_type
from ottla_protocol.records.record import Record

AnyGroup: TypeAlias = Group | ConsumerGroup
"""A group of either kind."""


class GroupLife(NamedTuple):
    """Called for loaded and unloaded groups: sessions begin, and end."""

    resume: Callable[[AnyGroup], None]
    retire: Callable[[AnyGroup], None]


@dataclass(eq=False, slots=True)
class GroupShard:
    """Loads groups and offsets, and unloads them. Owned by the loop thread.

    ``all_groups`` is the coordinator's index of the groups of all its active shards. A group is in it exactly while it
    is in ``groups`` here and the shard is active. Meanwhile what its members have stated, and the offsets of
    open transactions, are counted in ``metadata_limit``. ``shares`` loads share groups; None: they aren't served, and
    skipped.
    """

    shard: Shard
    _all_groups: dict[str, AnyGroup]
    _now_ms: Callable[[], int]
    _life: GroupLife
    _metadata_limit: MetadataLimit
    _shares: ShareGroupLoader | None = None
    groups: dict[str, AnyGroup] = field(default_factory=dict, init=False)
    # What has been replayed so far, by group id; empty once it is published.
    _metadata: dict[str, GroupMetadataValue] = field(default_factory=dict, init=False)
    _modern: dict[str, Membership] = field(default_factory=dict, init=False)
    _offsets: dict[str, OffsetTable] = field(default_factory=dict, init=False)
    # The groups with offsets of each producer's open transaction, by producer id.
    _producers: dict[int, set[str]] = field(default_factory=dict, init=False)
    # Transactions that ended while the shard was loaded: producer id, and whether it committed.
    _ended: list[tuple[int, bool]] = field(default_factory=list, init=False)

    def create(self, group_id: str) -> Group:
        """An empty group that is not in the index yet."""
        return Group(group_id, self.shard, self._now_ms())

    def adopt(self, group: AnyGroup) -> None:
        """Add a group to the index, perhaps in place of one of the other kind."""
        before = self.groups.get(group.group_id)
        if before is not None:
            before.stated.count_out()
        group.stated.count_in(self._metadata_limit)
        self.groups[group.group_id] = self._all_groups[group.group_id] = group

    def forget(self, group: AnyGroup) -> None:
        group.stated.count_out()
        del self.groups[group.group_id]
        del self._all_groups[group.group_id]

    def replay(self, record: Record, batch: BatchHeader) -> None:
        """See :class:`~ottla_broker.coordinator.shard.StateMachine`."""
        if record.key is not None and modern_records.is_modern(record.key):
            change = modern_records.decode(record.key, record.value)
            self._modern.setdefault(change[0].group_id, Membership()).apply(change)
            return
        if record.key is not None and is_of_share_group(record.key):
            if self._shares is not None:
                self._shares.replay(record)
            return
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
            self.enlist(batch.producer_id, key.group)

    def replay_marker(self, record: Record, batch: BatchHeader) -> None:
        """A transaction has ended: the offsets in it count from here on, or never."""
        kind = control_type(record.key)
        if kind in (ABORT, COMMIT):
            for group_id in self._producers.pop(batch.producer_id, ()):
                self._offsets[group_id].end_transaction(batch.producer_id, kind == COMMIT)

    def enlist(self, producer_id: int, group_id: str) -> None:
        """Note that a producer's open transaction has offsets of a group."""
        self._producers.setdefault(producer_id, set()).add(group_id)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A marker is committed: the producer's offsets count from now on, or are dropped.

        While the shard is loaded this waits. The replay may have seen the marker or not; ending a transaction twice
        does nothing, because no offsets are written before the shard is active.
        """
        if self.shard.state is ShardState.LOADING:
            self._ended.append((producer_id, committed))
        else:
            self._complete(producer_id, committed)

    def _complete(self, producer_id: int, committed: bool) -> None:
        for group_id in self._producers.pop(producer_id, ()):
            group = self.groups.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, committed)
                group.stated.count_staged(group.offsets.staged_bytes)

    def publish(self) -> Iterator[None]:
        """Build the groups in steps, then add them all to the index at once."""
        loaded: list[AnyGroup] = []
        for group_id, value in self._metadata.items():
            loaded.append(Group.loaded(group_id, self.shard, value, self._offsets.get(group_id)))
            yield
        modern = {group_id: found for group_id, found in self._modern.items() if found.exists}
        for group_id, membership in modern.items():
            if group_id not in self._metadata:
                consumer_group = ConsumerGroup(group_id, self.shard, membership, self._offsets.get(group_id))
                consumer_group.is_listed = True
                loaded.append(consumer_group)
                yield
        for group_id, table in self._offsets.items():
            if group_id not in self._metadata and group_id not in modern and not table.is_idle:
                # Only simple consumers commit to it, so there is no metadata in the log.
                loaded.append(Group(group_id, self.shard, self._now_ms(), offsets=table))
                yield
        if self._shares is not None:
            yield from self._shares.publish()
        self._metadata, self._modern, self._offsets = {}, {}, {}
        for group in loaded:
            self.adopt(group)
            self._life.resume(group)
        ended, self._ended = self._ended, []
        for producer_id, committed in ended:
            self._complete(producer_id, committed)

    def unload(self) -> None:
        """Send everyone who waits to the new coordinator."""
        if self._shares is not None:
            self._shares.unload()
        groups, self.groups = list(self.groups.values()), {}
        for group in groups:
            group.stated.count_out()
            del self._all_groups[group.group_id]
            self._life.retire(group)
        for group in groups:
            if not isinstance(group, Group):
                continue  # none of its requests waits here, except for the log
            for member in list(group.members.values()):
                group.answer_join(member, join_error(member.member_id, codes.NOT_COORDINATOR))
                group.answer_sync(member, sync_error(codes.NOT_COORDINATOR))
