"""A Kafka client on asyncio: Producer, Consumer, ShareConsumer and Admin, and the consumers of Kafka 0.8.

``ottla_client.sync`` has the same without asyncio.

The public modules are this one, ``sync``, ``admin`` (the values that Admin takes and returns), ``errors`` and
``group/assignors/``. Packages that build on the client have ``lowlevel`` as well.

Names are imported when they are first used, so that importing the package costs next to nothing.

Reading order, from below: ``transport.py`` (host and port to sockets, TCP and TLS: the only module that knows of
sockets), ``connection.py``, ``cluster/``, ``requests/``, ``group/``; then ``producer/``, ``consumer/`` and
``admin/``, which don't know each other; above them the other consumers, and ``sync/``. ``settings.py`` declares every
client's options, ``option_names.py`` reads them from text, ``arrow.py`` makes Arrow tables of batches.

- Every call has a ``Deadline`` and passes it on. The owner of a task ends it: after ``close`` no task and no socket
  is left.

To change

- how a client gets its tokens: ``login.py`` ``_Tokens``
- a client option: ``settings.py`` ``ConnectionSettings``, or ``producer/settings.py``, ``consumer/settings.py``
  beside it; ``-X`` and Spark read the same by ``option_names.py``
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lazy import lazy_names

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
    from .coordinated_consumer import CoordinatedConsumer as CoordinatedConsumer
    from .errors import ClientError as ClientError
    from .errors import KafkaError as KafkaError
    from .producer import AppendedRange as AppendedRange
    from .producer import BatchDelivery as BatchDelivery
    from .producer import BatchDeliveryError as BatchDeliveryError
    from .producer import Delivery as Delivery
    from .producer import Producer as Producer
    from .producer import Transaction as Transaction
    from .share_consumer import AcknowledgeType as AcknowledgeType
    from .share_consumer import ShareConsumer as ShareConsumer
    from .simple_consumer import Fetched as Fetched
    from .simple_consumer import SimpleConsumer as SimpleConsumer
    from .types import ConsumerGroupMetadata as ConsumerGroupMetadata
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
    from .zookeeper_consumer import Blacklist as Blacklist
    from .zookeeper_consumer import Stream as Stream
    from .zookeeper_consumer import TopicFilter as TopicFilter
    from .zookeeper_consumer import Whitelist as Whitelist
    from .zookeeper_consumer import ZookeeperConsumer as ZookeeperConsumer

_HOME = {
    ".admin": "Admin AlterConfig AlterOperation ConfigResource NewPartitions NewTopic PartialError",
    ".consumer": "Consumer RebalanceListener",
    ".coordinated_consumer": "CoordinatedConsumer",
    ".errors": "ClientError KafkaError",
    ".producer": "AppendedRange BatchDelivery BatchDeliveryError Delivery Producer Transaction",
    ".share_consumer": "AcknowledgeType ShareConsumer",
    ".simple_consumer": "Fetched SimpleConsumer",
    ".types": """
        ConsumerGroupMetadata ConsumerRecord Node OffsetAndMetadata OffsetAndTimestamp OffsetSpec
        PartitionMetadata RecordMetadata TimestampType TopicMetadata TopicPartition
    """,
    ".zookeeper_consumer": "Blacklist Stream TopicFilter Whitelist ZookeeperConsumer",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
