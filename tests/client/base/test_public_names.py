"""The public names of the packages. A deliberate change of the public surface changes this list."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
from docs.site.public import DOCUMENTED, FOR_PACKAGES, public_names

PUBLIC = {
    "ottla_client": """
        AcknowledgeType Admin AlterConfig AlterOperation AppendedRange BatchDelivery BatchDeliveryError Blacklist
        ClientError
        ConfigResource Consumer ConsumerGroupMetadata ConsumerRecord CoordinatedConsumer Delivery Fetched KafkaError
        NewPartitions NewTopic Node OffsetAndMetadata OffsetAndTimestamp OffsetSpec PartialError PartitionMetadata
        Producer RebalanceListener RecordMetadata ShareConsumer SimpleConsumer Stream TimestampType TopicFilter
        TopicMetadata
        TopicPartition Transaction Whitelist ZookeeperConsumer
    """,
    "ottla_client.sync": """
        Admin BatchDelivery Consumer CoordinatedConsumer Delivery Producer ShareConsumer SimpleConsumer Stream
        Transaction
        ZookeeperConsumer
    """,
    "ottla_client.admin": """
        AclBinding AclEntry AclFilter AclOperation AclPermission AclResource Admin AlterConfig AlterOperation
        ClientQuota ClusterDescription ConfigEntry ConfigResource ConfigSource ConfigSynonym CreatedTopic
        DelegationToken
        ElectionType FeatureMetadata FeatureUpdate GroupDescription GroupListing HangingTransaction ListedOffset LogDir
        MemberDescription MemberToRemove
        NewPartitions NewTopic OffsetSpec PartialError PartitionLag PartitionReassignment PatternType
        ProducerIdAndEpoch ProducerState ReplicaLog ResourcePattern ResourceType ShareGroupOffset TimedOffset
        TransactionDescription TransactionListing UpgradeType VersionRange is_unknown_group
    """,
    "ottla_client.errors": """
        AcknowledgementError AuthenticationError BadNodeError BootstrapError BrokerError BufferFullError ClientError
        ClosedError
        CommitFailedError ConfigurationError ConnectError ConnectionLostError CorruptBatchError DeliveryTimeoutError
        DeserializationError FencedInstanceError GroupError KafkaError LogTruncatedError NotABrokerError
        OffsetOutOfRangeError PollIntervalExceededError ProducerFencedError RebalanceFailedError RecordTooLargeError
        RequestTimeoutError SerializationError TransactionAbortedError TransactionStateError UnknownTopicError
        UnsupportedApiError ZooKeeperError is_retriable
    """,
    "ottla_client.group.assignors": """
        Assignment Assignor CooperativeStickyAssignor NO_GENERATION RangeAssignor RebalanceProtocol RoundRobinAssignor
        StickyAssignor Subscription assignors_named common_protocol
    """,
    "ottla_client.lowlevel": """
        Cluster ConnectionOptions ConnectionSettings DEFAULT_BOOTSTRAP Deadline EpochEnd FetchPosition LAST_BY_NAME
        MAX_HEADERS Part Runner ask_epochs did_you_mean fetch_request find_offsets in_kafka_names is_retriable
        kafka_name kafka_names near_names read_options to_arrow
    """,
    "ottla_cli": """
        ClientOptions Column Console Progress TOPIC amount_of_bytes complete_groups
        one_line one_line_errors option_group options parse_duration run unknown
    """,
    "ottla_broker.testing": "EmbeddedBroker EmbeddedBrokerError",
    "ottla_pipeline.landing": """
        BatchDone Compacted Landed Landing LandingError Replayed compact land replay
    """,
    "ottla_pipeline.source": "OttlaDataSource register",
}


def names_of(module: str) -> list[str]:
    """``__all__``, or without it everything that the package itself defines."""
    found = import_module(module)
    if hasattr(found, "__all__"):
        return list(found.__all__)
    return [
        name
        for name, value in vars(found).items()
        if not name.startswith("_")
        and not inspect.ismodule(value)
        and getattr(value, "__module__", "").startswith(module)
    ]


def test_each_module_is_documented_or_for_packages() -> None:
    assert sorted(PUBLIC) == sorted((*DOCUMENTED, *FOR_PACKAGES))


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    assert sorted(names_of(module)) == sorted(PUBLIC[module].split())
    for name in names_of(module):
        assert getattr(import_module(module), name) is not None


@pytest.mark.parametrize("module", DOCUMENTED)
def test_the_site_reads_the_same_names(module: str) -> None:
    assert public_names(module) == sorted(PUBLIC[module].split())
