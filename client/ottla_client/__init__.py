"""A Kafka client on asyncio: Producer, Consumer, Admin; ``ottla_client.sync`` has the same for code without asyncio.

Its errors are in ``ottla_client.errors``, what else ``Admin`` takes and gives in ``ottla_client.admin``.

Names are imported when they are first used, so that importing the package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .admin import Admin as Admin
    from .admin import AlterConfig as AlterConfig
    from .admin import AlterOperation as AlterOperation
    from .admin import ConfigResource as ConfigResource
    from .admin import NewPartitions as NewPartitions
    from .admin import NewTopic as NewTopic
    from .admin import PartialError as PartialError
    from .consumer import Consumer as Consumer
    from .consumer import RebalanceListener as RebalanceListener
    from .errors import ClientError as ClientError
    from .producer import AppendedRange as AppendedRange
    from .producer import BatchDelivery as BatchDelivery
    from .producer import BatchDeliveryError as BatchDeliveryError
    from .producer import Delivery as Delivery
    from .producer import Producer as Producer
    from .types import ConsumerRecord as ConsumerRecord
    from .types import Node as Node
    from .types import OffsetAndMetadata as OffsetAndMetadata
    from .types import OffsetAndTimestamp as OffsetAndTimestamp
    from .types import OffsetSpec as OffsetSpec
    from .types import PartitionMetadata as PartitionMetadata
    from .types import RecordMetadata as RecordMetadata
    from .types import TimestampType as TimestampType
    from .types import TopicMetadata as TopicMetadata
    from .types import TopicPartition as TopicPartition

_HOME = {
    "admin": (
        "Admin",
        "AlterConfig",
        "AlterOperation",
        "ConfigResource",
        "NewPartitions",
        "NewTopic",
        "PartialError",
    ),
    "consumer": ("Consumer", "RebalanceListener"),
    "errors": ("ClientError",),
    "producer": ("AppendedRange", "BatchDelivery", "BatchDeliveryError", "Delivery", "Producer"),
    "types": (
        "ConsumerRecord",
        "Node",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "OffsetSpec",
        "PartitionMetadata",
        "RecordMetadata",
        "TimestampType",
        "TopicMetadata",
        "TopicPartition",
    ),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> object:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
