"""A leader is alive and, except for unclean elections, in sync."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.controller.cluster.leader_election import (
    Elected,
    preferred,
    when_offline,
    when_shutting_down,
)

brokers = st.integers(1, 6)
replica_lists = st.lists(brokers, min_size=1, max_size=5, unique=True)


def test_the_first_in_sync_replica_that_is_alive_leads() -> None:
    assert when_offline([1, 2, 3], [3, 2], {2, 3}, False) == Elected(2, (3, 2))
    assert when_offline([1, 2, 3], [1, 3], {2, 3}, False) == Elected(3, (3,))
    assert when_offline([1, 2, 3], [1], {2, 3}, False) is None
    assert when_offline([1, 2, 3], [1], {2, 3}, True) == Elected(2, (2,), unclean=True)
    assert when_offline([1], [1], set(), True) is None


def test_the_preferred_leader_is_the_first_replica_or_none() -> None:
    assert preferred([1, 2], [2, 1], {1, 2}) == Elected(1, (2, 1))
    assert preferred([1, 2], [2], {1, 2}) is None
    assert preferred([1, 2], [1, 2], {2}) is None


def test_leaving_brokers_neither_lead_nor_stay_in_sync() -> None:
    assert when_shutting_down([1, 2, 3], [1, 2, 3], {1, 2, 3}, {1}) == Elected(2, (2, 3))
    assert when_shutting_down([1, 2], [1], {1, 2}, {1}) is None


@given(replica_lists, st.data())
def test_clean_elections_choose_in_sync_replicas(replicas: list[int], data: st.DataObject) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    live = data.draw(st.sets(brokers))
    leaving = data.draw(st.sets(brokers))
    for elected in (
        when_offline(replicas, isr, live, False),
        preferred(replicas, isr, live),
        when_shutting_down(replicas, isr, live, leaving),
    ):
        if elected is not None:
            assert elected.leader in live
            assert elected.leader in isr
            assert elected.leader in elected.isr
            assert set(elected.isr) <= set(isr)
            assert not elected.unclean
    able = [b for b in replicas if b in isr and b in live]
    assert (when_offline(replicas, isr, live, False) is not None) == bool(able)
    unclean = when_offline(replicas, isr, live, True)
    assert (unclean is not None) == bool(live & set(replicas))
