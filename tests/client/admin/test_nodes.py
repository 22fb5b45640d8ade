"""Admin's calls for brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.client.admin.records import put
from tests.support.processes import BrokerProcess

from ottla_client import Admin, TopicPartition
from ottla_client.errors import ClosedError, ConfigurationError, RequestTimeoutError
from ottla_protocol.api_keys import ApiKey


async def test_the_cluster(admin: Admin, broker: BrokerProcess) -> None:
    cluster = await admin.describe_cluster()
    assert cluster.cluster_id
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert cluster.controller_id == node.id


async def test_apis(admin: Admin) -> None:
    (ranges,) = (await admin.describe_apis()).values()
    first, last = ranges[ApiKey.FETCH]
    assert first <= 4 <= 12 <= last


async def test_log_dirs(admin: Admin, broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    topic, other = new_topic(2, retention_ms=-1), new_topic()
    put(broker, topic, 1, 1000)
    ((node, folders),) = (await admin.describe_log_dirs(topics=[topic])).items()
    replicas = {p: log for folder in folders for p, log in folder.replicas.items()}
    assert set(replicas) == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert replicas[TopicPartition(topic, 0)].size == 0 < replicas[TopicPartition(topic, 1)].size
    assert not any(log.is_future or log.lag for log in replicas.values())
    every = (await admin.describe_log_dirs([node]))[node]
    assert any(TopicPartition(other, 0) in folder.replicas for folder in every)
    assert all(folder.error == 0 for folder in every)
    with pytest.raises(RequestTimeoutError, match=str(node + 7)):
        await admin.describe_log_dirs([node + 7], timeout=0.3)


async def test_producers(admin: Admin, broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    partition = TopicPartition(new_topic(retention_ms=-1), 0)
    assert (await admin.describe_producers([partition]))[partition] == ()
    put(broker, partition.topic, 0, 1000, 1001, producer_id=4711, producer_epoch=2, base_sequence=0)
    (state,) = (await admin.describe_producers([partition]))[partition]
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (4711, 2, 1)
    assert state.transaction_start_offset is None


async def test_use_before_and_after(broker: BrokerProcess) -> None:
    admin = Admin(broker.bootstrap)
    with pytest.raises(ClosedError, match="start"):
        await admin.list_topics()
    await admin.start()
    await admin.list_topics()
    await admin.close()
    await admin.close()
    with pytest.raises(ClosedError):
        await admin.list_topics()


def test_options_that_can_not_be() -> None:
    with pytest.raises(ConfigurationError, match="default_api_timeout_ms"):
        Admin("127.0.0.1:1", default_api_timeout_ms=0)
    with pytest.raises(ConfigurationError, match="security_protocol"):
        Admin("127.0.0.1:1", security_protocol="SASL_PLAINTEXT")
