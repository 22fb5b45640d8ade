"""The ZooKeeper consumer without asyncio."""

from __future__ import annotations

from typing import Unpack

from ..settings import accepts
from ..zookeeper_consumer import ZookeeperConsumer as AsyncZookeeperConsumer
from ..zookeeper_consumer.settings import ZookeeperConsumerOptions, ZookeeperConsumerSettings
from .streams_consumer import StreamsConsumer
from .sync_client import blocking, in_loop


class ZookeeperConsumer(StreamsConsumer[AsyncZookeeperConsumer]):
    """``ottla_client.ZookeeperConsumer`` for code without asyncio::

        with ZookeeperConsumer("orders", zookeeper_connect="127.0.0.1:2181", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    Each stream may be read by a thread of its own.
    """

    @accepts(ZookeeperConsumerSettings)
    def __init__(
        self,
        *topics: str,
        zookeeper_connect: str,
        **options: Unpack[ZookeeperConsumerOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(AsyncZookeeperConsumer(*topics, zookeeper_connect=zookeeper_connect, **options))

    assignment = in_loop(AsyncZookeeperConsumer.assignment)
    commit = blocking(AsyncZookeeperConsumer.commit)
