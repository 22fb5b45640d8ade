"""Members that join, leave, vanish and change topics in any order: no partition ever has two owners."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.client.group.conftest import NewMember, Notes, TestMember, partitions, shared_out

from ottla_client.types import TopicPartition

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

ROUNDS = int(os.environ.get("OTTLA_FAULT_ROUNDS", "12"))
SEED = int(os.environ.get("OTTLA_FAULT_SEED", "429"))


class Watched(Notes):
    """Checks that no other live member has the partitions assigned here."""

    def __init__(self, all_notes: list[Watched]) -> None:
        super().__init__()
        self.doubled: list[frozenset[TopicPartition]] = []

        async def during(what: str, changed: frozenset[TopicPartition]) -> None:
            if what == "assigned":
                self.doubled += [
                    both for other in all_notes if other is not self and (both := other.held & changed)
                ]
            elif what == "revoked":
                self.held |= changed  # until the callback is done
                await asyncio.sleep(0.01)
                self.held -= changed

        self.during = during


@pytest.mark.parametrize(
    "offers",
    [
        [["cooperative-sticky"]],
        [["range", "cooperative-sticky"], ["range"], ["roundrobin", "range"]],
        [["range", "cooperative-sticky"], ["cooperative-sticky"]],
    ],
    ids=["cooperative", "eager", "both"],
)
async def test_turmoil(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    new_member: NewMember,
    offers: list[list[str]],
) -> None:
    chance = random.Random(f"{SEED} {offers}")
    one, two, group = new_topic(5), new_topic(4), new_name("group")
    members: list[TestMember] = []
    there: list[Watched] = []

    async def come() -> None:
        notes = Watched(there)
        there.append(notes)
        topics = chance.choice([[one, two], [one, two], [one]])
        members.append(
            await new_member(
                broker.bootstrap, group, topics, chance.choice(offers), notes=notes, session_timeout_ms=1_000
            )
        )

    async def go() -> None:
        member = members.pop(chance.randrange(len(members)))
        await member.leave()
        there.remove(member.notes)  # type: ignore[arg-type]

    async def vanish() -> None:
        member = members.pop(chance.randrange(len(members)))
        await member.vanish()
        there.remove(member.notes)  # type: ignore[arg-type]

    async def change() -> None:
        chance.choice(members).subscribe(chance.choice([[one, two], [two], [one]]))

    await come()
    for _ in range(ROUNDS):
        act = chance.choice([come, come, change, change] + [go, vanish] * (len(members) > 2))
        await act()
        await asyncio.sleep(chance.choice([0, 0, 0.05, 0.3]))
    for member in members:
        member.subscribe([one, two])
    await shared_out(members, partitions(one, 5) | partitions(two, 4))
    for member in members:
        member.polled()
        assert member.notes.held == member.assignment
        assert not member.notes.doubled  # type: ignore[attr-defined]
