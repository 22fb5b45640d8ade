"""What brokers send each other, with very many elements: none of it holds the event loop, or takes much memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.badinput.hostile import Attack, attacks
from tests.badinput.hostile_check import check, name_of
from tests.support.cluster import QUICK
from tests.support.watched import WatchedBroker
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.handlers.index import INDEX
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.fetch import ReplicaState

_ALSO = (
    ApiKey.FETCH,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.WRITE_TXN_MARKERS,
)
# The first controller's epoch, and a registration that isn't older than the broker's.
_OWN = {
    "controller_id": 1,
    "controller_epoch": 1,
    "broker_id": 1,
    "broker_epoch": 2**60,
    "replica_id": 1,
    "replica_state": ReplicaState(replica_id=1, replica_epoch=1),
}

ATTACKS = [
    each
    for key, served in INDEX.items()
    if served.in_clusters or key in _ALSO
    for each in attacks(key, served.max_version, **_OWN)
]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, zookeeper: ZooKeeperProcess) -> Iterator[WatchedBroker]:
    """The only broker of a cluster, and so its controller; its listener is the brokers' own."""
    settings = {**QUICK, "zookeeper.connect": f"{zookeeper.address}/hostile-brokers", "broker.id": 1}
    broker = WatchedBroker(tmp_path_factory.mktemp("hostile-brokers") / "data", settings).start()
    yield broker
    broker.kill()


@pytest.mark.parametrize("attack", ATTACKS, ids=name_of)
def test_no_request_between_brokers_holds_the_loop(watched: WatchedBroker, attack: Attack) -> None:
    check(watched, attack)
