"""Requests that come by a connection which their producer may have given up (decision 9).

All orders of events: test_late_model.py.
"""

from __future__ import annotations

from tests.coordinator.transactions import TransactionWorld

from ottla_broker.coordinator.transaction.coordinator import ProducerResult
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.log.heard_connections import Arrival, ConnectionAge
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_protocol.api_keys import ApiKey

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN
TIMELY, UNCERTAIN, LATE = Arrival


def test_a_producer_that_speaks_on_a_newer_connection_has_left_the_others() -> None:
    world = TransactionWorld()
    hear = world.coordinator.hear
    older, newer = ConnectionAge(1), ConnectionAge(2)
    assert hear("x", None, older, END) is TIMELY  # It isn't known yet.
    producer = world.producer()
    assert hear("x", producer, older, END) is TIMELY
    assert hear("x", producer, newer, END) is TIMELY
    for _ in range(3):
        assert hear("x", producer, older, END) is LATE
        assert hear("x", None, older, ADD) is LATE
    assert hear("y", None, older, END) is TIMELY


def test_a_fenced_producer_changes_nothing() -> None:
    """Its epoch is what it hears of; the connection of the producer that has replaced it stays."""
    world = TransactionWorld()
    old = world.producer()
    new = world.producer()
    assert world.coordinator.hear("x", new, ConnectionAge(1), END) is TIMELY
    assert world.coordinator.hear("x", old, ConnectionAge(2), END) is TIMELY
    assert world.coordinator.hear("x", Producer(9999, 0), ConnectionAge(3), END) is TIMELY
    assert world.coordinator.hear("x", new, ConnectionAge(1), END) is TIMELY


def test_a_new_coordinator_has_what_was_sent_before_sent_again() -> None:
    world = TransactionWorld()
    producer = world.producer()
    before = ConnectionAge(world.clock.monotonic())
    assert world.coordinator.hear("x", producer, before, END) is TIMELY
    world.clock.advance(1)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart()
    assert again.coordinator.hear("x", producer, before, END) is UNCERTAIN
    assert again.coordinator.hear("y", None, before, END) is TIMELY
    again.clock.advance(1)
    assert again.coordinator.hear("x", producer, before, END) is TIMELY
    assert again.coordinator.hear("x", producer, ConnectionAge(again.clock.monotonic()), END) is TIMELY
    again.clock.advance(1)
    assert again.coordinator.hear("x", producer, before, END) is LATE


def test_the_request_that_creates_an_id_is_heard() -> None:
    world = TransactionWorld()
    answers: list[ProducerResult] = []
    world.coordinator.init_producer_id("x", 60_000, None, answers.append, ConnectionAge(2))
    assert answers[0].error == 0
    assert world.coordinator.hear("x", None, ConnectionAge(1), ApiKey.INIT_PRODUCER_ID) is LATE
