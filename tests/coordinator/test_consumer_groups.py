"""Groups of the consumer protocol (KIP-848): heartbeats, fencing, static members, offsets, failover."""

from __future__ import annotations

import pytest
from tests.coordinator.consumer_world import SESSION_MS, Client, ConsumerWorld, FakeTopics, settle

from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES
from ottla_broker.coordinator.group.modern.settings import GroupTimes
from ottla_broker.coordinator.group.modern.states import MemberState
from ottla_protocol.errors import ErrorCode

T = b"t".ljust(16, b"_")


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(FakeTopics(t=6, u=3))


def state(world: ConsumerWorld) -> str:
    return world.coordinator.describe_consumer_group("g").state


def test_one_member_gets_all_partitions(world: ConsumerWorld) -> None:
    client = Client(world, "a")
    answer = client.heartbeat()
    assert (answer.member_id, answer.epoch, answer.interval_ms) == ("a", 1, 5_000)
    assert answer.assignment == {T: frozenset(range(6))}
    assert state(world) == "Stable"
    # What hasn't changed isn't repeated in the answer to a short heartbeat.
    short = world.consumer_heartbeat(Heartbeat("a", 1, client_id="client", client_host="/127.0.0.1"))
    assert short.error is None
    assert short.assignment is None


def test_a_second_member_waits_until_the_first_has_given_up_its_half(world: ConsumerWorld) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    first.heartbeat()
    assert second.heartbeat().assignment == {}
    assert state(world) == "Reconciling"
    kept = first.heartbeat().assignment
    assert kept is not None
    assert world.group().membership.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert second.heartbeat().assignment == {}
    first.heartbeat()  # names only what it still has: the rest is free
    assert first.epoch == 2
    second.heartbeat()
    assert len(second.partitions) == len(first.partitions) == 3
    assert not first.partitions & second.partitions
    assert state(world) == "Stable"


def test_new_partitions_move_none(world: ConsumerWorld) -> None:
    clients = [Client(world, name) for name in "abc"]
    settle(clients)
    before = {client.member_id: client.partitions for client in clients}
    world.topics.put("t", 60)
    settle(clients)
    for client in clients:
        assert client.partitions > before[client.member_id]
        assert len(client.partitions) == 20


def test_a_topic_that_appears_later_is_assigned(world: ConsumerWorld) -> None:
    client = Client(world, "a", topics=("later",))
    client.heartbeat()
    assert client.partitions == set()
    world.topics.put("later", 2)
    settle([client])
    assert len(client.partitions) == 2
    world.topics.remove("later")
    settle([client])
    assert client.partitions == set()


def test_a_member_that_is_not_heard_of_is_removed(world: ConsumerWorld) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    settle([first, second])
    for _ in range(4):
        world.clock.advance(SESSION_MS / 4000)
        first.heartbeat()
    settle([first])
    assert len(first.partitions) == 6
    second.heartbeat(expect=ErrorCode.UNKNOWN_MEMBER_ID)


def test_sessions_of_a_group_by_its_own_config() -> None:
    world = ConsumerWorld(FakeTopics(t=1), times={"g": GroupTimes(10_000, 1_000)})
    client = Client(world, "a")
    assert client.heartbeat().interval_ms == 1_000
    world.clock.advance(10.5)
    client.heartbeat(expect=ErrorCode.UNKNOWN_MEMBER_ID)


def test_few_members_heartbeat_more_often_unless_their_interval_is_set() -> None:
    for members, interval in ((1, 2_000), (400, 2_000), (600, 3_000), (1_000, 5_000), (9_000, 5_000)):
        assert GroupTimes(45_000, 5_000, may_be_quicker=True).interval_for(members) == interval
        assert GroupTimes(45_000, 5_000).interval_for(members) == 5_000
    assert GroupTimes(45_000, 500, may_be_quicker=True).interval_for(1) == 500


def test_the_interval_depends_on_the_members_of_all_groups() -> None:
    quick = GroupTimes(45_000, 5_000, may_be_quicker=True)
    world = ConsumerWorld(FakeTopics(t=1), times={"g": quick, "h": quick})
    client = Client(world, "a")
    assert client.heartbeat().interval_ms == 2_000
    others = [
        Heartbeat(f"b{number}", 0, topics=["t"], owned={}, rebalance_timeout_ms=300_000, client_host="/h")
        for number in range(500)
    ]
    for request in others:
        world.consumer_heartbeat(request, "h")
    assert client.heartbeat().interval_ms == 2_505
    for request in others[:99]:
        world.consumer_heartbeat(request._replace(epoch=-1), "h")
    assert client.heartbeat().interval_ms == 2_010
    world.clock.advance(20)
    client.heartbeat()
    world.clock.advance(30)  # Those in the other group have missed their sessions.
    assert client.heartbeat().interval_ms == 2_000


def test_a_member_that_gives_up_nothing_is_removed_after_its_rebalance_timeout(world: ConsumerWorld) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    first.heartbeat()
    second.heartbeat()
    first.heartbeat()
    stubborn = Heartbeat("a", 1, owned={T: frozenset(range(6))}, client_id="client", client_host="/127.0.0.1")
    for _ in range(7):
        assert world.consumer_heartbeat(stubborn).error is None
        second.heartbeat()
        world.clock.advance(9)
    answer = world.consumer_heartbeat(stubborn)
    assert answer.error is not None
    assert answer.error.code is ErrorCode.UNKNOWN_MEMBER_ID
    settle([second])
    assert len(second.partitions) == 6


def test_epochs_fence(world: ConsumerWorld) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    settle([first, second])
    assert first.epoch == 2
    for epoch in (1, 3):
        # Epoch 1 was the last one, but the member names a partition that isn't its own.
        answer = world.consumer_heartbeat(Heartbeat("a", epoch, owned={T: frozenset(range(6))}))
        assert answer.error is not None
        assert answer.error.code is ErrorCode.FENCED_MEMBER_EPOCH
    unknown = world.consumer_heartbeat(Heartbeat("z", 1))
    assert unknown.error is not None
    assert unknown.error.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_lost_answer_is_repeated(world: ConsumerWorld) -> None:
    first = Client(world, "a")
    lost = Client(world, "a")
    first.heartbeat()
    lost.heartbeat()
    assert lost.owned == first.owned


def test_a_fenced_member_joins_again_without_partitions(world: ConsumerWorld) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    settle([first, second])
    first.epoch = 0
    first.heartbeat()
    settle([first, second])
    assert len(first.partitions) == len(second.partitions) == 3


@pytest.mark.parametrize(
    ("request_", "code", "message"),
    [
        (Heartbeat("", 0, rebalance_timeout_ms=1, topics=["t"], owned={}, needs_member_id=True),
         ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        (Heartbeat("a", 0, topics=["t"], owned={}), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be"),
        (Heartbeat("a", 0, rebalance_timeout_ms=1, topics=["t"]), ErrorCode.INVALID_REQUEST, "TopicPartitions"),
        (Heartbeat("a", 0, rebalance_timeout_ms=1, owned={}), ErrorCode.INVALID_REQUEST, "SubscribedTopicNames"),
        (Heartbeat("a", -3), ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid"),
        (Heartbeat("a", -2), ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        (Heartbeat("a", 1, instance_id=" "), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        (Heartbeat("a", 1, rack_id=""), ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        (Heartbeat("a", 1, assignor="best"), ErrorCode.UNSUPPORTED_ASSIGNOR, "Supported assignors: uniform, range."),
        (Heartbeat("a", 0, rebalance_timeout_ms=1, regex="(?=x)", owned={}),
         ErrorCode.INVALID_REGULAR_EXPRESSION, "(?="),
        (Heartbeat("a", 0, rebalance_timeout_ms=1, regex="((a{100}){100}){100}", owned={}),
         ErrorCode.INVALID_REGULAR_EXPRESSION, "{100}"),
        (Heartbeat("a", 0, rebalance_timeout_ms=1, regex="x" * 5000, owned={}),
         ErrorCode.INVALID_REGULAR_EXPRESSION, "5000 characters"),
        (Heartbeat("a", 1), ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
    ],
)  # fmt: skip
def test_bad_requests(world: ConsumerWorld, request_: Heartbeat, code: ErrorCode, message: str) -> None:
    answer = world.consumer_heartbeat(request_)
    assert answer.error is not None
    assert answer.error.code is code
    assert message in (answer.error.message or "")


def test_a_group_is_full() -> None:
    world = ConsumerWorld(FakeTopics(t=1), max_size=1)
    Client(world, "a").heartbeat()
    Client(world, "b").heartbeat(expect=ErrorCode.GROUP_MAX_SIZE_REACHED)
    Client(world, "a").heartbeat()


def test_the_members_of_a_group_name_a_bounded_number_of_topics(world: ConsumerWorld) -> None:
    """Whatever they name is looked up at each change."""
    half = tuple(f"a{number}" for number in range(MOST_NAMES // 2))
    Client(world, "a", half).heartbeat()
    Client(world, "b", (*half, "t")).heartbeat()
    more = tuple(f"b{number}" for number in range(MOST_NAMES // 2))
    Client(world, "c", more).heartbeat(expect=ErrorCode.GROUP_MAX_SIZE_REACHED)
    Client(world, "c", more[1:]).heartbeat()


# Static members


def test_a_static_member_keeps_its_partitions_over_a_restart(world: ConsumerWorld) -> None:
    first, other = Client(world, "a", instance="one"), Client(world, "b")
    settle([first, other])
    had, epoch = first.partitions, world.group().membership.epoch
    Client(world, "c", instance="one").heartbeat(expect=ErrorCode.UNRELEASED_INSTANCE_ID)
    first.leave(for_a_while=True)
    again = Client(world, "c", instance="one")
    settle([again, other])
    assert again.partitions == had
    assert world.group().membership.epoch == epoch  # nothing moved
    old = world.consumer_heartbeat(Heartbeat("a", epoch, instance_id="one"))
    assert old.error is not None
    assert old.error.code is ErrorCode.FENCED_INSTANCE_ID
    assert "fenced by member c" in (old.error.message or "")


def test_a_static_member_that_stays_away_is_removed(world: ConsumerWorld) -> None:
    first, other = Client(world, "a", instance="one"), Client(world, "b")
    settle([first, other])
    first.leave(for_a_while=True)
    for _ in range(4):
        world.clock.advance(SESSION_MS / 4000 + 0.1)
        other.heartbeat()
    settle([other])
    assert len(other.partitions) == 6


# Regular expressions


def test_topics_by_regular_expression(world: ConsumerWorld) -> None:
    client = Client(world, "a", topics=None, regex="[tv].*")
    settle([client])
    assert {topic for topic, _ in client.partitions} == {T}
    world.topics.put("v1", 2)
    settle([client])
    assert len(client.partitions) == 8
    client.regex, client.topics = "", ("u",)
    settle([client])
    assert len(client.partitions) == 3
    assert world.group().membership.regexes == {}


# Offsets


def test_members_get_the_partitions_in_their_rack() -> None:
    topics = FakeTopics()
    topics.put("t", 4, [["a"], ["b"], ["a"], ["b"]])
    world = ConsumerWorld(topics)
    members = [Client(world, "one", rack="b"), Client(world, "two", rack="a")]
    settle(members)
    assert [{index for _, index in member.partitions} for member in members] == [{1, 3}, {0, 2}]


def test_offsets_are_fenced_by_epoch(world: ConsumerWorld) -> None:
    first, second = Client(world, "a"), Client(world, "b")
    settle([first, second])

    def commit(member_id: str, epoch: int, version: int = 9) -> list[int]:
        from ottla_broker.coordinator.group.offsets import Committed

        answers: list[int] = []
        world.coordinator.commit(
            "g", Sender(member_id, None, epoch), [("t", 0, Committed(7, -1, "", 0))], answers.extend, version
        )
        return answers

    assert commit("a", 2) == [ErrorCode.NONE]
    assert commit("a", 1) == [ErrorCode.STALE_MEMBER_EPOCH]
    assert commit("z", 2) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit("a", 2, version=8) == [ErrorCode.UNSUPPORTED_VERSION]
    assert commit("", -1) == [ErrorCode.UNKNOWN_MEMBER_ID]
    fetch = world.coordinator.fetch
    assert fetch("g", [("t", [0])], False, "a", 2)[1][0][1][0].offset == 7
    assert fetch("g", [("t", [0])], False)[1][0][1][0].offset == 7
    assert fetch("g", [("t", [0])], False, "a", 1)[0] == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("g", [("t", [0])], False, "z", 2)[0] == ErrorCode.UNKNOWN_MEMBER_ID
    answers: dict[str, int] = {}
    world.coordinator.delete(["g"], answers.update)
    assert answers == {"g": ErrorCode.NON_EMPTY_GROUP}
    deleted: list[object] = []
    world.coordinator.delete_offsets("g", [("t", 0)], lambda code, each: deleted.append((code, each)))
    assert deleted == [(0, {("t", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})]
    first.leave()
    second.leave()
    assert state(world) == "Empty"
    world.coordinator.delete(["g"], answers.update)
    assert answers == {"g": ErrorCode.NONE}
    assert world.listed([], [])[1] == []
    assert world.failover().listed([], [])[1] == []


def test_listing_and_describing(world: ConsumerWorld) -> None:
    client = Client(world, "a", assignor="range")
    client.heartbeat()
    for types, found in (([], 1), (["consumer"], 1), (["classic"], 0)):
        assert len(world.listed([], types)[1]) == found
    assert world.listed(["stable"], [])[1][0].group_type == "consumer"
    described = world.coordinator.describe_consumer_group("g")
    assert (described.epoch, described.assignment_epoch, described.assignor) == (1, 1, "range")
    assert next(iter(described.members)).assigned == [(T, "t", list(range(6)))]
    assert world.coordinator.describe("g").state == "Dead"


# Failover


def test_a_failover_in_the_middle_of_a_rebalance(world: ConsumerWorld) -> None:
    clients = [Client(world, name) for name in "ab"]
    clients[0].heartbeat()
    clients[1].heartbeat()
    clients[0].heartbeat()
    after = world.failover()
    assert after.group().membership.__dict__ == world.group().membership.__dict__
    for client in clients:
        client.world = after
    settle(clients)
    assert [len(client.partitions) for client in clients] == [3, 3]


def test_an_answer_waits_for_the_log(world: ConsumerWorld) -> None:
    world.partition.hold = True
    answers: list[object] = []
    request = Heartbeat("a", 0, rebalance_timeout_ms=1000, topics=["t"], owned={})
    world.coordinator.consumer_heartbeat("g", request, answers.append)
    assert not answers
    world.partition.hold = False
    world.partition.release()
    assert len(answers) == 1


def test_a_refused_write_changes_nothing(world: ConsumerWorld) -> None:
    client = Client(world, "a")
    client.heartbeat()
    before = world.group().membership
    world.partition.refuse = ErrorCode.NOT_LEADER_OR_FOLLOWER
    Client(world, "b").heartbeat(expect=ErrorCode.NOT_COORDINATOR)
    assert world.group().membership is before
    world.clock.advance(SESSION_MS / 1000 + 1)  # the removal of the first member is refused, too
    world.partition.refuse = None
    world.clock.advance(6)
    assert state(world) == "Empty"
