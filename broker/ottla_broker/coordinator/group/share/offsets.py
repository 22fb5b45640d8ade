"""The start offsets of share groups: DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets.

Only an empty group's can be changed. A new start is a new state epoch, which fences leaders that have the old one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla_broker.clock import Clock
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.share.group import ShareGroup
from ottla_broker.coordinator.group.share.groups import ShareGroups, state_epoch
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState, TopicIdPartition
from ottla_broker.coordinator.share.state_coordinator import Settled
from ottla_protocol.errors import ErrorCode, KafkaError

Changed = Callable[[Mapping[TopicIdPartition, KafkaError | None]], None]
"""What became of each partition."""


class ShareOffsets:
    """Owned by the loop thread."""

    def __init__(self, groups: ShareGroups, persister: Persister, clock: Clock) -> None:
        self._groups = groups
        self._persister = persister
        self._clock = clock

    def describe(
        self,
        group: ShareGroup,
        places: Collection[TopicIdPartition],
        reply: Callable[[Mapping[TopicIdPartition, ShareState | KafkaError | None]], None],
    ) -> None:
        """Find the states of partitions; None for one that has none."""
        found: dict[TopicIdPartition, ShareState | KafkaError | None] = {}
        keys = []
        for topic_id, index in places:
            known = group.initialized.get(topic_id)
            if known is not None and index in known.partitions:
                keys.append(ShareKey(group.group_id, topic_id, index))
            else:
                found[topic_id, index] = None

        def begin(key: ShareKey, settled: Settled) -> None:
            def read(answer: ShareState | KafkaError) -> None:
                found[key.topic_id, key.partition] = answer
                settled(None)

            self._persister.summary(key, read)

        self._groups.for_each(group, keys, begin, lambda key, error: None, lambda: reply(found))

    def alter(
        self,
        group: ShareGroup,
        offsets: Mapping[TopicIdPartition, int],
        names: Mapping[bytes, str],
        reply: Changed,
    ) -> None:
        """Begin at these offsets. ``names``: of the topics. Raises KafkaError: NON_EMPTY_GROUP."""
        check_empty(group)
        results: dict[TopicIdPartition, KafkaError | None] = {}
        now = state_epoch(self._clock)

        def begin(key: ShareKey, settled: Settled) -> None:
            offset = offsets[key.topic_id, key.partition]

            def read(answer: ShareState | KafkaError) -> None:
                if isinstance(answer, ShareState):
                    self._persister.initialize(key, max(now, answer.epoch + 1), offset, settled)
                elif answer.code is ErrorCode.INVALID_REQUEST:  # There is none.
                    self._persister.initialize(key, now, offset, settled)
                else:
                    settled(answer)

            self._persister.summary(key, read)

        def settled(key: ShareKey, error: KafkaError | None) -> None:
            results[key.topic_id, key.partition] = error

        def finish() -> None:
            made: dict[bytes, set[int]] = {}
            for (topic_id, index), error in results.items():
                if error is None:
                    made.setdefault(topic_id, set()).add(index)
            if made and not group.is_dead:
                self._groups.note_initialized(group, names, made)
            self._groups.discard_unwritten(group)
            self._answer(group, offsets, results, reply)

        self._groups.for_each(group, _keys(group, offsets), begin, settled, finish)

    def delete(self, group: ShareGroup, topic_ids: Collection[bytes], reply: Changed) -> None:
        """Delete the states of topics: the group begins there as a new one does. Raises KafkaError: NON_EMPTY_GROUP."""
        check_empty(group)
        places = [
            (topic_id, index)
            for topic_id in topic_ids
            if topic_id in group.initialized
            for index in sorted(group.initialized[topic_id].partitions)
        ]
        results: dict[TopicIdPartition, KafkaError | None] = {}

        def settled(key: ShareKey, error: KafkaError | None) -> None:
            results[key.topic_id, key.partition] = error

        def finish() -> None:
            gone = [place for place, error in results.items() if error is None]
            if gone and not group.is_dead:
                self._groups.note_deleted(group, gone)
            self._answer(group, places, results, reply)

        self._groups.for_each(group, _keys(group, places), self._persister.delete, settled, finish)

    @staticmethod
    def _answer(
        group: ShareGroup,
        places: Collection[TopicIdPartition],
        results: Mapping[TopicIdPartition, KafkaError | None],
        reply: Changed,
    ) -> None:
        """Answer when the group's record is committed; the partitions that were skipped have no coordinator here."""
        if group.is_dead:
            error = KafkaError(ErrorCode.NOT_COORDINATOR)
            reply({place: results.get(place) or error for place in places})
            return

        def committed(code: int, _: int) -> None:
            failure = None if code == codes.NONE else KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            reply({place: results[place] or failure for place in places})

        group.shard.when_committed(group.end_offset, committed)


def check_empty(group: ShareGroup) -> None:
    """Raises KafkaError: NON_EMPTY_GROUP."""
    if not group.is_empty:
        raise KafkaError(
            ErrorCode.NON_EMPTY_GROUP,
            f"The share group {group.group_id} has members: stop them before you change its offsets.",
        )


def _keys(group: ShareGroup, places: Collection[TopicIdPartition]) -> list[ShareKey]:
    return [ShareKey(group.group_id, topic_id, index) for topic_id, index in places]
