"""Offsets of consumer groups in ZooKeeper, where consumers of Kafka 0.8 keep them.

OffsetCommit 0 and OffsetFetch 0 read and write them. A broker without ZooKeeper has the same paths in its embedded
store. Source: ``handleOffsetFetchRequestFromZookeeper`` and its counterpart in Kafka 3.9's ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla_broker.coordinator import codes
from ottla_broker.events import get_logger
from ottla_broker.store.api import NodeExistsError, NoNodeError, Store, StoreError, is_path
from ottla_broker.store.keys import BadNodeError, ConsumerOffsetNode
from ottla_protocol.errors import ErrorCode

_log = get_logger()

_FAILED = int(ErrorCode.UNKNOWN_SERVER_ERROR)


def may_name_group(group_id: str) -> bool:
    """Whether a group of this name can have a node in ZooKeeper."""
    return bool(group_id) and "/" not in group_id and is_path(f"/consumers/{group_id}/offsets")


class ZooKeeperOffsets:
    """Reads and writes groups' offsets in the store. Owned by the loop thread."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def commit(
        self, group_id: str, offsets: Mapping[tuple[str, int], int]
    ) -> dict[tuple[str, int], int]:
        """Store offsets by topic and partition; returns each one's error code, 0 for success."""
        if not may_name_group(group_id):
            return dict.fromkeys(offsets, int(ErrorCode.INVALID_GROUP_ID))
        answers = {}
        for (topic, partition), offset in offsets.items():
            path = ConsumerOffsetNode.path(group_id, topic, partition)
            answers[topic, partition] = await self._write(path, ConsumerOffsetNode.encode(offset))
        return answers

    async def _write(self, path: str, data: bytes) -> int:
        try:
            while True:
                try:
                    await self._store.set(path, data)
                    return codes.NONE
                except NoNodeError:
                    pass  # the partition's first offset: make its node below
                try:
                    await self._store.create(path, data, parents=True)
                    return codes.NONE
                except NodeExistsError:
                    continue  # another client has just made it
        except StoreError as error:
            _log.warning("offset not stored", path=path, reason=str(error))
            return _FAILED

    async def fetch(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> dict[tuple[str, int], tuple[int, int]]:
        """Each partition's offset and error code.

        Without an offset that is -1 and UNKNOWN_TOPIC_OR_PARTITION, as in Kafka.
        """
        if not may_name_group(group_id):
            return dict.fromkeys(partitions, (-1, int(ErrorCode.INVALID_GROUP_ID)))
        return {
            (topic, partition): await self._read(ConsumerOffsetNode.path(group_id, topic, partition))
            for topic, partition in partitions
        }

    async def _read(self, path: str) -> tuple[int, int]:
        try:
            data, _ = await self._store.get(path)
            return ConsumerOffsetNode.decode(path, data), codes.NONE
        except NoNodeError:
            return -1, codes.UNKNOWN_TOPIC_OR_PARTITION
        except (BadNodeError, StoreError) as error:
            _log.warning("offset not read", path=path, reason=str(error))
            return -1, _FAILED
