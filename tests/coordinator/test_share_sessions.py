"""Share sessions: the partitions that a member fetches."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any, cast

import pytest
from tests.coordinator.share_world import KEY, ShareWorld

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.share import sessions as module
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.sessions import (
    MOST_OF_CONNECTION,
    MOST_PLACES,
    ShareSession,
    ShareSessions,
)
from ottla_broker.coordinator.share.share_partition import Life
from ottla_broker.coordinator.share.share_partitions import SharePartitions
from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.states import Acknowledge
from ottla_broker.tasks import run_whole
from ottla_protocol.errors import ErrorCode, KafkaError


def test_a_session_has_a_limited_number_of_partitions() -> None:
    session = ShareSession("g", "m")
    every = [(bytes(16), index) for index in range(MOST_PLACES)]
    session.change(every, ())
    more = [(bytes(16), index) for index in range(MOST_PLACES, MOST_PLACES + 3)]
    with pytest.raises(KafkaError) as refused:
        session.change(more, ())
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert list(session.places) == every
    session.change(more, every[:3])
    assert len(session.places) == MOST_PLACES


def test_a_share_partition_that_closes_is_forgotten() -> None:
    world, session = ShareWorld(ShareSettings()), ShareSession("g", "m")
    for _ in range(3):
        session.use(world.share)
        assert list(session.shares.values()) == [world.share]
        world.restart()
        assert not session.shares
    # What is left is freed at once: no reference goes round.
    session.use(world.share)
    closed = weakref.ref(world.share)
    world.restart()
    assert closed() is None


def test_a_forgotten_share_partition_is_used_until_the_member_has_nothing_of_it() -> None:
    world = ShareWorld(ShareSettings(offset_reset="earliest"))
    world.log.append([None] * 3)
    session, place = ShareSession("g", "m"), (KEY.topic_id, KEY.partition)
    session.change([place], ())
    world.share.users.clear()
    session.use(world.share)
    assert world.offsets("m") == [0, 1, 2]
    session.change((), [place])
    session.change((), ())
    assert list(session.shares) == [place]
    assert world.acknowledge("m", dict.fromkeys(range(3), Acknowledge.ACCEPT)) is None
    session.change([place], ())
    assert list(session.shares) == [place]
    session.change((), [place])
    session.change((), ())
    assert not session.shares
    # No session needs it: the leader keeps nothing of it, and reads its state again when it is fetched.
    assert world.share.life is Life.CLOSED


async def test_a_share_partition_that_failed_is_not_loaded_again_at_once() -> None:
    world, reads = ShareWorld(ShareSettings()), list[ShareKey]()

    class Failing:
        def read(self, key: ShareKey, *arguments: Any) -> None:
            reads.append(key)
            arguments[-1](KafkaError(ErrorCode.INVALID_REQUEST, "no state"))

    async def exists() -> None: ...

    persister = Persister(cast(Any, Failing()), exists, world.clock)
    partitions = SharePartitions(persister, lambda _: world.settings, world.clock, cast(Any, None), run_whole)
    partition = world.share.partition
    partitions.get(KEY, partition)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert partitions.find(KEY) is None
    for _ in range(3):
        with pytest.raises(KafkaError, match="no state"):
            partitions.get(KEY, partition)
    assert len(reads) == 1
    world.clock.advance(0.6)
    made = weakref.ref(partitions.get(KEY, partition))
    assert len(reads) == 2
    assert made() is None
    await persister.close()


def test_a_connection_has_a_limited_number_of_sessions() -> None:
    sessions = ShareSessions(lambda: 10_000, run_whole)
    for number in range(MOST_OF_CONNECTION):
        sessions.begin("g", str(number), "connection")
    with pytest.raises(KafkaError) as refused:
        sessions.begin("g", "more", "connection")
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.begin("g", "more", "another")
    # One that begins again counts once.
    sessions.begin("g", "0", "connection")
    sessions.end("g", "1")
    sessions.begin("g", "1", "connection")


def test_all_sessions_have_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PLACES_OF_ALL", 10)
    sessions = ShareSessions(lambda: 100, run_whole)
    places = [(bytes(16), index) for index in range(8)]
    one, two = sessions.begin("g", "1"), sessions.begin("g", "2")
    sessions.change(one, places, ())
    with pytest.raises(KafkaError) as refused:
        sessions.change(two, places[:3], ())
    assert refused.value.code is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    sessions.change(two, places[:2], ())
    # Those that it has already are no further ones.
    sessions.change(two, places[:2], ())
    sessions.change(one, (), places[1:])
    sessions.change(two, places, ())
    sessions.end("g", "2")
    sessions.change(one, places, ())
