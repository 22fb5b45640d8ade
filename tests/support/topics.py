"""Creates topics over the wire, for tests of something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess


class TopicExistsError(Exception):
    """A topic with this name exists."""


def create_topic(broker: BrokerProcess, name: str, partitions: int = 1, **configs: object) -> None:
    """Create a topic, and wait until it has leaders. A config ``cleanup_policy`` means ``cleanup.policy``."""
    names = {key: key.replace("_", ".") for key in configs}
    given = [
        CreatableTopicConfig(name=broker.other_names.get(names[key], names[key]), value=str(value))
        for key, value in configs.items()
    ]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=given)
    with Wire(broker.port) as wire:
        answer = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5).topics[0]
        if answer.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise TopicExistsError(name)
        assert answer.error_code == 0, (name, answer.error_code, answer.error_message)

        def led() -> bool:
            found = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 4).topics[0]
            leaders = [p.leader_id for p in found.partitions]
            if found.error_code or len(leaders) != partitions or min(leaders) < 0:
                return False
            # Kafka reports leaders a moment before they lead.
            asked = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)]
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=asked)]
            )
            answers = wire.call(request, 5).topics[0].partitions
            return not any(partition.error_code for partition in answers)

        wait_for(led, f"leaders of {name}")
