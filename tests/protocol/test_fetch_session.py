"""Fetch sessions: broker and client agree on the partitions."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol.errors import ErrorCode
from ottla_protocol.fetch_session import FetchSession

TopicPartition = tuple[str, int]


class Want(NamedTuple):
    topic_id: bytes | None
    offset: int
    leader_epoch: int
    max_bytes: int


A, B = ("a", 0), ("b", 0)
IDS = {"a": b"a" * 16, "b": b"b" * 16}


def want(partition: TopicPartition, offset: int = 0, id: bytes | None = None) -> Want:
    return Want(id or IDS[partition[0]], offset, 0, 1024)


def test_first_everything_then_changes() -> None:
    session = FetchSession()
    first = session.request({A: want(A), B: want(B)}, by_id=True)
    assert (first.session_id, first.epoch, set(first.fetch), first.forgotten) == (0, 0, {A, B}, [])
    assert session.answered(0, 77, [A, B])
    second = session.request({A: want(A, 5), B: want(B)}, by_id=True)
    assert (second.session_id, second.epoch, set(second.fetch), second.forgotten) == (77, 1, {A}, [])
    assert session.answered(0, 77, [])
    third = session.request({B: want(B)}, by_id=True)
    assert (third.epoch, third.fetch, third.forgotten) == (2, {}, [(A, IDS["a"])])


def test_a_broker_without_room_for_a_session_gets_everything_each_time() -> None:
    session = FetchSession()
    for _ in range(3):
        request = session.request({A: want(A)}, by_id=True)
        assert (request.session_id, request.epoch, set(request.fetch)) == (0, 0, {A})
        assert session.answered(0, 0, [A])


def test_a_topic_with_another_id_is_forgotten_by_the_old_one() -> None:
    session = FetchSession()
    session.request({A: want(A)}, by_id=True)
    session.answered(0, 9, [A])
    request = session.request({A: want(A, id=b"x" * 16)}, by_id=True)
    assert request.forgotten == [(A, IDS["a"])]
    assert request.fetch[A].topic_id == b"x" * 16


def test_names_and_ids_are_not_mixed() -> None:
    session = FetchSession()
    session.request({A: want(A)}, by_id=True)
    session.answered(0, 9, [A])
    request = session.request({A: want(A)}, by_id=False)
    assert (request.session_id, request.epoch, set(request.fetch)) == (9, 0, {A})


def test_a_failure_starts_over() -> None:
    for error, id in ((ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 9)):
        session = FetchSession()
        session.request({A: want(A)}, by_id=True)
        session.answered(0, 9, [A])
        session.request({A: want(A)}, by_id=True)
        assert not session.answered(error, 0, [])
        request = session.request({A: want(A)}, by_id=True)
        assert (request.session_id, request.epoch, set(request.fetch)) == (id, 0, {A})


def test_an_unrequested_partition_starts_over() -> None:
    session = FetchSession()
    session.request({A: want(A)}, by_id=True)
    assert not session.answered(0, 9, [A, B])
    assert session.request({A: want(A)}, by_id=True).epoch == 0


def test_epochs_wrap_around() -> None:
    session = FetchSession()
    session.request({A: want(A)}, by_id=True)
    session.answered(0, 9, [A])
    session._epoch = 2**31 - 1
    session.request({A: want(A)}, by_id=True)
    assert session.answered(0, 9, [])
    assert session.request({A: want(A)}, by_id=True).epoch == 1


_partitions = st.integers(0, 4).map(lambda number: ("a", number))
_wants = st.dictionaries(_partitions, st.integers(0, 3).map(lambda offset: Want(IDS["a"], offset, 0, 1024)))
_outcomes = st.sampled_from(["fine", "lost", "not found", "epoch", "no room", "closed"])


@given(st.lists(st.tuples(_wants, _outcomes), max_size=30))
def test_the_broker_reads_exactly_the_wanted_partitions(
    steps: list[tuple[dict[TopicPartition, Want], str]],
) -> None:
    """Against a broker that keeps sessions as KIP-227 says."""
    session = FetchSession()
    kept: dict[int, tuple[int, dict[TopicPartition, Want]]] = {}
    next_id = 1
    for wanted, outcome in steps:
        request = session.request(wanted, by_id=True)
        if request.epoch == 0:
            kept.pop(request.session_id, None)
            read = dict(request.fetch)
            id = 0 if outcome == "no room" else next_id
            next_id += 1
            if id:
                kept[id] = (1, read)
        else:
            epoch, known = kept[request.session_id]
            assert request.epoch == epoch
            known.update(request.fetch)
            for partition, _ in request.forgotten:
                known.pop(partition, None)
            read = known
            id = request.session_id
            kept[id] = (epoch + 1, known)
        assert read == wanted
        if outcome == "lost":
            session.failed()
        elif outcome == "not found":
            kept.pop(id, None)
            session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, [])
        elif outcome == "epoch":
            session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, [])
        elif outcome == "closed" and request.epoch:
            kept.pop(id, None)
            assert session.answered(0, 0, [])
        else:
            assert session.answered(0, id, list(read))
