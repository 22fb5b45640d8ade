"""The ZooKeeper consumer: Kafka 0.8's high-level consumer, whose members agree through ZooKeeper on who reads what.

To change

- who reads what in a group that coordinates in ZooKeeper: ``zookeeper_consumer/rebalancer.py`` ``Rebalancer``,
  ``zookeeper_consumer/assignors.py``; where its offsets are: ``zookeeper_consumer/offsets.py``
- what is read of groups in ZooKeeper, for tools: ``zookeeper_consumer/groups.py`` ``read_groups``
"""

from .consumer import ZookeeperConsumer as ZookeeperConsumer
from .stream import Stream as Stream
from .subscription import Blacklist as Blacklist
from .subscription import TopicFilter as TopicFilter
from .subscription import Whitelist as Whitelist
