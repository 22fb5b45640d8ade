"""Members of groups that the tests make, with callbacks that take notes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence, Set
from typing import Any, TypeAlias

import pytest
from tests.support.waiting import until

from ottla_client.cluster import Cluster
from ottla_client.deadline import Deadline
from ottla_client.group import GroupMember, MemberSettings, assignors_named
from ottla_client.settings import ConnectionSettings
from ottla_client.types import TopicPartition

# Short times, so that tests needn't wait; sessions long enough for a machine that is busy.
QUICK: dict[str, Any] = {
    "retry_backoff_ms": 5,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 5,
    "reconnect_backoff_max_ms": 50,
    "metadata_max_age_ms": 300,
}
SETTINGS: dict[str, Any] = {"session_timeout_ms": 10_000, "heartbeat_interval_ms": 50}

Event = tuple[str, frozenset[TopicPartition]]


class Notes:
    """The calls of a member's callbacks, in order. ``during`` is awaited inside each of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.held: frozenset[TopicPartition] = frozenset()
        self.during: Callable[[str, frozenset[TopicPartition]], Awaitable[None]] | None = None

    async def _note(self, what: str, partitions: Set[TopicPartition]) -> None:
        partitions = frozenset(partitions)
        if what == "assigned":
            assert not partitions & self.held, "assigned what it has already"
            self.held |= partitions
        else:
            assert partitions <= self.held, f"{what} what it has not"
            self.held -= partitions
        self.events.append((what, partitions))
        if self.during is not None:
            await self.during(what, partitions)

    async def on_revoked(self, partitions: Set[TopicPartition]) -> None:
        await self._note("revoked", partitions)

    async def on_assigned(self, partitions: Set[TopicPartition]) -> None:
        await self._note("assigned", partitions)

    async def on_lost(self, partitions: Set[TopicPartition]) -> None:
        await self._note("lost", partitions)

    def names(self) -> list[str]:
        return [what for what, _ in self.events]


class TestMember(GroupMember):
    """A member with its own cluster, as each consumer has."""

    __test__ = False
    notes: Notes
    cluster: Cluster

    async def leave(self) -> None:
        await self.close(Deadline(30))
        await self.cluster.close()

    async def vanish(self) -> None:
        """End without a word to the coordinator, as a process that is killed."""
        for task in (self._join_task, self._heartbeat_task):
            if task is not None:
                task.cancel()
        self._closed = True
        await self.cluster.close()


NewMember: TypeAlias = Callable[..., Awaitable[TestMember]]


@pytest.fixture
async def new_member() -> AsyncIterator[NewMember]:
    """Makes members that join at once: ``await new_member(bootstrap, group, topics, strategies=..., **settings)``.

    All are closed at the end, and no task may be left then.
    """
    made: list[TestMember] = []

    async def make(
        bootstrap: str,
        group: str,
        topics: Collection[str] | None = None,
        strategies: Sequence[str] = ("range", "cooperative-sticky"),
        *,
        notes: Notes | None = None,
        request_timeout_ms: int = 30_000,
        **options: Any,
    ) -> TestMember:
        cluster = Cluster(bootstrap, ConnectionSettings(**QUICK, request_timeout_ms=request_timeout_ms))
        await cluster.start(Deadline(30))
        notes = notes or Notes()
        member = TestMember(
            cluster,
            group,
            settings=MemberSettings(**{**SETTINGS, **options}),
            assignors=assignors_named(strategies),
            callbacks=notes,
        )
        member.notes = notes
        member.cluster = cluster
        made.append(member)
        if topics is not None:
            member.subscribe(topics)
        member.start()
        return member

    yield make
    for member in made:
        await member.leave()
    assert not client_tasks()


def client_tasks() -> set[str]:
    """The client's tasks that have not ended."""
    running = (task.get_coro() for task in asyncio.all_tasks())
    return {repr(each) for each in running if "ottla_client" in each.cr_code.co_filename}  # type: ignore[union-attr]


def partitions(topic: str, count: int) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(count)}


async def shared_out(
    members: Sequence[GroupMember], wanted: Set[TopicPartition], timeout: float = 60.0
) -> None:
    """Wait until the members have all of ``wanted`` among them, each of it once, and are at rest."""

    def done() -> bool:
        held = [partition for member in members for partition in member.assignment]
        rest = all(member.group_metadata is not None for member in members)
        return rest and len(held) == len(wanted) and set(held) == wanted

    await until(done, timeout)
