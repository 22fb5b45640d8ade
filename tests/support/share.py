"""Members of share groups over the wire, each with a session of its own."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client import TopicPartition
from ottla_client.simple_consumer import Fetched
from ottla_client.sync import SimpleConsumer
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla_protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla_protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from ottla_protocol.messages.share_state_records import ShareSnapshotKey
from ottla_protocol.versioned import decode_versioned, peek_version

_GROUP_RESOURCE = 32

Acks = Sequence[tuple[int, int, list[int]]]


class Member:
    """A member of a share group with one topic, on a connection of its own."""

    def __init__(self, port: int, group: str, topic: str, member_id: str = "m1") -> None:
        self.wire = Wire(port)
        self.group, self.topic, self.member_id = group, topic, member_id
        found = self.wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12)
        self.topic_id = bytes(found.topics[0].topic_id)
        self.epoch = 0

    def heartbeat(self, epoch: int, topics: list[str] | None = None) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=topics
        )
        answer: ShareGroupHeartbeatResponse = self.wire.call(request, 1)
        return answer

    def join(self) -> Member:
        self.wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[self.group]), 4)
        answer: list[ShareGroupHeartbeatResponse] = []

        def joined() -> bool:
            answer[:] = [self.heartbeat(0, [self.topic])]
            return answer[0].error_code not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
            )

        wait_for(joined, "the member to join")
        assert answer[0].error_code == 0, answer[0]
        assert answer[0].assignment is not None
        assert [list(each.partitions) for each in answer[0].assignment.topic_partitions] == [[0]]
        return self

    def fetch(
        self,
        acks: Acks = (),
        *,
        epoch: int | None = None,
        wait_ms: int = 0,
        records: int = 100,
        mode: int = 0,
        partitions: Sequence[int] = (0,),
    ) -> ShareFetchResponse:
        """Fetch these partitions; ``acks`` are of the first."""
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_records=records,
            batch_size=records,
            share_acquire_mode=mode,
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types)
                                for a, b, types in acks
                                if index == partitions[0]
                            ],
                        )
                        for index in partitions
                    ],
                )
            ],
        )
        answer: ShareFetchResponse = self.wire.call(request, 2)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    def acquire(self, acks: Acks = (), **options: int) -> list[tuple[int, int, int]]:
        """The offsets and delivery counts of what a fetch acquires: the next that brings something."""
        found: list[tuple[int, int, int]] = []

        def acquired() -> bool:
            answer = self.fetch(acks, wait_ms=500, **options)
            assert answer.error_code == 0, answer
            for topic in answer.responses:
                for each in topic.partitions:
                    assert each.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER), each
                    found.extend(
                        (a.first_offset, a.last_offset, a.delivery_count) for a in each.acquired_records
                    )
            return bool(found)

        wait_for(acquired, "records to acquire")
        return found

    def acknowledge(self, acks: Acks, *, epoch: int | None = None) -> ShareAcknowledgeResponse:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch if epoch is None else epoch,
            topics=[
                FetchTopic(
                    topic_id=self.topic_id,
                    partitions=[
                        FetchPartition(
                            partition_index=0,
                            acknowledgement_batches=[
                                AcknowledgementBatch(first_offset=a, last_offset=b, acknowledge_types=types)
                                for a, b, types in acks
                            ],
                        )
                    ],
                )
            ],
        )
        answer: ShareAcknowledgeResponse = self.wire.call(request, 2)
        if answer.error_code == 0 and epoch is None:
            self.epoch += 1
        return answer

    def outcome(self, acks: Acks) -> int:
        """The error code of an acknowledgement's partition."""
        answer = self.acknowledge(acks)
        assert answer.error_code == 0
        return answer.responses[0].partitions[0].error_code

    def close(self) -> None:
        self.wire.socket.close()

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def configure(wire: Wire, group: str, **settings: str) -> None:
    resource = AlterConfigsResource(
        resource_type=_GROUP_RESOURCE,
        resource_name=group,
        configs=[
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in settings.items()
        ],
    )
    answer = wire.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def kept_states(bootstrap: str, group: str) -> dict[int, bool]:
    """The partitions of which the log of share groups' state has a snapshot; False where a tombstone follows it."""
    found: dict[int, bool] = {}
    with Wire(int(bootstrap.partition(",")[0].rpartition(":")[2])) as wire:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="__share_group_state")])
        count = len(wire.call(asked, 12).topics[0].partitions)
    with SimpleConsumer(bootstrap) as consumer:
        # The coordinator deletes from the beginning what it needs no longer.
        partitions = [TopicPartition("__share_group_state", index) for index in range(count)]
        offsets = {partition: consumer.beginning_offset(partition) for partition in partitions}

        def read() -> bool:
            for partition, outcome in consumer.fetch_many(offsets, max_wait_ms=0).items():
                if not isinstance(outcome, Fetched):
                    continue
                for record in outcome.records:
                    if peek_version(record.key) == 0:
                        key = decode_versioned(ShareSnapshotKey, record.key)
                        if key.group_id == group:
                            found[key.partition] = record.value is not None
                if outcome.next_offset == offsets[partition]:
                    del offsets[partition]
                else:
                    offsets[partition] = outcome.next_offset
            return not offsets

        wait_for(read, "the log of share groups' state to be read")
    return found
