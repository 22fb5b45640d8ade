"""Fetch sessions: the table of epochs, eviction, and a model of what incremental requests add up to."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clock import FakeClock

from ottla_broker.replica.fetch_session import FetchContext, FetchSessions
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.fetch import FetchPartition as WirePartition
from ottla_protocol.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic


def sessions(slots: int = 10) -> tuple[FetchSessions, FakeClock]:
    clock = FakeClock()
    return FetchSessions(slots, clock, random.Random(1)), clock


def request(
    session_id: int,
    epoch: int,
    offsets: dict[tuple[str, int], int],
    forget: list[tuple[str, int]] | None = None,
) -> FetchRequest:
    topics: dict[str, list[WirePartition]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, []).append(
            WirePartition(partition=number, fetch_offset=offset, partition_max_bytes=100)
        )
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic=name, partitions=p) for name, p in topics.items()],
        forgotten_topics_data=[ForgottenTopic(topic=t, partitions=[n]) for t, n in forget or []],
    )


def test_a_full_request_opens_a_session_and_the_next_ones_build_on_it() -> None:
    cache, _ = sessions()
    first = cache.context(request(0, 0, {("t", 0): 5, ("t", 1): 7}), uses_ids=False)
    assert first.session_id > 0
    assert not first.incremental
    second = cache.context(request(first.session_id, 1, {("t", 1): 8, ("u", 0): 1}), uses_ids=False)
    assert second.incremental
    assert {k: p.fetch_offset for k, p in second.partitions.items()} == {
        ("t", 0): 5,
        ("t", 1): 8,
        ("u", 0): 1,
    }
    third = cache.context(request(first.session_id, 2, {}, forget=[("t", 0)]), uses_ids=False)
    assert set(third.partitions) == {("t", 1), ("u", 0)}


@pytest.mark.parametrize(
    ("session", "epoch", "ids", "code"),
    [
        (12345, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (0, 1, False, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (None, 2, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 7, False, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (None, 1, True, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_requests_out_of_turn_are_refused(
    session: int | None, epoch: int, ids: bool, code: ErrorCode
) -> None:
    cache, _ = sessions()
    opened = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False)
    with pytest.raises(KafkaError) as caught:
        cache.context(request(opened.session_id if session is None else session, epoch, {}), uses_ids=ids)
    assert caught.value.code == code


def test_the_final_epoch_closes_a_session() -> None:
    cache, _ = sessions()
    opened = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False)
    assert cache.context(request(opened.session_id, -1, {("t", 0): 0}), uses_ids=False).session_id == 0
    assert len(cache) == 0


def test_a_session_that_has_forgotten_everything_is_closed() -> None:
    cache, _ = sessions()
    opened = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False)
    left = cache.context(request(opened.session_id, 1, {}, forget=[("t", 0)]), uses_ids=False)
    assert left.session_id == 0
    assert len(cache) == 0


def test_a_partition_fetched_and_forgotten_at_once_is_forgotten() -> None:
    cache, _ = sessions()
    first = cache.context(request(0, 0, {("t", 0): 5, ("t", 1): 7}), uses_ids=False)
    second = cache.context(
        request(first.session_id, 1, {("t", 0): 6, ("u", 0): 1}, forget=[("t", 0), ("u", 0)]), uses_ids=False
    )
    assert (second.session_id, set(second.partitions)) == (first.session_id, {("t", 1)})
    # The last one: the session is closed, and what the request names is answered without one.
    third = cache.context(request(first.session_id, 2, {("t", 1): 8}, forget=[("t", 1)]), uses_ids=False)
    assert (third.session_id, third.incremental) == (0, False)
    assert {k: p.fetch_offset for k, p in third.partitions.items()} == {("t", 1): 8}
    assert len(cache) == 0


def test_a_full_request_of_no_topics_opens_a_session() -> None:
    cache, _ = sessions()
    first = cache.context(request(0, 0, {}), uses_ids=False)
    assert first.session_id > 0
    second = cache.context(request(first.session_id, 1, {("t", 0): 5}), uses_ids=False)
    assert (second.session_id, set(second.partitions)) == (first.session_id, {("t", 0)})


def test_a_full_cache_evicts_only_sessions_that_have_been_idle() -> None:
    cache, clock = sessions(slots=2)
    a = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False).session_id
    clock.time += 100
    b = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False).session_id
    assert cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False).session_id == 0
    clock.time += 30
    c = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False).session_id
    assert c > 0
    with pytest.raises(KafkaError):
        cache.context(request(a, 1, {}), uses_ids=False)
    assert cache.context(request(b, 1, {("t", 0): 1}), uses_ids=False).session_id == b


def many(count: int, topic: str = "t") -> dict[tuple[str, int], int]:
    return {(topic, number): 0 for number in range(count)}


def test_the_partitions_of_all_sessions_are_bounded() -> None:
    clock = FakeClock()
    cache = FetchSessions(10, clock, random.Random(1), most_partitions=100)
    a = cache.context(request(0, 0, many(60)), uses_ids=False).session_id
    refused = cache.context(request(0, 0, many(60)), uses_ids=False)
    assert (refused.session_id, len(refused.partitions)) == (0, 60)
    b = cache.context(request(0, 0, many(40)), uses_ids=False).session_id
    assert a > 0
    assert b > 0
    # A session that grows beyond the bound ends with the whole answer.
    ended = cache.context(request(b, 1, many(41)), uses_ids=False)
    assert (ended.session_id, ended.incremental, len(ended.partitions)) == (0, False, 41)
    # What it had counts no longer, and neither does what is forgotten.
    assert cache.context(request(a, 1, {}, forget=[("t", number) for number in range(30)]), uses_ids=False)
    assert cache.context(request(0, 0, many(70)), uses_ids=False).session_id > 0
    # Idle sessions make room.
    clock.time += 130
    assert cache.context(request(0, 0, many(90)), uses_ids=False).session_id > 0
    assert cache.context(request(0, 0, many(101)), uses_ids=False).session_id == 0
    assert len(cache) == 1


def test_long_names_count_for_more_and_followers_not_at_all() -> None:
    cache = FetchSessions(10, FakeClock(), random.Random(1), most_partitions=100)
    assert cache.context(request(0, 0, many(1, "x" * 32_767)), uses_ids=False).session_id == 0
    follower = cache.context(request(0, 0, many(500)), uses_ids=False, of_follower=True).session_id
    assert follower > 0
    assert cache.context(request(follower, 1, many(600)), uses_ids=False, of_follower=True).incremental
    assert cache.context(request(0, 0, many(100, "x" * 249)), uses_ids=False).session_id > 0
    assert cache.context(request(follower, 2, many(700)), uses_ids=False, of_follower=True).incremental


def test_the_epoch_wraps_to_one() -> None:
    cache, _ = sessions()
    session = cache.context(request(0, 0, {("t", 0): 0}), uses_ids=False).session
    assert session is not None
    session.epoch = 2**31 - 1
    cache.context(request(session.id, 2**31 - 1, {}), uses_ids=False)
    assert session.epoch == 1


_KEYS = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3))


@given(
    st.dictionaries(_KEYS, st.integers(0, 100), min_size=1),
    st.lists(
        st.tuples(st.dictionaries(_KEYS, st.integers(0, 100)), st.lists(_KEYS, max_size=3)), max_size=10
    ),
)
def test_a_session_holds_what_its_requests_add_up_to(
    first: dict[tuple[str, int], int], steps: list[tuple[dict[tuple[str, int], int], list[tuple[str, int]]]]
) -> None:
    cache, _ = sessions()
    context = cache.context(request(0, 0, first), uses_ids=False)
    session = context.session_id
    model = dict(first)
    for epoch, (offsets, forget) in enumerate(steps, start=1):
        context = cache.context(request(session, epoch, offsets, forget), uses_ids=False)
        model.update(offsets)
        for key in forget:
            model.pop(key, None)
        found = {k: p.fetch_offset for k, p in context.partitions.items()}
        assert cache._counted == len(model)
        if not model:
            # The session is closed, and the request answered by itself.
            assert (context.session_id, found) == (0, offsets)
            return
        assert found == model


def test_the_partitions_of_fetches_that_wait_are_bounded() -> None:
    clock = FakeClock()
    cache = FetchSessions(10, clock, random.Random(1), most_partitions=10)

    def ask(count: int, epoch: int = -1, of_follower: bool = False) -> FetchContext:
        return cache.context(request(0, epoch, many(count)), uses_ids=False, of_follower=of_follower)

    first, second, third = ask(15), ask(15), ask(15)
    assert cache.may_wait(first)
    assert cache.may_wait(second)
    assert not cache.may_wait(third)
    # Those of sessions are counted there, and other brokers wait in any case.
    assert cache.may_wait(ask(1, epoch=0))
    follower = ask(15, of_follower=True)
    assert cache.may_wait(follower)
    cache.has_waited(follower)
    cache.has_waited(first)
    assert cache.may_wait(third)
