"""The ZooKeeper consumer: Kafka 0.8's high-level consumer, whose members agree through ZooKeeper on who reads what."""

from .consumer import ZookeeperConsumer as ZookeeperConsumer
from .stream import Stream as Stream
from .subscription import Blacklist as Blacklist
from .subscription import TopicFilter as TopicFilter
from .subscription import Whitelist as Whitelist
