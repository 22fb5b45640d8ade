"""Share groups in a cluster: what members get while leaders and share coordinators move and requests are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.coordinator.share_cluster import KEY, ShareCluster, state_of
from tests.support.depth import examples

from ottla_broker.config.group_configs import ShareSettings
from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.share_partition import SharePartition
from ottla_broker.coordinator.share.state_batches import ShareState, StateChange
from ottla_broker.coordinator.share.states import Acknowledge, RecordState
from ottla_protocol.errors import ErrorCode, KafkaError

ORDERED = ShareSettings(key_ordered=True, offset_reset="earliest", most_deliveries=10_000)
MEMBERS = ["m0", "m1"]


class Members:
    """Two members of the group, and what has to hold for them.

    Attributes:
        done: accepted, and the member knows.
        tried: accepted, but whether that is kept isn't known.
        ever: accepted at least once.
    """

    def __init__(self, cluster: ShareCluster, keys: str) -> None:
        self.cluster = cluster
        self.keys = keys
        self.done: set[int] = set()
        self.tried: set[int] = set()
        self.ever: set[int] = set()
        # The share partitions of the leaders, whom the members may still take for leaders.
        self.shares: list[SharePartition] = []
        cluster.log.append([key.encode() for key in keys])

    def fetch(self, member: str, most: int) -> list[int]:
        got = self.cluster.fetch(member, most)
        share = self.cluster.share
        if share is not None and share not in self.shares:
            self.shares.append(share)
        for offset in got:
            assert offset not in self.done, "an acknowledged record is handed out again"
            self.tried.discard(offset)
        for offset in got:
            before = {each for each in range(offset) if self.keys[each] == self.keys[offset]} - set(got)
            assert before <= self.done | self.tried, "a record before an earlier one of its key"
        return got

    def acknowledge(self, member: str, number: int, kind: Acknowledge, earlier: bool = False) -> None:
        share = self.shares[0] if earlier and self.shares else self.cluster.share
        if share is None:
            return
        offsets = self.cluster.held(share, member)[:number]
        if not offsets:
            return
        accepts = kind is Acknowledge.ACCEPT
        if accepts:
            self.tried.update(offsets)

        def reply(error: KafkaError | None) -> None:
            if accepts and error is None:
                self.done.update(offsets)
                self.ever.update(offsets)
            elif accepts and error is not None and error.code is ErrorCode.INVALID_RECORD_STATE:
                self.tried.difference_update(offsets)

        if accepts:
            self.ever.update(offsets)
        self.cluster.acknowledge(share, member, offsets, kind, reply)


Step = tuple[str, int, int, int]
STEPS = [
    "fetch",
    "fetch",
    "accept",
    "accept",
    "accept",
    "accept at the earlier leader",
    "release",
    "bad network",
    "late requests",
    "leader",
    "coordinator",
    "tell",
    "hold",
    "commit",
    "wait",
]
FATES = ["served", "lost", "unanswered", "late"]
steps = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(1, 5), st.integers(0, 3)), max_size=50
)


def do(cluster: ShareCluster, members: Members, step: Step) -> None:
    what, number, count, other = step
    member = MEMBERS[number % 2]
    network = cluster.brokers[cluster.leader].network
    if what == "fetch":
        members.fetch(member, count)
    elif what.startswith("accept"):
        members.acknowledge(member, count, Acknowledge.ACCEPT, earlier=what != "accept")
    elif what == "release":
        members.acknowledge(member, count, Acknowledge.RELEASE)
    elif what == "bad network":
        network.fates += [FATES[other]] * (count % 3 + 1)
    elif what == "late requests":
        for broker in cluster.brokers:
            late, broker.network.late = broker.network.late, []
            for arrive in late:
                arrive()
    elif what == "leader":
        cluster.move_leader(number)
    elif what == "coordinator":
        cluster.move_coordinator(number, count % 3, other)
    elif what == "tell":
        cluster.tell(number)
    elif what == "hold":
        cluster.state.commits = False
    elif what == "commit":
        cluster.commit()
    elif what == "wait":
        cluster.clock.advance(count)
    cluster.settle()


def finish(cluster: ShareCluster, members: Members) -> None:
    """All is well again: each record that is left comes to a member that accepts it."""
    for broker in cluster.brokers:
        broker.network.fates.clear()
    cluster.tell_all()
    cluster.commit()
    cluster.clock.advance(100)
    for _ in range(4 * len(members.keys)):
        members.fetch("m0", 5)
        members.acknowledge("m0", 5, Acknowledge.ACCEPT)
        cluster.clock.advance(1)
    everything = set(range(len(members.keys)))
    assert members.ever == everything
    assert members.done | members.tried == everything
    found = state_of(cluster)
    assert isinstance(found, ShareState)
    assert found.start == len(members.keys)


@settings(max_examples=examples(60), deadline=None)
@given(st.text("abc", min_size=1, max_size=12), steps)
def test_acknowledged_records_stay_so_and_keys_in_order(keys: str, actions: Sequence[Step]) -> None:
    async def run() -> None:
        cluster = await ShareCluster.open(ORDERED)
        members = Members(cluster, keys)
        for step in actions:
            do(cluster, members, step)
        finish(cluster, members)
        for broker in cluster.brokers:
            await broker.persister.close()

    asyncio.run(run())


async def test_the_next_leader_and_the_next_coordinator_know_what_is_done() -> None:
    cluster = await ShareCluster.open(ORDERED)
    members = Members(cluster, "aaaa")
    assert members.fetch("m0", 4) == [0, 1, 2, 3]
    members.acknowledge("m0", 1, Acknowledge.ACCEPT)
    cluster.settle()
    assert members.done == {0}
    cluster.move_coordinator(2, 0, 0)
    cluster.commit()
    cluster.move_leader(1)
    cluster.settle()
    # The new leader takes itself for the coordinator, as long as it doesn't know better.
    assert members.fetch("m1", 4) == []
    cluster.tell_all()
    cluster.clock.advance(1)
    assert members.fetch("m1", 4) == [1, 2, 3]


async def test_an_earlier_leader_is_fenced() -> None:
    cluster = await ShareCluster.open(ORDERED)
    members = Members(cluster, "aa")
    assert members.fetch("m0", 2) == [0, 1]
    earlier = cluster.share
    assert earlier is not None
    cluster.move_leader(1)
    assert members.fetch("m1", 2) == [0, 1]
    answers: list[KafkaError | None] = []
    cluster.acknowledge(earlier, "m0", [0], Acknowledge.ACCEPT, answers.append)
    cluster.settle()
    assert [None if each is None else each.code for each in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_what_is_not_committed_is_not_read() -> None:
    cluster = await ShareCluster.open(ORDERED)
    coordinator = cluster.brokers[cluster.coordinator].coordinator
    answers: list[object] = []
    coordinator.read(KEY, 0, answers.append)
    cluster.state.commits = False
    done = [Batch(0, 0, RecordState.ACKNOWLEDGED, 1)]
    coordinator.write(KEY, StateChange(1, 0, 0, 0, done), answers.append)
    coordinator.read(KEY, 0, answers.append)
    assert len(answers) == 1
    # The next coordinator has it, and doesn't know whether others have.
    cluster.move_coordinator(0, 1, 0)
    cluster.settle()
    answers.clear()
    cluster.brokers[0].coordinator.read(KEY, 0, answers.append)
    assert not answers
    cluster.commit()
    cluster.settle()
    assert answers == [ShareState(1, 0, 0, done, 0)]


async def test_requests_by_older_connections_are_late() -> None:
    cluster = await ShareCluster.open(ORDERED)
    coordinator = cluster.brokers[cluster.coordinator].coordinator
    now = cluster.clock.monotonic()
    answers: list[object] = []
    coordinator.read(KEY, 3, answers.append)
    assert not coordinator.is_late(KEY, 3, now + 1)
    assert not coordinator.is_late(KEY, 3, now + 2)
    assert coordinator.is_late(KEY, 3, now + 1)
    # Another leader has connections of its own; and earlier ones are refused for their epoch.
    assert not coordinator.is_late(KEY, 2, now)
    assert not coordinator.is_late(KEY, 4, now)
    # What was sent before this broker became the coordinator isn't meant for it.
    assert coordinator.is_late(KEY, 4, now - 1)
    assert coordinator.is_late(KEY, None, now - 1)
    assert not coordinator.is_late(KEY, None, now)
    # Where there is nothing to say, the request is refused for that.
    assert not cluster.brokers[2].coordinator.is_late(KEY, 3, 0.0)
