"""Copies of what a broker remembers of a producer, and keys by which two such memories are compared."""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.log.heard_connections import ConnectionAge, HeardConnections, HeardSenders
from ottla_broker.log.producer_snapshot import ProducerEntry
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.unstable_transactions import UnstableTransactions
from ottla_broker.log.verification import Verifications, VerificationState


def copy_age(age: ConnectionAge) -> ConnectionAge:
    made = ConnectionAge(age.accepted_at)
    made.sent_after = age.sent_after
    made._refused = age._refused.copy()
    return made


def copy_heard(heard: HeardConnections) -> HeardConnections:
    made = type(heard)(heard.since, heard.epoch)
    made.newest = heard.newest
    return made


def copy_states(states: ProducerStates, monotonic: Callable[[], float]) -> ProducerStates:
    made = type(states).__new__(type(states))
    made._environment, made._name = states._environment, states._name
    made._full_until = 0
    made.monotonic = monotonic
    made.end_offset = states.end_offset
    made.unstable = UnstableTransactions()
    made.producers = {}
    for producer_id, entry in states.producers.items():
        made.producers[producer_id] = ProducerEntry(
            producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp,
            entry.txn_first_offset,
            list(entry.batches),
        )
    made.verifications = Verifications()
    for producer_id, state in states.verifications._states.items():
        made.verifications.begin(producer_id, state.lowest_sequence, state.epoch, 0)
    made.heard = _copy_senders(states.heard)
    made.heard_markers = states.heard_markers
    return made


def _copy_senders(senders: HeardSenders) -> HeardSenders:
    made = HeardSenders.__new__(HeardSenders)
    made.__dict__.update(senders.__dict__)
    made._heard = {each: copy_heard(heard) for each, heard in senders._heard.items()}
    return made


def entry_key(entry: ProducerEntry | None) -> object:
    if entry is None:
        return None
    return (entry.epoch, entry.txn_first_offset >= 0, tuple(entry.batches))


def verification_key(state: VerificationState | None) -> object:
    return None if state is None else (state.epoch, state.lowest_sequence)
