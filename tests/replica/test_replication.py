"""One partition of a cluster as leader and follower: in-sync replicas, the high watermark, waiters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.replica.test_fetcher import batch
from tests.replica.waits import committed, deleted
from tests.replica.world import MAX_LAG_SECONDS, TOPIC, TOPIC_ID, open_log
from tests.support.clock import FakeClock
from tests.support.handlers import INTER_BROKER, handled, request_context, services

from ottla_broker.handlers import list_offsets
from ottla_broker.log.config import LogConfig
from ottla_broker.replica.delayed_fetch import DelayedFetch
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.isr import IsrChange, IsrOutcome
from ottla_broker.replica.leader_lease import LeaderLease
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition, Role
from ottla_broker.replica.selector import RackAwareSelector
from ottla_broker.store.api import Lease
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.records.record import encode_batch

ME = 1
REPLICAS = [1, 2, 3]


class PartitionFixture:
    def __init__(self, folder: Path, committed: int = 0, **config: Any) -> None:
        self.clock = FakeClock()
        self.log = open_log(folder, self.clock, LogConfig(**config))
        self.proposed: list[IsrChange] = []
        self.dead: set[int] = set()
        self.ended: set[int] = set()
        self.leader_lease = LeaderLease(Lease(inf), 1.5, lambda broker: broker in self.ended)
        logs: Any = SimpleNamespace(get=lambda *_: self.log, high_watermark=lambda *_: committed)
        environment = ReplicaEnvironment(
            ME,
            logs,
            self.clock,
            MAX_LAG_SECONDS,
            lambda broker, _: broker not in self.dead,
            self.proposed.append,
            self.leader_lease,
        )
        self.partition = Partition(TOPIC, 0, TOPIC_ID, environment)

    def lead(self, isr: list[int], epoch: int = 1, partition_epoch: int = 10) -> Partition:
        self.partition.lead(LeaderState(1, ME, epoch, isr, partition_epoch, REPLICAS))
        return self.partition

    def append(self, count: int = 1) -> int:
        made = encode_batch([(self.clock.now_ms(), b"k", b"v", ())] * count)
        return self.partition.append(memoryview(made), self.clock.now_ms()).last_offset + 1

    def fetched(self, broker: int, offset: int, start: int = 0, broker_epoch: int = 7) -> None:
        self.partition.fetched_by(broker, offset, start, broker_epoch)


NewFixture = Callable[..., PartitionFixture]


@pytest.fixture
def fixture(tmp_path: Path) -> PartitionFixture:
    return PartitionFixture(tmp_path / "log")


def code_of(call: Callable[..., object], *args: Any, **options: Any) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        call(*args, **options)
    return caught.value.code


async def test_records_of_all_in_sync_replicas_are_committed(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2, 3])
    end = fixture.append(3)
    wait = committed(partition, end)
    fixture.fetched(2, 3)
    assert (partition.high_watermark, wait.done()) == (0, False)
    fixture.fetched(3, 2)
    assert partition.high_watermark == 2
    fixture.fetched(3, 3)
    assert partition.high_watermark == 3
    await wait


async def test_a_new_epoch_forgets_what_followers_had(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2])
    fixture.append()
    fixture.fetched(2, 1)
    fixture.lead([1, 2], epoch=2)
    fixture.append()
    assert partition.high_watermark == 1
    fixture.fetched(2, 2)
    assert partition.high_watermark == 2


async def test_roles_and_what_they_refuse(fixture: PartitionFixture) -> None:
    partition = fixture.partition
    assert code_of(partition.check_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.follow(LeaderState(1, 2, 4, [1, 2], 0, REPLICAS))
    assert code_of(fixture.append) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(partition.is_under_min_isr) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(partition.delete_records, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(partition.check_readable, 4, any_replica=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    partition.check_readable(4, any_replica=True)
    assert code_of(partition.check_readable, 3, any_replica=True) is ErrorCode.FENCED_LEADER_EPOCH
    assert code_of(partition.check_readable, 5, any_replica=True) is ErrorCode.UNKNOWN_LEADER_EPOCH
    fixture.lead([1], epoch=5)
    assert code_of(fixture.fetched, 9, 0) is ErrorCode.UNKNOWN_LEADER_EPOCH
    partition.go_offline()
    assert code_of(fixture.append) is ErrorCode.KAFKA_STORAGE_ERROR
    partition.stop()
    assert partition.role is Role.OFFLINE


async def test_waiters_are_answered_when_leadership_ends(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2])
    wait = committed(partition, fixture.append())
    gone = deleted(partition, 1)
    ran: list[str] = []
    for name, place in (("consumer", partition.fetches), ("follower", partition.follower_fetches)):
        DelayedFetch([place], 1000, fixture.clock, lambda name=name: ran.append(name)).start(60_000)  # type: ignore[misc]
    partition.follow(LeaderState(1, 2, 2, [2], 0, REPLICAS))
    for future in (wait, gone):
        with pytest.raises(KafkaError) as caught:
            await future
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    fixture.clock.run_due()
    assert sorted(ran) == ["consumer", "follower"]


async def test_appends_wake_followers_and_commits_wake_consumers(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2])
    ran: list[str] = []
    for name, place in (("consumer", partition.fetches), ("follower", partition.follower_fetches)):
        DelayedFetch([place], 1, fixture.clock, lambda name=name: ran.append(name)).start(60_000)  # type: ignore[misc]
    fixture.append()
    fixture.append()
    fixture.clock.run_due()
    assert ran == ["follower"]
    fixture.fetched(2, 1)
    fixture.clock.run_due()
    assert ran == ["follower", "consumer"]
    # Bytes that became visible before don't count again; bytes that become visible now do.
    DelayedFetch([partition.fetches], 1, fixture.clock, lambda: ran.append("again")).start(60_000)
    fixture.fetched(2, 2)
    fixture.clock.run_due()
    assert ran == ["follower", "consumer", "again"]


async def test_a_follower_joins_with_all_that_is_committed_and_this_epochs_start(
    fixture: PartitionFixture,
) -> None:
    fixture.lead([1])
    fixture.append(4)
    partition = fixture.lead([1], epoch=2)
    fixture.fetched(2, 3)
    assert not fixture.proposed
    fixture.fetched(2, 4)
    assert [(c.isr, c.epochs, c.leader_epoch, c.partition_epoch) for c in fixture.proposed] == [
        ((1, 2), (-1, 7), 2, 10)
    ]
    # Until the controller has agreed, both sets must have a record.
    fixture.append()
    assert partition.high_watermark == 4
    fixture.fetched(3, 5)
    assert len(fixture.proposed) == 1, "one change at a time"
    assert partition.on_isr_answer(fixture.proposed[0], IsrOutcome(ErrorCode.NONE, 2, 11, (1, 2)))
    assert (partition.isr, partition._led().partition_epoch, partition.high_watermark) == ([1, 2], 11, 4)
    fixture.fetched(2, 5)
    assert partition.high_watermark == 5


async def test_a_dead_broker_does_not_join(fixture: PartitionFixture) -> None:
    fixture.lead([1])
    fixture.dead = {2}
    fixture.fetched(2, 0)
    assert not fixture.proposed


async def test_a_replica_that_lags_too_long_is_removed(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2, 3])
    fixture.append()
    fixture.clock.time += 9
    fixture.fetched(2, 1)
    partition.remove_lagging()
    assert not fixture.proposed
    fixture.clock.time += 2
    partition.remove_lagging()
    assert [change.isr for change in fixture.proposed] == [(1, 2)]
    assert partition.high_watermark == 0, "the larger set counts until the controller agrees"
    assert set(partition._led().counted()) == {1, 2, 3}
    partition.on_isr_answer(fixture.proposed[0], IsrOutcome(ErrorCode.NONE, 1, 11, (1, 2)))
    assert partition.high_watermark == 1


async def test_a_replica_that_dies_while_joining_no_longer_counts(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2])
    fixture.fetched(3, 0)
    wait = committed(partition, fixture.append())
    fixture.fetched(2, 1)
    partition.on_isr_answer(fixture.proposed[0], IsrOutcome(ErrorCode.INELIGIBLE_REPLICA))
    assert not wait.done(), "the third had everything a moment ago"
    fixture.dead = {3}
    partition.brokers_changed()
    assert partition.high_watermark == 1
    fixture.dead = set()
    fixture.fetched(3, 1)
    partition.on_isr_answer(fixture.proposed[1], IsrOutcome(ErrorCode.INELIGIBLE_REPLICA))
    wait = committed(partition, fixture.append())
    fixture.fetched(2, 2)
    assert not wait.done()
    fixture.clock.time += 11
    fixture.fetched(2, 2)
    assert partition.high_watermark == 2


async def test_one_fetch_behind_a_busy_leader_is_in_sync(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2])
    for _ in range(30):
        end = partition.log.log_end_offset
        fixture.append()
        fixture.fetched(2, end)
        fixture.clock.time += 1
        partition.remove_lagging()
    assert not fixture.proposed


async def test_a_replica_that_lost_committed_records_is_removed_at_once(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2, 3])
    fixture.append(5)
    fixture.fetched(2, 5)
    fixture.fetched(3, 5)
    assert partition.high_watermark == 5
    fixture.fetched(3, 2, broker_epoch=8)
    assert [change.isr for change in fixture.proposed] == [(1, 2)]
    assert partition.high_watermark == 5
    assert code_of(fixture.fetched, 3, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "sent before it restarted"


@pytest.mark.parametrize(
    ("error", "settled", "open_still"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, True, False),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, True, False),
        (ErrorCode.FENCED_LEADER_EPOCH, True, True),
        (ErrorCode.INVALID_UPDATE_VERSION, True, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False, True),
    ],
)
async def test_a_change_that_is_refused(
    error: ErrorCode, settled: bool, open_still: bool, fixture: PartitionFixture
) -> None:
    partition = fixture.lead([1])
    fixture.fetched(2, 0)
    assert partition.on_isr_answer(fixture.proposed[0], IsrOutcome(error)) == settled
    assert (len(partition._led().counted()) == 2) == open_still
    fixture.lead([1], epoch=2, partition_epoch=12)
    assert partition._led().counted() == [1]
    assert partition.on_isr_answer(fixture.proposed[0], IsrOutcome(ErrorCode.NONE, 1, 11, (1, 2)))
    assert partition._led().counted() == [1], "an answer from before"


async def test_below_min_isr_nothing_is_committed(tmp_path: Path) -> None:
    fixture = PartitionFixture(tmp_path / "log", min_insync_replicas=2)
    partition = fixture.lead([1])
    assert partition.is_under_min_isr()
    assert code_of(partition.append_internal, bytearray(), 0) is ErrorCode.NOT_ENOUGH_REPLICAS
    fixture.append()
    assert partition.high_watermark == 0
    fixture.fetched(2, 1)
    partition.on_isr_answer(fixture.proposed[0], IsrOutcome(ErrorCode.NONE, 1, 11, (1, 2)))
    assert not partition.is_under_min_isr()
    assert partition.high_watermark == 1


async def test_min_isr_is_at_most_the_number_of_replicas(tmp_path: Path) -> None:
    fixture = PartitionFixture(tmp_path / "log", min_insync_replicas=5)
    partition = fixture.lead([1, 2, 3])
    assert not partition.is_under_min_isr()


async def test_delete_records_waits_for_live_followers(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2, 3])
    fixture.append(4)
    fixture.fetched(2, 4)
    fixture.fetched(3, 4)
    answered: list[bool] = []
    DelayedFetch([partition.follower_fetches], 1, fixture.clock, lambda: answered.append(True)).start(60_000)
    assert partition.delete_records(3) == 3
    wait = deleted(partition, 3)
    fixture.clock.run_due()
    assert answered, "followers hear of it at once"
    fixture.fetched(2, 4, start=3)
    assert not wait.done()
    fixture.fetched(3, 4, start=3)
    assert await wait == 3
    partition.delete_records(4)
    wait = deleted(partition, 4)
    fixture.fetched(2, 4, start=4)
    fixture.dead = {3}
    partition.remove_lagging()
    assert await wait == 4
    fixture.dead = set()
    fixture.append()
    late: list[Outcome] = []
    DelayedProduce([Awaited(partition.when_deleted, 5)], fixture.clock, late.extend).start(1000)
    fixture.clock.time += 2
    fixture.clock.run_due()
    assert late == [Outcome(ErrorCode.REQUEST_TIMED_OUT)]


async def test_the_high_watermark_starts_at_its_checkpoint(tmp_path: Path) -> None:
    first = PartitionFixture(tmp_path / "log")
    first.lead([1])
    first.append(5)
    first.log.close()
    second = PartitionFixture(tmp_path / "log", committed=3)
    assert second.partition.high_watermark == 3
    second.partition.follow(LeaderState(1, 2, 4, [2], 0, REPLICAS))
    assert second.partition.high_watermark == 3
    assert second.log.committed_offset() == 3
    partition = second.lead([1, 2], epoch=5)
    assert (partition.high_watermark, partition.epoch_start) == (3, 5)


async def test_a_followers_high_watermark_stays_within_its_log(fixture: PartitionFixture) -> None:
    partition = fixture.partition
    partition.follow(LeaderState(1, 2, 5, [2], 0, REPLICAS))
    partition.append_from_leader(memoryview(batch(0, count=3)), 10, 0)
    assert partition.high_watermark == 3
    partition.append_from_leader(memoryview(b""), 1, 9)
    assert (partition.high_watermark, partition.log.log_start_offset) == (3, 3)
    partition.truncate(2)
    assert partition.high_watermark == 2


async def test_a_coordinator_that_loads_reads_to_the_end_of_the_log(fixture: PartitionFixture) -> None:
    """The high watermark of a new leader may be below what the old one acknowledged."""
    partition = fixture.partition
    partition.follow(LeaderState(1, 2, 5, [1, 2], 0, REPLICAS))
    partition.append_from_leader(memoryview(batch(0, count=3)), 1, 0)
    fixture.lead([1, 2], epoch=6)
    assert partition.high_watermark == 1
    assert b"".join(partition.scan(0)) == bytes(batch(0, count=3))


async def test_a_flush_that_is_due_comes_before_the_acknowledgement(tmp_path: Path) -> None:
    fixture = PartitionFixture(tmp_path / "log", flush_messages=1)
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    fixture.log.environment.flusher = SimpleNamespace(request=lambda *_: done)  # type: ignore[assignment]
    fixture.partition.follow(LeaderState(1, 2, 5, [2], 0, REPLICAS))
    assert fixture.partition.append_from_leader(memoryview(batch(0)), 0, 0) is done


async def test_offsets_are_not_available_before_they_are_known(tmp_path: Path) -> None:
    fixture = PartitionFixture(tmp_path / "log")
    fixture.lead([1])
    fixture.append(5)
    fixture.log.close()
    fixture = PartitionFixture(tmp_path / "log", committed=2)
    fixture.lead([1, 2], epoch=2)

    def ask(timestamp: int, version: int = 8, replica: int = -1) -> tuple[int, int]:
        given = services(replicas=SimpleNamespace(partition=lambda *_: fixture.partition))
        request = ListOffsetsRequest(
            replica_id=replica,
            topics=[
                ListOffsetsTopic(
                    name=TOPIC, partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
                )
            ],
        )
        context = request_context(given, version, ApiKey.LIST_OFFSETS, INTER_BROKER)
        answer = handled(list_offsets, context, request).topics[0].partitions[0]
        return answer.error_code, answer.offset

    assert ask(-1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert ask(-1, version=4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    assert ask(-2) == (0, 0)
    assert ask(-1, replica=2) == (0, 5), "a replica asks for the log's end"
    assert ask(2**62)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    fixture.fetched(2, 5)
    assert ask(-1) == (0, 5)
    assert ask(2**62) == (0, -1)
    fixture.partition.follow(LeaderState(1, 2, 3, [2], 0, REPLICAS))
    assert ask(-1)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert ask(-1, replica=-2) == (0, 5)


async def test_consumers_are_sent_to_their_rack(fixture: PartitionFixture) -> None:
    racks = {1: "a", 2: "b", 3: "b"}
    selector = RackAwareSelector(ME, racks.get)
    partition = fixture.lead([1, 2, 3])
    fixture.append(4)
    fixture.fetched(2, 2)
    fixture.fetched(3, 3)
    assert selector.choose(partition, "a", 0) is None
    assert selector.choose(partition, "c", 0) is None
    assert selector.choose(partition, "b", 0) == 3, "the one that has most"
    assert selector.choose(partition, "b", 4) is None, "neither has come so far"
    fixture.lead([1, 2], epoch=2)
    fixture.fetched(2, 2)
    fixture.fetched(3, 4)
    assert selector.choose(partition, "b", 0) == 2, "only who is in sync"


def led(partition: Partition) -> bool:
    return partition.is_led_here


async def test_a_leader_that_may_have_been_replaced_goes_on_while_it_is_followed(
    fixture: PartitionFixture,
) -> None:
    partition = fixture.lead([1, 2, 3])
    fixture.append()
    fixture.leader_lease.lease.until = fixture.clock.monotonic()
    # Its epoch has just begun.
    assert led(partition)
    fixture.clock.time += 1.6
    fixture.fetched(2, 0)
    for refused in (partition.check_leader, fixture.append, lambda: partition.check_readable(1, True)):
        assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_of(partition.append_internal, bytearray(), 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # The other follower shows that it leads nothing, or its process has ended.
    fixture.fetched(3, 0)
    assert led(partition)
    fixture.clock.time += 1.6
    fixture.fetched(2, 0)
    fixture.ended.add(3)
    assert led(partition)
    fixture.ended.clear()
    assert not led(partition)
    fixture.leader_lease.lease.until = inf
    assert led(partition)


async def test_a_fetch_that_waited_in_the_socket_of_a_frozen_broker_is_no_sign_of_following(
    fixture: PartitionFixture,
) -> None:
    partition = fixture.lead([1, 2])
    fixture.append()
    fixture.leader_lease.lease.until = answered_at = fixture.clock.monotonic()
    fixture.clock.time += 6
    partition.fetched_by(2, 0, 0, 7, answered_at)
    assert not led(partition)
    partition.fetched_by(2, 0, 0, 7, fixture.clock.monotonic())
    assert led(partition)


async def test_replicas_that_may_be_in_sync_by_now_must_follow_too(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1, 2])
    fixture.fetched(2, 0)
    fixture.fetched(3, 0)
    assert [change.isr for change in fixture.proposed] == [(1, 2, 3)]
    fixture.leader_lease.lease.until = 0.0
    assert led(partition)
    fixture.clock.time += 1.6
    fixture.fetched(2, 0)
    assert not led(partition)


async def test_the_only_in_sync_replica_stays_leader(fixture: PartitionFixture) -> None:
    partition = fixture.lead([1])
    fixture.leader_lease.lease.until = 0.0
    fixture.clock.time += 100
    fixture.append()
    assert led(partition)


async def test_records_acknowledged_in_doubt_are_on_all_replicas(fixture: PartitionFixture) -> None:
    """A follower's fetch counts though clients are refused: it shows what the follower had when it still followed."""
    partition = fixture.lead([1, 2])
    wait = committed(partition, fixture.append())
    fixture.leader_lease.lease.until = 0.0
    fixture.clock.time += 1.6
    assert not led(partition)
    fixture.fetched(2, 1)
    await wait
