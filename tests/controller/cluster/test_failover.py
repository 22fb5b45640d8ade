"""A new controller of a cluster with many partitions."""

from __future__ import annotations

from time import monotonic

from tests.support.fakebrokers import FakeCluster
from tests.support.waiting import until

from ottla_broker.controller.api import NewTopic

_TOPICS = 40
_PARTITIONS = 50


async def test_two_thousand_partitions_are_taken_over(cluster: FakeCluster) -> None:
    """The controller and one of three leaders die together; all partitions get leaders again."""
    candidate = await cluster.three()
    for _ in range(4):
        made = await candidate.api.create_topics(
            [NewTopic(f"t{n}", _PARTITIONS, 3) for n in range(_TOPICS // 4 * _, _TOPICS // 4 * (_ + 1))],
            False,
        )
        assert not any(each.error for each in made)
    assert sum(len(broker.leads()) for broker in cluster.brokers.values()) == _TOPICS * _PARTITIONS
    lost = cluster.brokers[1].leads()
    started = monotonic()
    await candidate.close()
    cluster.brokers[1].die()
    await cluster.unregister(1)
    await cluster.controller(2)
    await until(
        lambda: len(cluster.brokers[2].leads()) + len(cluster.brokers[3].leads()) == _TOPICS * _PARTITIONS,
        timeout=60,
    )
    await until(
        lambda: all(state.leader in (2, 3) for state in cluster.brokers[3].metadata.values()), timeout=60
    )
    print(f"{len(lost)} leaders of {_TOPICS * _PARTITIONS} replaced after {monotonic() - started:.2f} s")
