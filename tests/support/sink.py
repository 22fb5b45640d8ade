"""What a sink of Spark has written to a topic."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla_client.admin import OffsetSpec
from ottla_client.sync import Admin, Consumer
from ottla_client.types import TopicPartition

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess


def values(broker: BrokerProcess, topic: str, isolation: Any = "read_committed") -> Counter[bytes | None]:
    """All values in a topic; with ``read_committed``, those below its open transactions."""
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: Counter[bytes | None] = Counter()
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found.update(record.value for record in consumer.poll(200))
    return found


def wait_for_records(broker: BrokerProcess, topic: str, running: Callable[[], bool]) -> bool:
    """Wait until a topic gets records, of a transaction or not; False if their writer ends first."""
    with Admin(broker.bootstrap) as admin:
        (described,) = admin.describe_topics([topic]).values()
        latest = dict.fromkeys(
            (TopicPartition(topic, each) for each in described.partitions), OffsetSpec.LATEST
        )
        before = admin.list_offsets(latest)
        while admin.list_offsets(latest) == before:
            if not running():
                return False
            time.sleep(0.002)
    return True
