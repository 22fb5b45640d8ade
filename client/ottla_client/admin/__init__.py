"""Admin, and the values that it takes and returns."""

from __future__ import annotations

from ottla_protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)

from ..types import ListedOffset, OffsetSpec, ProducerIdAndEpoch
from .client import Admin
from .groups import MemberToRemove
from .nodes import VersionRange
from .results import PartialError, is_unknown_group
from .values import (
    AlterConfig,
    AlterOperation,
    ClusterDescription,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    CreatedTopic,
    ElectionType,
    GroupDescription,
    GroupListing,
    HangingTransaction,
    LogDir,
    MemberDescription,
    NewPartitions,
    NewTopic,
    PartitionLag,
    PartitionReassignment,
    ProducerState,
    ReplicaLog,
    ResourceType,
    TimedOffset,
    TransactionDescription,
    TransactionListing,
)

__all__ = [
    "AclBinding",
    "AclEntry",
    "AclFilter",
    "AclOperation",
    "AclPermission",
    "AclResource",
    "Admin",
    "AlterConfig",
    "AlterOperation",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "CreatedTopic",
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "HangingTransaction",
    "ListedOffset",
    "LogDir",
    "MemberDescription",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "PartialError",
    "PartitionLag",
    "PartitionReassignment",
    "PatternType",
    "ProducerIdAndEpoch",
    "ProducerState",
    "ReplicaLog",
    "ResourcePattern",
    "ResourceType",
    "TimedOffset",
    "TransactionDescription",
    "TransactionListing",
    "VersionRange",
    "is_unknown_group",
]
