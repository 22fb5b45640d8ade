"""Requests that come by a connection which their producer may have given up (decision 9)."""

from __future__ import annotations

from tests.coordinator.transactions import TransactionWorld

from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.metadata.internal_topics import TRANSACTION_TOPIC
from ottla_protocol.api_keys import ApiKey

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN


def test_the_newest_connection_is_heard() -> None:
    world = TransactionWorld()
    hear = world.coordinator.hear
    start = world.clock.monotonic()
    assert hear("x", None, start + 1, END)  # It isn't known yet.
    producer = world.producer()
    assert hear("x", producer, start + 1, END)
    assert hear("x", producer, start + 1, END)
    assert hear("x", producer, start + 2, END)
    assert not hear("x", producer, start + 1, END)
    assert not hear("x", None, start + 1, ADD)
    assert hear("y", None, start + 1, END)


def test_a_producer_that_sends_a_request_again_still_uses_the_connection() -> None:
    world = TransactionWorld()
    hear = world.coordinator.hear
    start = world.clock.monotonic()
    producer = world.producer()
    assert hear("x", producer, start + 3, END)
    assert not hear("x", producer, start + 1, ADD)
    assert not hear("x", producer, start + 1, END)
    assert not hear("x", producer, start + 2, END)
    assert not hear("x", producer, start + 1, END)
    assert hear("x", producer, start + 1, END)
    assert hear("x", producer, start + 1, ADD)
    assert hear("x", producer, start + 3, ADD)
    assert not hear("x", producer, start + 2, ADD)


def test_a_fenced_producer_changes_nothing() -> None:
    """Its epoch is what it hears of; the connection of the producer that has replaced it stays."""
    world = TransactionWorld()
    start = world.clock.monotonic()
    old = world.producer()
    new = world.producer()
    assert world.coordinator.hear("x", new, start + 1, END)
    assert world.coordinator.hear("x", old, start + 2, END)
    assert world.coordinator.hear("x", Producer(9999, 0), start + 3, END)
    assert world.coordinator.hear("x", new, start + 1, END)


def test_a_new_coordinator_hears_new_connections_only() -> None:
    world = TransactionWorld()
    producer = world.producer()
    before = world.clock.monotonic()
    assert world.coordinator.hear("x", producer, before, END)
    world.clock.advance(1)
    world.coordinator.on_stop(TRANSACTION_TOPIC, 0)
    again = world.restart()
    assert not again.coordinator.hear("x", producer, before, END)
    assert again.coordinator.hear("x", producer, again.clock.monotonic(), END)
    assert again.coordinator.hear("y", None, before, END)
