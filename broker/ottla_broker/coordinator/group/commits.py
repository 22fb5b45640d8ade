"""Committed offsets: writing, reading, deleting and expiring them.

Kafka: ``storeOffsets``, ``getOffsets`` and ``cleanupGroupMetadata`` in ``GroupMetadataManager.scala``,
``validateOffsetCommit`` in ``GroupCoordinator.scala``, expiry after KIP-211.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.errors import commit_error
from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.machine import GroupShard
from ottla_broker.coordinator.group.offsets import Committed, TopicPartition
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.states import COMMIT, Event, GroupState
from ottla_broker.coordinator.group.subscription import PROTOCOL_TYPE
from ottla_broker.events import get_logger
from ottla_protocol.errors import KafkaError

log = get_logger()

TOMBSTONES_PER_BATCH = 1_000
"""So that a batch stays far below the topic's max.message.bytes, however long the names are in practice."""

CommitItem = tuple[str, int, Committed]
"""Topic, partition, and what is committed for it."""


class Fetched(NamedTuple):
    """What is known of one partition: offset -1 and no metadata where nothing is."""

    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = codes.NONE


class Commits:
    """What is done to the offsets of a group. Owned by the loop thread; it keeps no state of its own."""

    def __init__(self, settings: GroupSettings, rebalancer: Rebalancer) -> None:
        self._settings = settings
        self._rebalancer = rebalancer

    # OffsetCommit

    def commit(
        self,
        group_id: str,
        group: Group | None,
        home: GroupShard,
        member_id: str,
        instance_id: str | None,
        generation: int,
        items: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
    ) -> None:
        """Commit offsets; ``reply`` gets an error code an item, once they are committed by the log.

        ``generation`` -1 without member comes from consumers that assign their partitions themselves, and
        from admin tools: they may commit to a group as long as nobody is in it.
        """
        if group is None:
            if generation >= 0:
                reply([codes.ILLEGAL_GENERATION] * len(items))
                return
            group = Group(group_id, home, self._rebalancer.now_ms())
        else:
            error = self._may_commit(group, member_id, instance_id, generation)
            if error != codes.NONE:
                reply([error] * len(items))
                return
            member = group.members.get(member_id)
            if member is not None:
                self._rebalancer.touch(member)
        limit = self._settings.offset_metadata_max_bytes
        fitting = [item for item in items if _java_length(item[2].metadata) <= limit]
        if not fitting:
            reply([codes.OFFSET_METADATA_TOO_LARGE] * len(items))
            return
        if group.group_id not in home.groups:
            home.adopt(group)
        self._write(group, items, fitting, reply)

    def _write(
        self,
        group: Group,
        items: Sequence[CommitItem],
        fitting: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
    ) -> None:
        group_id, offsets = group.group_id, group.offsets
        for topic, partition, _ in fitting:
            offsets.begin(topic, partition)

        def written(error: int, end_offset: int) -> None:
            for topic, partition, committed in fitting:
                offsets.end(topic, partition)
                if error == codes.NONE:
                    committed.position = end_offset
                    offsets.put(topic, partition, committed)
            answer = commit_error(error)
            if len(fitting) == len(items):
                reply([answer] * len(items))
            else:
                limit = self._settings.offset_metadata_max_bytes
                reply(
                    [
                        answer if _java_length(item[2].metadata) <= limit else codes.OFFSET_METADATA_TOO_LARGE
                        for item in items
                    ]
                )

        group.home.shard.append(
            [
                (records.offset_key(group_id, topic, partition), records.offset_value(committed))
                for topic, partition, committed in fitting
            ],
            written,
        )

    @staticmethod
    def _may_commit(group: Group, member_id: str, instance_id: str | None, generation: int) -> int:
        if generation < 0 and group.state is GroupState.EMPTY:
            return codes.NONE
        if generation < 0 and not member_id and instance_id is None:
            return codes.UNKNOWN_MEMBER_ID  # somebody is in the group, and this is not a member
        error = group.check_member(member_id, instance_id)
        if error == codes.NONE and generation != group.generation:
            error = codes.ILLEGAL_GENERATION
        return error if error != codes.NONE else COMMIT[group.state]

    # OffsetFetch

    @staticmethod
    def fetch(
        group: Group | None, topics: Iterable[tuple[str, Iterable[int]]] | None, require_stable: bool
    ) -> list[tuple[str, list[Fetched]]]:
        """Committed offsets of the partitions asked for; of all that have one where ``topics`` is None.

        With ``require_stable`` (KIP-447) a partition that is being written to is an error, to be asked for
        again.
        """
        if group is None:
            return [] if topics is None else [(name, [Fetched(p) for p in wanted]) for name, wanted in topics]
        offsets = group.offsets
        if topics is None:
            topics = [(name, list(partitions)) for name, partitions in offsets.topics()]
        found = []
        for name, wanted in topics:
            answers = []
            for partition in wanted:
                if require_stable and offsets.is_unstable(name, partition):
                    answers.append(Fetched(partition, error=codes.UNSTABLE_OFFSET_COMMIT))
                    continue
                committed = offsets.get(name, partition)
                answers.append(
                    Fetched(partition)
                    if committed is None
                    else Fetched(partition, committed.offset, committed.leader_epoch, committed.metadata)
                )
            found.append((name, answers))
        return found

    # Removing offsets, and groups that have none left

    def remove(
        self, group: Group, keys: Sequence[TopicPartition], retire: bool, removed: Callable[[int], None]
    ) -> None:
        """Forget offsets, and with ``retire`` the group, once their tombstones are appended.

        ``removed`` gets an error code when the tombstones are committed, or when the log refuses one; what
        that one is for is still there then.
        """
        tombstones: list[tuple[bytes, bytes | None]] = [
            (records.offset_key(group.group_id, topic, partition), None) for topic, partition in keys
        ]
        if retire and group.generation > 0:
            # A group of generation 0 was never more than offsets, and has no metadata in the log.
            tombstones.append((records.group_key(group.group_id), None))
        failure = codes.NONE
        end_offset = -1
        for start in range(0, len(tombstones), TOMBSTONES_PER_BATCH):
            try:
                end_offset = group.home.shard.write(tombstones[start : start + TOMBSTONES_PER_BATCH])
            except KafkaError as error:
                failure = int(error.code)
                break
            # Memory follows the log at once, not when the log is committed: a commit that comes in between is
            # later in the log, and must be later here as well.
            for topic, partition in keys[start : start + TOMBSTONES_PER_BATCH]:
                group.offsets.remove(topic, partition)
        if failure != codes.NONE:
            removed(commit_error(failure))
            return
        if retire:
            group.fire(Event.RETIRED, self._rebalancer.now_ms())
            self._rebalancer.stop(group)
            group.home.forget(group)
        if end_offset == -1:
            removed(codes.NONE)
        else:
            group.home.shard.when_committed(end_offset, lambda error, _: removed(commit_error(error)))

    def forget_topic(self, groups: Sequence[Group], topic: str, partitions: frozenset[int]) -> Iterator[None]:
        """A topic, or partitions of it, are deleted: so are their offsets. In steps of a group."""
        for group in groups:
            keys = [
                (name, index)
                for name, index in group.offsets.committed_keys()
                if name == topic and index in partitions
            ]
            if keys and group.state is not GroupState.DEAD:
                self._remove_logged(group, keys, "topic deleted")
            yield

    def expire(self, groups: Sequence[Group]) -> Iterator[None]:
        """Remove the offsets whose retention time is over, and groups that have nothing left. In steps of a
        group."""
        for group in groups:
            if group.state is not GroupState.DEAD:
                keys = self._expired(group)
                if keys or self.is_spent(group, 0):
                    self._remove_logged(group, keys, "expired")
            yield

    def _remove_logged(self, group: Group, keys: Sequence[TopicPartition], why: str) -> None:
        retire = self.is_spent(group, len(keys))
        log.info("offsets removed", group=group.group_id, count=len(keys), reason=why, group_removed=retire)

        def removed(error: int) -> None:
            if error != codes.NONE:
                log.warning("tombstones not written", group=group.group_id, reason=why, error=error)

        self.remove(group, keys, retire, removed)

    @staticmethod
    def is_spent(group: Group, removing: int) -> bool:
        """Whether the group can go when that many of its offsets go."""
        return (
            group.state is GroupState.EMPTY
            and not group.pending
            and not group.offsets.has_pending
            and len(group.offsets) == removing
        )

    def _expired(self, group: Group) -> list[TopicPartition]:
        """Where members are and who they are decides from when on the time of an offset runs (KIP-211)."""
        now_ms, retention = self._rebalancer.now_ms(), self._settings.offsets_retention_ms
        offsets = group.offsets
        if group.protocol_type is None:
            # Simple consumers: from the commit on.
            return offsets.expired(now_ms, retention, _commit_time)
        if group.state is GroupState.EMPTY:
            since = group.state_since_ms
            if since == -1:
                # The group's record is of an old version, which does not say since when it is empty.
                return offsets.expired(now_ms, retention, _commit_time)
            return offsets.expired(now_ms, retention, lambda _: since)
        if (
            group.state is GroupState.STABLE
            and group.protocol_type == PROTOCOL_TYPE
            and group.subscribed is not None
        ):
            # Topics that nobody is subscribed to any more: from the commit on.
            return offsets.expired(now_ms, retention, _commit_time, group.subscribed)
        return []


def _commit_time(committed: Committed) -> int:
    return committed.commit_ms


def _java_length(text: str) -> int:
    """Length in UTF-16 code units: what Kafka compares with ``offset.metadata.max.bytes``, whatever its
    name."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
