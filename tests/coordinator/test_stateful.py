"""Random members on a virtual clock: no request waits forever, and all members of a generation agree."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.harness import DELAY_MS, FakePartition, Waiting, World
from tests.support.depth import examples

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.states import GroupState
from ottla_protocol.errors import ErrorCode as Code

SESSION_MS = 10_000
REBALANCE_MS = 20_000
COMMIT_TIMEOUT_MS = 5_000
# What a join may wait for: the first delay, the members' rebalance timeout, and a write.
LONGEST_WAIT = (DELAY_MS + REBALANCE_MS + COMMIT_TIMEOUT_MS) / 1000 + 1
PROTOCOLS = [
    (("range", b"1"),),
    (("range", b"2"), ("sticky", b"2")),
    (("sticky", b"3"), ("range", b"3")),
]
INSTANCES = [None, None, "static-a", "static-b"]


class Client:
    """A member as its client sees it."""

    def __init__(self, instance: str | None) -> None:
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.others: list[str] = []
        self.joining: Waiting | None = None
        self.syncing: Waiting | None = None


class Groups(RuleBasedStateMachine):
    @initialize(hold=st.booleans())
    def begin(self, hold: bool) -> None:
        # Expiry has tests of its own; here a group whose generations go up has to stay the same one.
        self.world = World(FakePartition(), retention_check_interval_ms=1_000_000_000)
        self.world.partition.clock = self.world.clock
        self.world.partition.hold = hold
        self.clients: list[Client] = []
        self.waiting: list[tuple[float, Client, Waiting]] = []
        self.leaders: dict[int, set[str]] = {}
        self.protocols: dict[int, str | None] = {}
        self.generation = 0
        self.committed = 0
        self.offered = 0
        self.commits: list[tuple[int, list[Code]]] = []

    # Clients

    @rule(
        instance=st.sampled_from(INSTANCES),
        version=st.sampled_from([3, 5, 9]),
        protocols=st.sampled_from(PROTOCOLS),
    )
    def join(self, instance: str | None, version: int, protocols: Any) -> None:
        client = Client(instance if version >= 5 else None)
        self.clients.append(client)
        self.send_join(client, version, protocols)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), protocols=st.sampled_from(PROTOCOLS))
    def rejoin(self, data: st.DataObject, protocols: Any) -> None:
        self.send_join(data.draw(st.sampled_from(self.clients)), 9, protocols)

    @precondition(lambda self: self.clients)
    @rule(protocols=st.sampled_from(PROTOCOLS))
    def all_rejoin(self, protocols: Any) -> None:
        for client in list(self.clients):
            self.send_join(client, 9, protocols)

    def send_join(self, client: Client, version: int, protocols: Any) -> None:
        client.joining = self.world.join(
            client.member_id,
            instance=client.instance,
            version=version,
            protocols=protocols,
            session_ms=SESSION_MS,
            rebalance_ms=REBALANCE_MS,
        )
        self.waiting.append((self.world.clock.time, client, client.joining))
        self.hear()
        if client.joining is not None and client.joining.done:
            raise AssertionError("an answer that was not heard")

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.send_sync(data.draw(st.sampled_from(self.clients)))

    @precondition(lambda self: self.clients)
    @rule()
    def all_sync(self) -> None:
        for client in list(self.clients):
            self.send_sync(client)

    def send_sync(self, client: Client) -> None:
        # All bring an assignment; only the leader's may be accepted.
        shares = {
            name: f"{client.generation} {client.member_id}".encode()
            for name in [*client.others, client.member_id]
        }
        client.syncing = self.world.sync(
            client.member_id, client.generation, shares, instance=client.instance
        )
        self.waiting.append((self.world.clock.time, client, client.syncing))
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def heartbeat(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        code = self.world.heartbeat(client.member_id, client.generation, instance=client.instance)
        if code is Code.UNKNOWN_MEMBER_ID:
            client.member_id = ""

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.world.leave(client.member_id, instance=client.instance)
        self.hear()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def vanish(self, data: st.DataObject) -> None:
        self.clients.remove(data.draw(st.sampled_from(self.clients)))

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from([*self.clients, Client(None)]))
        self.offered += 1
        self.world.commit(
            self.offered, member_id=client.member_id, generation=client.generation, instance=client.instance
        )
        self.commits.append((self.offered, self.world.last_commit))

    # Other events

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 9.0, 21.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.world.clock.advance(seconds)
        self.hear()

    @rule(hold=st.booleans())
    def replicas(self, hold: bool) -> None:
        self.world.partition.hold = hold
        self.world.partition.release()
        self.hear()

    @rule(refuse=st.sampled_from([None, None, Code.NOT_ENOUGH_REPLICAS, Code.MESSAGE_TOO_LARGE]))
    def log(self, refuse: Code | None) -> None:
        self.world.partition.refuse = refuse

    @rule()
    def leadership_goes_and_comes_back(self) -> None:
        world = self.world
        world.coordinator.on_stop("__consumer_offsets", 0)
        world.partition.release(Code.NOT_LEADER_OR_FOLLOWER)
        assert all(waiting.done for _, _, waiting in self.waiting)
        self.hear()
        world.coordinator.on_leader(world.partition)
        world.clock.run_due()
        # Generations whose assignment did not reach the log are forgotten, and their numbers used again.
        self.generation = 0
        self.protocols.clear()

    # Answers

    def hear(self) -> None:
        for entry in list(self.waiting):
            _, client, waiting = entry
            if not waiting.done:
                continue
            self.waiting.remove(entry)
            if waiting is client.joining:
                client.joining = None
                self.hear_join(client, waiting)
            elif waiting is client.syncing:
                client.syncing = None
                self.hear_sync(client, waiting)

    def hear_join(self, client: Client, waiting: Waiting) -> None:
        answer = waiting.answer
        if waiting.code is Code.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif waiting.code in (Code.UNKNOWN_MEMBER_ID, Code.FENCED_INSTANCE_ID):
            client.member_id = ""
        elif waiting.code is Code.NONE:
            client.member_id, client.generation = answer.member_id, answer.generation_id
            client.leader, client.others = answer.leader, [member.member_id for member in answer.members]
            assert (
                self.protocols.setdefault(answer.generation_id, answer.protocol_name) == answer.protocol_name
            )
            if answer.members:
                assert answer.leader == answer.member_id
                assert answer.member_id in client.others
                self.leaders.setdefault(answer.generation_id, set()).add(answer.member_id)

    def hear_sync(self, client: Client, waiting: Waiting) -> None:
        if waiting.code is Code.NONE and waiting.answer.assignment:
            generation, leader = waiting.answer.assignment.decode().split(" ")
            assert leader in self.leaders[int(generation)]
            assert int(generation) == client.generation

    # Invariants

    @property
    def group(self) -> Group | None:
        return self.world.coordinator._groups.get("g")

    @invariant()
    def no_request_waits_too_long(self) -> None:
        for since, _, waiting in self.waiting:
            assert waiting.done or self.world.clock.time - since <= LONGEST_WAIT

    @invariant()
    def the_group_is_in_order(self) -> None:
        group = self.group
        if group is None:
            return
        members = group.members
        assert group.awaiting_join == sum(member.join_reply is not None for member in members.values())
        for name, supporters in group.supported.items():
            assert supporters == sum(name in dict(member.protocols) for member in members.values())
        assert (group.leader_id in members) if members else group.leader_id is None
        assert set(group.static_members.values()) == {m.member_id for m in members.values() if m.instance_id}
        assert group.pending_sync <= set(members)
        assert not set(group.pending) & set(members)
        assert (group.join_timer is not None) == (group.state is GroupState.PREPARING)
        assert not members if group.state is GroupState.EMPTY else True
        if group.state is GroupState.COMPLETING:
            assert group.sync_timer is not None or not group.pending_sync
        for member in members.values():
            assert member.is_waiting or member.deadline != float("inf"), "a member that cannot be lost"
            assert group.state is GroupState.COMPLETING or member.sync_reply is None

    @invariant()
    def generations_go_up(self) -> None:
        if self.group is not None:
            assert self.group.generation >= self.generation
            self.generation = self.group.generation

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        for offset, codes in self.commits:
            if codes == [Code.NONE]:
                self.committed = max(self.committed, offset)
        self.commits = [(offset, codes) for offset, codes in self.commits if not codes]
        if self.committed:
            assert self.world.offset() >= self.committed

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        # All clients fall silent: every request is answered, all members time out, and the log agrees.
        world = self.world
        world.partition.refuse, world.partition.hold = None, False
        world.partition.release()
        world.clock.advance(60)
        assert all(waiting.done for _, _, waiting in self.waiting)
        world.clock.advance(600)
        group = self.group
        assert group is None or group.state is GroupState.EMPTY
        offsets = [
            int.from_bytes(record.value[2:10], "big")
            for record in world.partition.records()
            if record.key is not None and record.key[:2] == b"\0\1" and record.value is not None
        ]
        assert offsets == sorted(offsets)
        again = world.restart()
        # A commit that timed out was refused, and is in the log all the same: what it said may come up again.
        assert world.offset() <= again.offset() == (offsets[-1] if offsets else -1)


TestGroups = Groups.TestCase
TestGroups.settings = settings(
    max_examples=examples(25),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
