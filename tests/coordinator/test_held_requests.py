"""A producer that begins its next transaction before the last one has all its markers: its request is held."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.coordinator.test_handlers import FakeBroker
from tests.coordinator.test_transaction_handlers import add_request
from tests.support.handlers import Client, begun, module_of, request_context, services, when_answered

from ottla_broker.coordinator.transaction.transaction_shard import HOLD_SECONDS
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_broker.network.pending_response import CloseConnection
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest


class Asked:
    """A request of a client, and the error code that it has got."""

    def __init__(self, broker: FakeBroker, api: ApiKey, request: Any, connected_at: float) -> None:
        given = services(
            clock=broker.clock,
            metadata=broker.metadata,
            groups=broker.groups,
            transactions=broker.transactions,
            joined=None,
        )
        context = request_context(given, 3, api)
        context.connection = Client(age=ConnectionAge(connected_at))
        # None: the connection is closed.
        self.codes: list[Code | None] = []
        self.running = begun(module_of(api), context, request)
        when_answered(self.running, self._answered)

    def _answered(self, answer: Any) -> None:
        if isinstance(answer, CloseConnection):
            self.codes.append(None)
            return
        if hasattr(answer, "results_by_topic_v3_and_below"):
            [topic] = answer.results_by_topic_v3_and_below
            [partition] = topic.results_by_partition
            self.codes.append(Code(partition.partition_error_code))
        else:
            self.codes.append(Code(answer.error_code))


class Held:
    """A producer's transaction that has ended, whose markers are under way."""

    def __init__(self) -> None:
        self.broker = FakeBroker()
        self.world = self.broker.world
        self.began = self.world.clock.monotonic()
        self.producer = self.world.producer()
        self.world.add(self.producer)
        self.world.brokers.hold = True
        assert self.world.end(self.producer) == [Code.NONE]
        assert self.world.state() == "PrepareCommit"

    def add(self, later: float = 0.0) -> Asked:
        """``later``: how many seconds after the first one the connection was accepted."""
        request = add_request(3, self.producer, ("t", [1]))
        return Asked(self.broker, ApiKey.ADD_PARTITIONS_TO_TXN, request, self.began + later)

    def add_offsets(self) -> Asked:
        request = AddOffsetsToTxnRequest(
            transactional_id="x",
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            group_id="g",
        )
        return Asked(self.broker, ApiKey.ADD_OFFSETS_TO_TXN, request, self.began)


@pytest.mark.parametrize("ask", [Held.add, Held.add_offsets])
def test_the_next_transaction_begins_when_the_last_one_is_complete(ask: Callable[[Held], Asked]) -> None:
    held = Held()
    asked = ask(held)
    assert not asked.codes
    held.world.clock.advance(HOLD_SECONDS / 2)
    held.world.brokers.deliver()
    assert asked.codes == [Code.NONE]
    assert held.world.state() == "Ongoing"
    assert len(held.world.metadata().partitions) == 1
    held.world.clock.advance(1)
    assert asked.codes == [Code.NONE]


def test_a_request_is_held_for_a_moment_only() -> None:
    held = Held()
    asked = held.add()
    held.world.clock.advance(HOLD_SECONDS)
    assert asked.codes == [Code.CONCURRENT_TRANSACTIONS]
    again = held.add()
    assert not again.codes
    held.world.brokers.deliver()
    assert again.codes == [Code.NONE]


def test_a_few_requests_are_held_for_a_transactional_id() -> None:
    held = Held()
    asked = [held.add() for _ in range(8)]
    assert held.add().codes == [Code.CONCURRENT_TRANSACTIONS]
    assert not any(each.codes for each in asked)
    held.world.brokers.deliver()
    assert all(each.codes == [Code.NONE] for each in asked)


def test_leaders_wait_for_each_other_s_partitions() -> None:
    """A client of version 2 writes to several partitions at once, and each adds itself."""
    held = Held()
    held.world.brokers.deliver()
    held.world.partition.hold = True
    answers = [held.world.add_for_leader(held.producer, index) for index in range(3)]
    assert answers == [[], [], []]
    held.world.partition.hold = False
    held.world.partition.release()
    held.world.clock.run_due()
    assert answers == [[Code.NONE]] * 3
    assert held.world.metadata().partitions == {("t", index) for index in range(3)}


def test_a_leader_waits_for_a_moment_only() -> None:
    held = Held()
    answer = held.world.add_for_leader(held.producer)
    assert not answer
    held.world.clock.advance(2 * HOLD_SECONDS)
    assert answer == [Code.CONCURRENT_TRANSACTIONS]


def test_a_request_whose_client_goes_begins_nothing() -> None:
    held = Held()
    asked = held.add()
    assert asked.running.abandon is not None
    asked.running.abandon()
    held.world.brokers.deliver()
    assert held.world.state() == "CompleteCommit"
    assert not asked.codes
    held.world.clock.advance(1)
    assert held.world.state() == "CompleteCommit"


def test_a_request_whose_client_goes_on_by_another_connection_is_late() -> None:
    """It would begin a transaction under a client that has begun it by the other connection (decision 9)."""
    held = Held()
    asked = held.add(later=1)
    newer = held.add(later=2)
    held.world.brokers.deliver()
    assert asked.codes == [None]
    assert newer.codes == [Code.NONE]


def test_a_producer_that_is_replaced_meanwhile_is_fenced() -> None:
    broker = FakeBroker()
    world = broker.world
    old = world.producer()
    world.partition.hold = True
    new = world.init()
    request = add_request(3, old, ("t", [1]))
    asked = Asked(broker, ApiKey.ADD_PARTITIONS_TO_TXN, request, world.clock.monotonic())
    assert not asked.codes
    world.partition.hold = False
    world.partition.release()
    assert new[0].producer_epoch == 1
    assert asked.codes == [Code.PRODUCER_FENCED]


@pytest.mark.parametrize("stops", [True, False])
def test_a_coordinator_that_ends_answers_what_it_holds(stops: bool) -> None:
    held = Held()
    asked = held.add()
    if stops:
        held.world.coordinator.stop()
    else:
        held.world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    assert asked.codes == [Code.COORDINATOR_NOT_AVAILABLE if stops else Code.NOT_COORDINATOR]
    held.world.clock.advance(1)
    assert len(asked.codes) == 1


def test_a_request_is_held_until_the_log_has_the_change_before_it() -> None:
    broker = FakeBroker()
    world = broker.world
    producer = world.producer()
    world.partition.hold = True
    first = world.add(producer, (0,))
    request = add_request(3, producer, ("t", [1]))
    asked = Asked(broker, ApiKey.ADD_PARTITIONS_TO_TXN, request, world.clock.monotonic())
    world.partition.hold = False
    world.partition.release()
    assert (first, asked.codes) == ([Code.NONE], [Code.NONE])
    assert world.metadata().partitions == {("t", 0), ("t", 1)}


def test_a_request_of_an_expired_id_is_answered() -> None:
    broker = FakeBroker()
    world = broker.world
    producer = world.producer()
    world.partition.hold = True
    world.clock.advance(7 * 24 * 3600 + 3600)
    request = add_request(3, producer, ("t", [1]))
    asked = Asked(broker, ApiKey.ADD_PARTITIONS_TO_TXN, request, world.clock.monotonic())
    assert not asked.codes
    world.partition.hold = False
    world.partition.release()
    assert asked.codes == [Code.INVALID_PRODUCER_ID_MAPPING]
