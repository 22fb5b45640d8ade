"""The table of a partition's stages, and the state that changes with it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.consumer.conftest import tp

from ottla_client.consumer.positions import TRANSITIONS, Event, PartitionState, Positions, Stage
from ottla_client.errors import ClientError
from ottla_client.types import OffsetSpec


def test_every_stage_can_be_left_by_a_seek_and_by_a_reset() -> None:
    for stage in Stage:
        assert TRANSITIONS[stage][Event.SOUGHT] is Stage.FETCHING
        assert TRANSITIONS[stage][Event.RESET] is Stage.NEEDS_RESET
        assert TRANSITIONS[stage][Event.FAILED] is Stage.FAILED


def test_a_found_offset_that_comes_after_a_seek_changes_nothing() -> None:
    state = PartitionState(tp("t"))
    state.seek(7)
    state.found(3, None)
    assert (state.stage, state.position) == (Stage.FETCHING, 7)


def test_a_new_leader_has_to_confirm_what_was_read() -> None:
    state = PartitionState(tp("t"))
    state.led_by(3)
    state.seek(7, epoch=3)
    assert not state.led_by(3)
    assert not state.led_by(2)
    assert state.led_by(4)
    assert (state.stage, state.leader_epoch) == (Stage.NEEDS_VALIDATION, 4)
    state.validated()
    assert (state.stage, state.position) == (Stage.FETCHING, 7)


def test_without_an_epoch_there_is_nothing_to_confirm() -> None:
    state = PartitionState(tp("t"))
    state.led_by(3)
    state.seek(7)
    assert not state.led_by(4)
    assert state.stage is Stage.FETCHING


def test_a_failed_partition_waits_for_the_application() -> None:
    state = PartitionState(tp("t"))
    state.seek(7, epoch=1)
    state.fail(ClientError("no"))
    state.found(1, None)
    state.led_by(9)
    assert state.stage is Stage.FAILED
    state.seek(8)
    assert (state.stage, state.error) == (Stage.FETCHING, None)


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("seek"), st.integers(0, 9)),
        st.tuples(st.just("found"), st.integers(0, 9)),
        st.tuples(st.just("led_by"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["reset", "validated", "validate", "fail", "forget"]), st.just(0)),
    )
)


@settings(deadline=None)
@given(_steps)
def test_whatever_happens_the_table_holds(steps: list[tuple[str, int]]) -> None:
    state = PartitionState(tp("t"))
    for name, number in steps:
        before, version = state.stage, state.version
        if name == "seek":
            state.seek(number, epoch=0)
        elif name == "found":
            state.found(number, 0)
        elif name == "led_by":
            state.led_by(number)
        elif name == "reset":
            state.reset(OffsetSpec.EARLIEST)
        elif name == "fail":
            state.fail(ClientError("no"))
        elif name == "forget":
            state.forget_buffered()
        else:
            getattr(state, name)()
        assert state.stage is before or state.stage in TRANSITIONS[before].values()
        assert (state.stage is Stage.FAILED) == (state.error is not None)
        if state.stage is Stage.FETCHING:
            assert state.position is not None
        if name in ("seek", "reset", "fail", "forget"):
            assert state.version > version  # nothing of before is handed out
            assert state.buffered == 0


def test_partitions_come_and_go() -> None:
    positions = Positions()
    first, second = positions.add([tp("t", 0), tp("t", 1)])
    assert positions.add([tp("t", 0)]) == []
    positions.to_the_back(first)
    assert list(positions) == [second, first]
    version = first.version
    assert positions.remove([tp("t", 0), tp("t", 5)]) == [first]
    assert first.version > version
    assert positions.partitions == {tp("t", 1)}
    positions.to_the_back(first)
    assert len(positions) == 1


@pytest.mark.parametrize("stage", list(Stage))
def test_the_table_is_whole(stage: Stage) -> None:
    assert stage in TRANSITIONS
