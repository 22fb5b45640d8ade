"""A fake broker in a thread of its own: a topic with records, and a group whose assignments the test chooses."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from tests.client.base.fake import Partition, Topic
from tests.client.consumer.chunks import batch
from tests.client.consumer.conftest import tp
from tests.client.group.coordinating import FakeCoordinator

from ottla_client.group.consumer_protocol import assignment_bytes
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import RequestHeader
from ottla_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla_protocol.messages.heartbeat import HeartbeatResponse
from ottla_protocol.messages.join_group import JoinGroupResponse
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla_protocol.messages.sync_group import SyncGroupResponse
from ottla_protocol.schema import Message

T = TypeVar("T")

BATCHES = (1, 5, 2, 7, 3, 6, 4, 8, 2, 2)
END = sum(BATCHES)
AT_ONCE = 3
"""Batches of a partition that are fetched at once."""


class LoopThread:
    """An event loop in the background."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(60)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class FakeGroup(FakeCoordinator):
    """Partitions with the offsets 0 to END, and a group in which another member is always the leader."""

    def __init__(self, partitions: int, committing: Callable[[int, int], None]) -> None:
        """``committing`` is called with a partition and an offset before that is committed."""
        super().__init__()
        self._committing = committing
        self.topics["t"] = Topic(partitions={number: Partition() for number in range(partitions)})
        self.versions[ApiKey.FETCH] = (4, 6)  # without sessions
        self.versions[ApiKey.LIST_OFFSETS] = (1, 5)
        self.answers[ApiKey.FETCH] = self._records
        self.answers[ApiKey.LIST_OFFSETS] = self._ends
        self.assignment = set(range(partitions))
        self.cooperative = False
        ends = [sum(BATCHES[: count + 1]) for count in range(len(BATCHES))]
        self._log = [(end, batch(end - size, size)) for end, size in zip(ends, BATCHES, strict=True)]

    def rebalance(self, assignment: set[int]) -> None:
        """Have the member join again, and give it these partitions then."""
        self.assignment = assignment
        self.generation += 1

    def _join(self, header: RequestHeader, request: Any) -> Message:
        self.generation += 1
        names = [each.name for each in request.protocols]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=request.protocol_type,
            protocol_name=names[0],
            leader="another",
            member_id=request.member_id or f"member-{self.generation}",
        )

    def _heartbeat(self, header: RequestHeader, request: Any) -> Message:
        return HeartbeatResponse(error_code=self._code(header) or self._outdated(request))

    def _outdated(self, request: Any) -> ErrorCode:
        """A member of an earlier generation has to join again, however often it asks."""
        current = request.generation_id == self.generation
        return ErrorCode.NONE if current else ErrorCode.REBALANCE_IN_PROGRESS

    def _sync(self, header: RequestHeader, request: Any) -> Message:
        if code := self._outdated(request):
            return SyncGroupResponse(error_code=code)
        return SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes([tp("t", number) for number in sorted(self.assignment)]),
        )

    def _commit(self, header: RequestHeader, request: Any) -> Message:
        if request.generation_id_or_member_epoch == self.generation:
            for topic in request.topics:
                for each in topic.partitions:
                    self._committing(each.partition_index, each.committed_offset)
        else:
            self.refuse[ApiKey.OFFSET_COMMIT] = [ErrorCode.REBALANCE_IN_PROGRESS]
        return super()._commit(header, request)

    async def _records(self, header: RequestHeader, request: Any) -> Message:
        found: dict[str, list[PartitionData]] = defaultdict(list)
        for topic in request.topics:
            for each in topic.partitions:
                batches = [data for end, data in self._log if end > each.fetch_offset][:AT_ONCE]
                if batches:
                    found[topic.topic].append(
                        PartitionData(
                            partition_index=each.partition,
                            high_watermark=END,
                            last_stable_offset=END,
                            records=b"".join(batches),
                        )
                    )
        if not found:
            await asyncio.sleep(request.max_wait_ms / 1000)
        return FetchResponse(
            responses=[FetchableTopicResponse(topic=name, partitions=data) for name, data in found.items()]
        )

    def _ends(self, header: RequestHeader, request: Any) -> Message:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            timestamp=-1,
                            offset=0 if each.timestamp == -2 else END,
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )
