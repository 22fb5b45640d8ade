"""Committed offsets: writing, reading, expiry, deletion."""

from __future__ import annotations

import pytest
from tests.coordinator.harness import World
from tests.support.clock import WALL_START_MS

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.offsets import Committed
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.records.formats import iter_headers

SUBSCRIBED_TO_T = (("range", b"\x00\x03\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"),)
HOUR = 3600.0
DAY = 24 * HOUR


@pytest.fixture
def world() -> World:
    return World()


# Committing


def test_a_simple_consumer_commits_and_fetches(world: World) -> None:
    assert world.offset() == -1
    assert world.commit(7, metadata="note", leader_epoch=3) == [Code.NONE]
    error, found = world.coordinator.fetch("g", [("t", [0, 1])], False)
    assert error == 0
    assert found == [("t", [(0, 7, 3, "note", 0), (1, -1, -1, "", 0)])]
    assert world.state() == "Empty"


def test_a_fetch_that_names_no_partitions_gets_all(world: World) -> None:
    world.commit(1, partition=1)
    world.commit(2, partition=2)
    world.commit(3, topic="u")
    _, found = world.coordinator.fetch("g", None, False)
    assert sorted((name, sorted(p.partition for p in ps)) for name, ps in found) == [
        ("t", [1, 2]),
        ("u", [0]),
    ]
    assert world.coordinator.fetch("unknown", None, False) == (0, [])


def test_the_group_without_a_name_can_commit(world: World) -> None:
    assert world.commit(5, group="") == [Code.NONE]
    assert world.offset(group="") == 5


def test_a_commit_takes_effect_and_is_answered_once_the_log_has_it(world: World) -> None:
    world.commit(1)
    world.partition.hold = True
    assert world.commit(2) is None
    assert world.offset() == 1
    _, [(_, [one])] = world.coordinator.fetch("g", [("t", [0])], True)
    assert one.error == codes.UNSTABLE_OFFSET_COMMIT
    world.partition.release()
    assert world.last_commit == [Code.NONE]
    assert world.offset(require_stable=True) == 2


def _commit(world: World, answers: list[int], offset: int, metadata: str = "") -> None:
    committed = Committed(offset, -1, metadata, world.clock.now_ms())
    world.coordinator.commit("g", Sender("", None, -1), [("t", 0, committed)], answers.extend)


def test_commits_of_one_turn_share_a_batch_behind_the_first(world: World) -> None:
    answers: list[int] = []
    for offset in range(5):
        _commit(world, answers, offset)
    assert answers == [0]
    world.clock.run_due()
    assert answers == [0] * 5
    assert world.offset() == 4
    assert [len(list(iter_headers(batch))) for batch in world.partition.batches] == [1, 1]
    assert [record.offset for record in world.partition.records()] == [0, 1, 2, 3, 4]
    assert world.restart().offset() == 4


def test_while_several_come_in_a_turn_the_first_shares_the_batch(world: World) -> None:
    answers: list[int] = []
    for offset in range(12):
        _commit(world, answers, offset)
        if offset % 3 == 2:
            world.clock.run_due()
    _commit(world, answers, 12)
    world.clock.run_due()
    # Alone again.
    _commit(world, answers, 13)
    assert answers == [0] * 14
    assert world.offset() == 13
    sizes = [header.record_count for batch in world.partition.batches for _, header in iter_headers(batch)]
    assert sizes == [1, 2, 3, 3, 3, 1, 1]
    assert world.restart().offset() == 13


def test_what_removes_offsets_comes_behind_commits_of_the_same_turn(world: World) -> None:
    answers: list[int] = []
    for offset in range(3):
        _commit(world, answers, offset)
    removed: list[object] = []
    world.coordinator.delete_offsets("g", [("t", 0)], lambda *found: removed.append(found))
    world.clock.run_due()
    assert (answers, len(removed), world.offset()) == ([0] * 3, 1, -1)
    assert world.restart().offset() == -1


def test_a_batch_that_is_too_large_refuses_no_one_else(world: World) -> None:
    answers: list[int] = []
    world.partition.most_bytes = 300
    for offset, metadata in enumerate(("", "", "x" * 500, "")):
        _commit(world, answers, offset, metadata)
    world.clock.run_due()
    assert answers == [0, 0, Code.INVALID_COMMIT_OFFSET_SIZE, 0]
    assert world.offset() == 3


def test_commits_that_are_not_appended_when_another_broker_leads_are_refused(world: World) -> None:
    answers: list[int] = []
    for offset in range(3):
        _commit(world, answers, offset)
    world.coordinator.on_stop("__consumer_offsets", 0)
    assert answers == [0, Code.NOT_COORDINATOR, Code.NOT_COORDINATOR]


def test_the_last_of_several_commits_wins_whatever_the_order_of_acknowledgements(world: World) -> None:
    world.partition.hold = True
    world.commit(1)
    world.commit(2)
    (_, _, first), (_, _, second) = world.partition.waiters._heap
    for waiter, end_offset in ((second, 2), (first, 1)):
        assert waiter.callback is not None
        waiter.callback(Code.NONE, end_offset)
        world.clock.run_due()
        assert world.offset() == 2


@pytest.mark.parametrize(
    ("log", "answer"),
    [
        (Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR),
        (Code.KAFKA_STORAGE_ERROR, Code.NOT_COORDINATOR),
        (Code.NOT_ENOUGH_REPLICAS, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.MESSAGE_TOO_LARGE, Code.INVALID_COMMIT_OFFSET_SIZE),
        (Code.REQUEST_TIMED_OUT, Code.REQUEST_TIMED_OUT),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_offsets_that_the_log_refuses_are_not_committed(
    world: World, log: Code, answer: Code, late: bool
) -> None:
    world.commit(1)
    if late:
        world.partition.hold = True
    else:
        world.partition.refuse = log
    world.commit(2)
    world.partition.release(log)
    assert world.last_commit == [answer]
    assert world.offset(require_stable=True) == 1


def test_too_long_metadata_fails_only_its_partition(world: World) -> None:
    assert world.commit(metadata="x" * 4096) == [Code.NONE]
    assert world.commit(metadata="x" * 4097) == [Code.OFFSET_METADATA_TOO_LARGE]
    assert world.commit(metadata="é" * 4096) == [Code.NONE]
    answers: list[int] = []
    items = [("t", 5, Committed(1, -1, "x" * 5000, 0)), ("t", 6, Committed(2, -1, "", 0))]
    world.coordinator.commit("g", Sender("", None, -1), items, answers.extend)
    assert answers == [Code.OFFSET_METADATA_TOO_LARGE, Code.NONE]
    assert world.offset(partition=5) == -1
    assert world.offset(partition=6) == 2


def test_who_may_commit(world: World) -> None:
    assert world.commit(generation=1, member_id="m") == [Code.ILLEGAL_GENERATION]  # no such group
    [member], generation = world.stable()
    assert world.commit() == [Code.UNKNOWN_MEMBER_ID]  # the group has a member
    assert world.commit(member_id="other", generation=generation) == [Code.UNKNOWN_MEMBER_ID]
    assert world.commit(member_id=member, generation=generation + 1) == [Code.ILLEGAL_GENERATION]
    assert world.commit(member_id=member, generation=generation) == [Code.NONE]
    second = world.new()
    assert world.commit(member_id=member, generation=generation) == [
        Code.NONE
    ]  # the old generation may still
    rejoin = world.join(member)
    assert rejoin.joined
    assert world.commit(member_id=member, generation=generation) == [Code.ILLEGAL_GENERATION]
    assert world.commit(member_id=member, generation=generation + 1) == [Code.REBALANCE_IN_PROGRESS]
    world.finish([rejoin, second])
    world.leave(member)
    world.leave(second.joined.member_id)
    assert world.commit(member_id=member, generation=generation + 1) == [Code.UNKNOWN_MEMBER_ID]
    assert world.commit(99) == [Code.NONE]


# Expiry (KIP-211)


def expire(world: World) -> None:
    world.clock.advance(601)


def tombstones(world: World) -> int:
    return sum(record.value is None for record in world.partition.records())


def test_a_simple_consumers_offsets_expire_after_the_commit(world: World) -> None:
    world.commit()
    world.clock.advance(7 * DAY - HOUR)
    assert world.offset() == 42
    world.clock.advance(2 * HOUR)
    assert world.offset() == -1
    assert world.listed([], []) == (0, [])
    # Its tombstone is in the log; a group that was never more than offsets needs none itself.
    assert tombstones(world) == 1
    assert world.restart().offset() == -1


def test_offsets_of_a_group_expire_after_the_group_is_empty(world: World) -> None:
    [member], generation = world.stable(protocols=SUBSCRIBED_TO_T)
    world.commit(member_id=member, generation=generation)
    for _ in range(int(9 * DAY / 5)):
        world.clock.advance(5)
        if world.heartbeat(member, generation) is not Code.NONE:
            pytest.fail("lost")
        if world.clock.time > 1000 + 8 * DAY:
            break
    assert world.offset() == 42
    world.leave(member)
    world.clock.advance(7 * DAY - HOUR)
    assert world.offset() == 42
    world.clock.advance(2 * HOUR)
    assert world.offset() == -1
    assert world.state() == "Dead"
    assert tombstones(world) == 2


def test_offsets_of_topics_without_subscribers_expire_in_a_live_group() -> None:
    world = World(offsets_retention_ms=3_600_000)
    [member], generation = world.stable(protocols=SUBSCRIBED_TO_T)
    for topic in ("t", "left-behind"):
        world.commit(topic=topic, member_id=member, generation=generation)
    for _ in range(int(1.2 * HOUR / 5)):
        world.clock.advance(5)
        assert world.heartbeat(member, generation) is Code.NONE
    assert world.offset() == 42
    assert world.offset(topic="left-behind") == -1


def test_an_offsets_own_expiry_overrides_the_brokers(world: World) -> None:
    world.commit(expire_ms=WALL_START_MS + 60_000)
    expire(world)
    assert world.offset() == -1


def test_a_pending_write_keeps_an_offset_and_its_group() -> None:
    world = World(commit_timeout_ms=3_600_000)
    world.commit(expire_ms=WALL_START_MS + 1)
    world.partition.hold = True
    world.commit(43)
    expire(world)
    assert world.offset() == 42
    world.partition.release()
    assert world.offset() == 43


def test_offsets_whose_tombstones_fail_stay(world: World) -> None:
    world.commit(expire_ms=WALL_START_MS + 1)
    world.partition.refuse = Code.KAFKA_STORAGE_ERROR
    expire(world)
    assert world.offset() == 42
    world.partition.refuse = None
    expire(world)
    assert world.offset() == -1


def test_an_empty_group_without_offsets_is_removed(world: World) -> None:
    [member], _ = world.stable()
    world.leave(member)
    assert world.state() == "Empty"
    expire(world)
    assert world.state() == "Dead"
    assert world.restart().listed([], []) == (0, [])


def test_a_group_with_a_pending_member_stays(world: World) -> None:
    member = world.member_id(session_ms=1_000_000)
    expire(world)
    world.join(member, session_ms=1_000_000)
    world.clock.advance(5)
    assert world.state() == "CompletingRebalance"


# Deletion


def delete(world: World, *groups: str) -> dict[str, Code]:
    answers: dict[str, Code] = {}
    world.coordinator.delete(groups, lambda codes: answers.update({k: Code(v) for k, v in codes.items()}))
    return answers


def test_deleting_groups(world: World) -> None:
    [member], _ = world.stable()
    world.commit(group="simple")
    assert delete(world, "g", "simple", "nothing") == {
        "g": Code.NON_EMPTY_GROUP,
        "simple": Code.NONE,
        "nothing": Code.GROUP_ID_NOT_FOUND,
    }
    world.leave(member)
    world.commit()
    assert delete(world, "g", "g") == {"g": Code.NONE}
    assert world.state() == "Dead"
    again = world.restart()
    assert again.listed([], []) == (0, [])
    assert again.offset() == again.offset(group="simple") == -1


def test_deleting_waits_for_the_log(world: World) -> None:
    world.commit()
    world.partition.refuse = Code.NOT_LEADER_OR_FOLLOWER
    assert delete(world, "g") == {"g": Code.NOT_COORDINATOR}
    assert world.offset() == 42
    world.partition.refuse = None
    world.partition.hold = True
    answers: dict[str, int] = {}
    world.coordinator.delete(["g"], answers.update)
    assert not answers
    world.partition.release()
    assert answers == {"g": 0}


def test_a_pending_commit_does_not_survive_the_deletion_of_its_group(world: World) -> None:
    world.partition.hold = True
    world.commit()
    delete(world, "g")
    world.partition.release()
    assert world.offset() == -1
    assert world.restart().offset() == -1


def test_a_group_with_very_many_offsets_is_deleted_in_several_batches(world: World) -> None:
    for partition in range(2500):
        world.commit(partition=partition)
    before = len(world.partition.batches)
    assert delete(world, "g") == {"g": Code.NONE}
    assert len(world.partition.batches) - before == 3
    assert world.restart().listed([], []) == (0, [])


def delete_offsets(world: World, *keys: tuple[str, int]) -> tuple[Code, dict[tuple[str, int], Code]]:
    answers: list[tuple[Code, dict[tuple[str, int], Code]]] = []
    world.coordinator.delete_offsets(
        "g", keys, lambda error, found: answers.append((Code(error), {k: Code(v) for k, v in found.items()}))
    )
    return answers[0]


def test_deleting_offsets(world: World) -> None:
    assert delete_offsets(world, ("t", 0)) == (Code.GROUP_ID_NOT_FOUND, {})
    [member], generation = world.stable(protocols=SUBSCRIBED_TO_T)
    for topic in ("t", "u"):
        world.commit(topic=topic, member_id=member, generation=generation)
    assert delete_offsets(world, ("t", 0), ("u", 0), ("u", 1)) == (
        Code.NONE,
        {("t", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC, ("u", 0): Code.NONE, ("u", 1): Code.NONE},
    )
    assert world.offset() == 42
    assert world.offset(topic="u") == -1
    world.leave(member)
    assert delete_offsets(world, ("t", 0)) == (Code.NONE, {("t", 0): Code.NONE})
    assert world.restart().offset() == -1
    assert world.state() == "Dead"


def test_deleting_an_offset_of_an_empty_group_without_offsets_removes_the_group(world: World) -> None:
    """As Kafka's ``cleanupGroupMetadata`` does, whether the offset was there or not."""
    [member], _ = world.stable(protocols=SUBSCRIBED_TO_T)
    world.leave(member)
    assert world.state() == "Empty"
    assert delete_offsets(world) == (Code.NONE, {})
    assert world.state() == "Empty", "nothing was asked for"
    assert delete_offsets(world, ("u", 0)) == (Code.NONE, {("u", 0): Code.NONE})
    assert world.state() == "Dead"
    assert world.restart().state() == "Dead"


def test_deleting_offsets_with_unknown_subscriptions(world: World) -> None:
    world.stable(protocols=(("range", b"?"),))
    assert delete_offsets(world, ("t", 0)) == (Code.NONE, {("t", 0): Code.GROUP_SUBSCRIBED_TO_TOPIC})


def test_deleting_offsets_of_a_group_of_another_protocol_type(world: World) -> None:
    world.stable(protocol_type="connect")
    assert delete_offsets(world, ("t", 0)) == (Code.NON_EMPTY_GROUP, {})


def test_deleting_a_topic_removes_its_offsets(world: World) -> None:
    world.commit(topic="gone", partition=0)
    world.commit(topic="gone", partition=1, group="other")
    world.commit(topic="stays", group="other")
    world.coordinator.on_partitions_deleted("gone", [0, 1])
    world.clock.run_due()
    assert world.offset(topic="gone") == -1
    assert world.offset(topic="gone", partition=1, group="other") == -1
    assert world.offset(topic="stays", group="other") == 42
    again = world.restart()
    assert again.listed([], [])[1] == [("other", "", "Empty", "classic")]


# Administration


def test_listing_and_describing(world: World) -> None:
    ids, _ = world.stable(2, protocols=SUBSCRIBED_TO_T)
    world.commit(group="simple")
    assert sorted(world.listed([], [])[1]) == [
        ("g", "consumer", "Stable", "classic"),
        ("simple", "", "Empty", "classic"),
    ]
    assert [g.group_id for g in world.listed(["EMPTY"], [])[1]] == ["simple"]
    assert [g.group_id for g in world.listed(["stable", "dead"], ["Classic"])[1]] == ["g"]
    assert world.listed([], ["consumer"])[1] == []
    found = world.coordinator.describe("g")
    assert (found.error, found.state, found.protocol_type, found.protocol) == (
        0,
        "Stable",
        "consumer",
        "range",
    )
    assert {(m.member_id, data, share) for m, data, share in found.members} == {
        (member_id, SUBSCRIBED_TO_T[0][1], b"share of " + member_id.encode()) for member_id in ids
    }
    world.join(ids[0], protocols=SUBSCRIBED_TO_T)
    found = world.coordinator.describe("g")
    assert (found.state, found.protocol, len(found.members)) == ("PreparingRebalance", "", 2)
    assert all((data, share) == (b"", b"") for _, data, share in found.members)
    assert world.coordinator.describe("nothing").state == "Dead"
