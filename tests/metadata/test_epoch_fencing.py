"""Whom a broker obeys."""

from __future__ import annotations

import asyncio

from ottla_broker.metadata.epoch_fencing import EpochFence
from ottla_protocol.errors import ErrorCode


def test_stale_controllers_and_stale_registrations_are_not_obeyed() -> None:
    authority = EpochFence()
    authority.broker_epoch = 10
    assert authority.check(1, 5, 10) is ErrorCode.NONE
    assert authority.check(2, 4, 10) is ErrorCode.STALE_CONTROLLER_EPOCH
    assert authority.check(1, 5, 9) is ErrorCode.STALE_BROKER_EPOCH
    assert (authority.controller_id, authority.controller_epoch) == (1, 5)
    assert authority.check(2, 6, -1) is ErrorCode.NONE
    assert (authority.controller_id, authority.controller_epoch) == (2, 6)


async def test_what_was_meant_for_an_earlier_process_is_not_taken_by_one_that_is_not_registered_yet() -> None:
    authority = EpochFence()
    told = asyncio.ensure_future(authority.admit(1, 5, 9))
    own = asyncio.ensure_future(authority.admit(1, 5, 10))
    await asyncio.sleep(0)
    assert not told.done()
    authority.broker_epoch = 10
    assert await told is ErrorCode.STALE_BROKER_EPOCH
    assert await own is ErrorCode.NONE
