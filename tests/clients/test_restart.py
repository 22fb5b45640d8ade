"""Clients survive a restart, and so do records, committed offsets, groups and topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.clients.kits import KITS, Kit, Sent
from tests.clients.members import MEMBERS, shared_out
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_groups_and_records_outlive_a_restart(own_broker: Callable[..., BrokerProcess], kill: bool) -> None:
    broker = own_broker()
    topics = {kit.name: f"topic-{kit.name}" for kit in KITS}
    sent: dict[str, list[bytes]] = {name: [] for name in topics}

    def produce(kit: Kit, start: int) -> None:
        records = [Sent(b"%d" % i, b"v", partition=i % 2) for i in range(start, start + 50)]
        kit.produce(broker, topics[kit.name], records, idempotent=True)
        sent[kit.name] += [record.key or b"" for record in records]

    for kit in KITS:
        create_topic(broker, topics[kit.name], 2, retention_ms=3_600_000)
        produce(kit, 0)
    members = {
        name: MEMBERS[name](broker.bootstrap, f"group-{name}", [topic]) for name, topic in topics.items()
    }
    try:
        for name, member in members.items():
            shared_out([member], topics[name], 2)
            wait_for(lambda member=member: len(member.records) == 50, "what was produced before")
            member.commit_position()
        if kill:
            broker.kill()
        else:
            assert broker.stop() == 0
        broker.start()
        for kit in KITS:
            produce(kit, 50)
        for name, member in members.items():
            wait_for(
                lambda member=member: len(member.records) >= 100, f"{name} to go on after the restart", 40
            )
            found = Counter(got.key for _, got in member.records)
            assert found == Counter(sent[name]), name
            wait_for(
                lambda member=member, name=name: commits(member, topics[name]), f"{name} to commit again", 30
            )
    finally:
        for member in members.values():
            member.leave()


def commits(member: object, topic: str) -> bool:
    """Commit, with retries: a rebalance after the restart may interrupt the first attempt."""
    try:
        member.commit_position()  # type: ignore[attr-defined]
    except AssertionError:
        raise
    except Exception:
        return False
    return member.committed([(topic, 0), (topic, 1)]) == {(topic, 0): 50, (topic, 1): 50}  # type: ignore[attr-defined]
