"""What a broker that has just started says before the controller has told it anything."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.cluster.test_cluster import create
from tests.support.cluster import Cluster


def test_a_broker_that_comes_back_never_says_that_there_is_nothing(
    new_cluster: Callable[..., Cluster],
) -> None:
    """Clients that were told so would forget all brokers and topics that they know."""
    cluster = new_cluster()
    create(cluster, "t")
    cluster.wait_in_sync("t", 3)
    for number, broker in cluster.brokers.items():
        broker.kill()
        broker.spawn()
        deadline = time.monotonic() + 30
        answer = None
        while answer is None:
            assert time.monotonic() < deadline
            try:
                answer = cluster.metadata(number, ["t"])
            except OSError:
                time.sleep(0.005)
        assert number in {each.node_id for each in answer.brokers}
        assert answer.controller_id in cluster.brokers
        cluster.wait_in_sync("t", 3)
