"""Committed offsets: writing, reading, deleting and expiring them.

Kafka: ``storeOffsets``, ``getOffsets`` and ``cleanupGroupMetadata`` in ``GroupMetadataManager.scala``,
``validateOffsetCommit`` in ``GroupCoordinator.scala``, expiry after KIP-211.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group import records
from ottla_broker.coordinator.group.errors import commit_error
from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.group_shard import AnyGroup, GroupShard
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.metadata_limit import MetadataLimit
from ottla_broker.coordinator.group.offsets import Committed, TopicPartition
from ottla_broker.coordinator.group.rebalance import Rebalancer
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.events import get_logger
from ottla_broker.log.verification import VerificationGuard
from ottla_protocol.errors import KafkaError

_log = get_logger()

TOMBSTONES_PER_BATCH = 1_000
"""Keeps a batch far below the topic's max.message.bytes with names of any usual length."""

CommitItem = tuple[str, int, Committed]
"""Topic, partition, and the offset to commit."""


class Fetched(NamedTuple):
    """The committed offset of one partition; -1 and no metadata where there is none."""

    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = codes.NONE


@dataclass(eq=False)
class Commits:
    """Changes the offsets of groups. Owned by the loop thread; it keeps no state of its own.

    ``retire`` makes a group dead and removes it from the coordinator's index. ``metadata_limit`` bounds what open
    transactions write.
    """

    _settings: GroupSettings
    _rebalancer: Rebalancer
    _retire: Callable[[AnyGroup], None]
    _metadata_limit: MetadataLimit

    # OffsetCommit

    def commit(
        self,
        group_id: str,
        group: AnyGroup | None,
        shard: GroupShard,
        sender: Sender,
        items: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
        version: int,
    ) -> None:
        """Commit offsets; ``reply`` gets one error code per item, once the log has committed them.

        A sender that isn't a member is a consumer that assigns its partitions itself, or an admin tool: it may commit
        to a group that has no members. ``version`` is the request's.
        """
        if group is None:
            if sender.generation >= 0:
                reply([codes.ILLEGAL_GENERATION] * len(items))
                return
            group = shard.create(group_id)
        else:
            error = group.may_commit(sender, version)
            if error != codes.NONE:
                reply([error] * len(items))
                return
            member = group.members.get(sender.member_id) if isinstance(group, Group) else None
            if member is not None:
                self._rebalancer.touch(member)
        fitting = self._fitting(items)
        if not fitting:
            reply([codes.OFFSET_METADATA_TOO_LARGE] * len(items))
            return
        if group.group_id not in shard.groups:
            shard.adopt(group)
        self._write(group, items, fitting, reply)

    def _fitting(self, items: Sequence[CommitItem]) -> list[CommitItem]:
        limit = self._settings.offset_metadata_max_bytes
        return [item for item in items if not item[2].metadata or java_length(item[2].metadata) <= limit]

    def _answers(self, items: Sequence[CommitItem], fitting: Sequence[CommitItem], error: int) -> list[int]:
        """The codes of all items: that of the log for those that were written."""
        answer = commit_error(error)
        if len(fitting) == len(items):
            return [answer] * len(items)
        limit = self._settings.offset_metadata_max_bytes
        return [
            answer if java_length(item[2].metadata) <= limit else codes.OFFSET_METADATA_TOO_LARGE
            for item in items
        ]

    def _write(
        self,
        group: AnyGroup,
        items: Sequence[CommitItem],
        fitting: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
    ) -> None:
        offsets = group.offsets
        offsets.begin(fitting)

        def written(error: int, end_offset: int) -> None:
            offsets.end(fitting)
            if error == codes.NONE:
                for topic, partition, committed in fitting:
                    committed.position = end_offset
                    offsets.put(topic, partition, committed)
            reply(self._answers(items, fitting, error))

        group.shard.append(_rows(group.group_id, fitting), written)

    # TxnOffsetCommit

    def commit_transactional(
        self,
        group_id: str,
        group: AnyGroup | None,
        shard: GroupShard,
        producer: tuple[int, int],
        sender: Sender,
        items: Sequence[CommitItem],
        reply: Callable[[Sequence[int]], None],
        guard: VerificationGuard | None,
    ) -> None:
        """Write offsets that count once the transaction of ``producer`` (its id and epoch) is committed.

        ``reply`` gets one error code per item: GROUP_MAX_SIZE_REACHED where open transactions have as many offsets as
        there is room for. ``guard``: where the transaction had to be verified.
        """
        if group is None:
            group = shard.create(group_id)
        error = group.may_commit_transactional(sender)
        if error != codes.NONE:
            reply([error] * len(items))
            return
        fitting = self._fitting(items)
        if not fitting:
            reply([codes.OFFSET_METADATA_TOO_LARGE] * len(items))
            return
        try:
            self._metadata_limit.check(
                group.stated.bytes, *group.offsets.staging(producer[0], fitting), "offsets of a transaction"
            )
            end_offset = group.shard.write(_rows(group_id, fitting), producer, guard)
        except KafkaError as failure:
            reply(self._answers(items, fitting, int(failure.code)))
            return
        if group_id not in shard.groups:
            shard.adopt(group)
        # Memory follows the log at append: the marker counts for all that is before it in the log, even for offsets
        # whose request has not waited long enough for the replicas.
        shard.enlist(producer[0], group_id)
        for topic, partition, committed in fitting:
            committed.position = end_offset
            group.offsets.stage(producer[0], topic, partition, committed)
        group.stated.count_staged(group.offsets.staged_bytes)
        group.shard.when_committed(end_offset, lambda error, _: reply(self._answers(items, fitting, error)))

    # OffsetFetch

    @staticmethod
    def fetch(
        group: AnyGroup | None, topics: Iterable[tuple[str, Iterable[int]]] | None, require_stable: bool
    ) -> list[tuple[str, list[Fetched]]]:
        """Committed offsets of the partitions asked for; all there are if ``topics`` is None.

        With ``require_stable`` (KIP-447) a partition that is being written to gets an error that clients retry.
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

    # Removing offsets, and groups without any

    def remove(
        self, group: AnyGroup, keys: Sequence[TopicPartition], retire: bool, removed: Callable[[int], None]
    ) -> None:
        """Remove offsets, and with ``retire`` the group, once their tombstones are appended.

        ``removed`` gets an error code when the tombstones are committed, or when the log refuses one; the offsets of a
        refused one stay.
        """
        tombstones: list[tuple[bytes, bytes | None]] = [
            (records.offset_key(group.group_id, topic, partition), None) for topic, partition in keys
        ]
        if retire:
            tombstones += _group_tombstones(group)
        failure = codes.NONE
        end_offset = -1
        for start in range(0, len(tombstones), TOMBSTONES_PER_BATCH):
            try:
                end_offset = group.shard.write(tombstones[start : start + TOMBSTONES_PER_BATCH])
            except KafkaError as error:
                failure = int(error.code)
                break
            # Memory follows the log at append, not when the log is committed: a commit in between is later in the
            # log, and must be later here as well.
            for topic, partition in keys[start : start + TOMBSTONES_PER_BATCH]:
                group.offsets.remove(topic, partition)
        group.stated.count_staged(group.offsets.staged_bytes)
        if failure != codes.NONE:
            removed(commit_error(failure))
            return
        if retire:
            self._retire(group)
        if end_offset == -1:
            removed(codes.NONE)
        else:
            group.shard.when_committed(end_offset, lambda error, _: removed(commit_error(error)))

    def forget_topic(
        self, groups: Sequence[AnyGroup], topic: str, partitions: frozenset[int]
    ) -> Iterator[None]:
        """Remove the offsets of deleted partitions, one group per step."""
        for group in groups:
            # A transaction that is still open must not bring them back.
            offsets = group.offsets
            keys = [
                (name, index)
                for name, index in {**dict.fromkeys(offsets.committed_keys()), **offsets.staged_keys()}
                if name == topic and index in partitions
            ]
            if keys and not group.is_dead:
                self._remove_logged(group, keys, "topic deleted")
            yield

    def expire(self, groups: Sequence[AnyGroup]) -> Iterator[None]:
        """Remove the offsets whose retention time is over, and groups without any; one group per step."""
        for group in groups:
            if not group.is_dead:
                keys = group.expired(self._rebalancer.now_ms(), self._settings.offsets_retention_ms)
                if keys or group.is_spent(0):
                    self._remove_logged(group, keys, "expired")
            yield

    def _remove_logged(self, group: AnyGroup, keys: Sequence[TopicPartition], why: str) -> None:
        retire = group.is_spent(len(keys))
        _log.info("offsets removed", group=group.group_id, count=len(keys), reason=why, group_removed=retire)

        def removed(error: int) -> None:
            if error != codes.NONE:
                _log.warning("tombstones not written", group=group.group_id, reason=why, error=error)

        self.remove(group, keys, retire, removed)


def _group_tombstones(group: AnyGroup) -> list[tuple[bytes, bytes | None]]:
    """The tombstones of what the log has of a group, without its offsets."""
    if not isinstance(group, Group):
        return group.tombstones()
    # A group of generation 0 has never had members, so it has no metadata in the log.
    return [(records.group_key(group.group_id), None)] if group.generation > 0 else []


def _rows(group_id: str, items: Sequence[CommitItem]) -> list[tuple[bytes, bytes | None]]:
    keys: dict[str, bytes] = {}
    rows: list[tuple[bytes, bytes | None]] = []
    for topic, partition, committed in items:
        start = keys.get(topic)
        if start is None:
            start = keys[topic] = records.offset_key_start(group_id, topic)
        rows.append((start + records.pack_partition(partition), records.offset_value(committed)))
    return rows


def java_length(text: str) -> int:
    """Length in UTF-16 code units, which Kafka compares with ``offset.metadata.max.bytes``."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
