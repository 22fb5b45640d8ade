"""Which controller a broker obeys."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.clock import FakeClock

from ottla_broker.metadata.epoch_fencing import EpochFence
from ottla_protocol.errors import ErrorCode


class Elections:
    """The epoch of the last controller that was elected, as the store has it."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.reads = 0
        self.failure: Exception | None = None

    async def latest(self) -> int:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self.epoch


async def test_stale_controllers_and_stale_registrations_are_not_obeyed() -> None:
    elections = Elections(5)
    fence = EpochFence(FakeClock(), elections.latest)
    fence.broker_epoch = 10
    assert await fence.admit(1, 5, 10) is ErrorCode.NONE
    assert await fence.admit(2, 4, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert await fence.admit(1, 5, 9) is ErrorCode.STALE_BROKER_EPOCH
    assert (fence.controller_id, fence.controller_epoch) == (1, 5)
    elections.epoch = 6
    assert await fence.admit(2, 6, 10) is ErrorCode.NONE
    assert (fence.controller_id, fence.controller_epoch) == (2, 6)


async def test_a_controller_that_was_not_elected_is_not_obeyed() -> None:
    elections = Elections(5)
    fence = EpochFence(FakeClock(), elections.latest)
    fence.broker_epoch = 10
    assert await fence.admit(9, 1000, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert (fence.controller_id, fence.controller_epoch) == (-1, 0)
    elections.failure = OSError("no connection")
    with pytest.raises(OSError, match="no connection"):
        await fence.admit(9, 1000, 10)
    elections.failure = None
    assert await fence.admit(1, 5, 10) is ErrorCode.NONE


async def test_only_a_newer_epoch_is_looked_up() -> None:
    elections = Elections(5)
    fence = EpochFence(FakeClock(), elections.latest)
    fence.broker_epoch = 10
    for epoch in (5, 5, 4, 5):
        await fence.admit(1, epoch, 10)
    assert elections.reads == 1


async def test_a_request_names_the_registration_if_its_version_can() -> None:
    fence = EpochFence(FakeClock(), Elections(5).latest)
    fence.broker_epoch = 10
    assert await fence.admit(1, 5, -1) is ErrorCode.STALE_BROKER_EPOCH
    assert await fence.admit(1, 5, None) is ErrorCode.NONE


async def test_what_was_meant_for_an_earlier_process_is_not_taken_by_one_that_is_not_registered_yet() -> None:
    fence = EpochFence(FakeClock(), Elections(5).latest)
    earlier = asyncio.ensure_future(fence.admit(1, 5, 9))
    own = asyncio.ensure_future(fence.admit(1, 5, 10))
    await asyncio.sleep(0)
    assert not earlier.done()
    fence.broker_epoch = 10
    assert await earlier is ErrorCode.STALE_BROKER_EPOCH
    assert await own is ErrorCode.NONE
