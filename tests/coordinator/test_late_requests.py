"""Requests that come by a connection which their producer may have given up (decision 9)."""

from __future__ import annotations

from tests.coordinator.transactions import TransactionWorld

from ottla_broker.coordinator.transaction.coordinator import ProducerResult
from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_protocol.api_keys import ApiKey

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN


def test_the_newest_connection_is_heard() -> None:
    world = TransactionWorld()
    late = world.coordinator.is_late
    start = world.clock.monotonic()
    assert not late("x", None, start + 1, END)  # It isn't known yet.
    producer = world.producer()
    assert not late("x", producer, start + 1, END)
    assert not late("x", producer, start + 1, END)
    assert not late("x", producer, start + 2, END)
    assert late("x", producer, start + 1, END)
    assert late("x", None, start + 1, ADD)
    assert not late("y", None, start + 1, END)


def test_a_producer_that_sends_a_request_again_still_uses_the_connection() -> None:
    world = TransactionWorld()
    late = world.coordinator.is_late
    start = world.clock.monotonic()
    producer = world.producer()
    assert not late("x", producer, start + 3, END)
    assert late("x", producer, start + 1, ADD)
    assert late("x", producer, start + 1, END)
    assert late("x", producer, start + 2, END)
    assert late("x", producer, start + 1, END)
    assert not late("x", producer, start + 1, END)
    assert not late("x", producer, start + 1, ADD)
    assert not late("x", producer, start + 3, ADD)
    assert late("x", producer, start + 2, ADD)


def test_a_fenced_producer_changes_nothing() -> None:
    """Its epoch is what it hears of; the connection of the producer that has replaced it stays."""
    world = TransactionWorld()
    start = world.clock.monotonic()
    old = world.producer()
    new = world.producer()
    assert not world.coordinator.is_late("x", new, start + 1, END)
    assert not world.coordinator.is_late("x", old, start + 2, END)
    assert not world.coordinator.is_late("x", Producer(9999, 0), start + 3, END)
    assert not world.coordinator.is_late("x", new, start + 1, END)


def test_a_new_coordinator_hears_new_connections_only() -> None:
    world = TransactionWorld()
    producer = world.producer()
    before = world.clock.monotonic()
    assert not world.coordinator.is_late("x", producer, before, END)
    world.clock.advance(1)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart()
    assert again.coordinator.is_late("x", producer, before, END)
    assert not again.coordinator.is_late("x", producer, again.clock.monotonic(), END)
    assert not again.coordinator.is_late("y", None, before, END)


def test_a_newer_connection_takes_all_trust_from_older_ones() -> None:
    """A connection that was refused, or that has proven itself, may be given up later."""
    world = TransactionWorld()
    late = world.coordinator.is_late
    start = world.clock.monotonic()
    producer = world.producer()
    assert not late("x", producer, start + 3, END)
    assert late("x", producer, start + 1, END)
    assert not late("x", producer, start + 1, END)
    assert late("x", producer, start + 2, END)
    assert not late("x", producer, start + 4, END)
    assert late("x", producer, start + 1, END)
    assert late("x", producer, start + 2, END)
    assert late("x", producer, start + 3, END)


def test_the_request_that_creates_an_id_is_heard() -> None:
    world = TransactionWorld()
    start = world.clock.monotonic()
    answers: list[ProducerResult] = []
    world.coordinator.init_producer_id("x", 60_000, None, answers.append, start + 2)
    assert answers[0].error == 0
    assert world.coordinator.is_late("x", None, start + 1, ApiKey.INIT_PRODUCER_ID)
