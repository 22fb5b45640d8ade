"""Share groups over the wire: heartbeats, sessions, acquired records, acknowledgements, and what a restart keeps."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.ports import free_port
from tests.support.metrics import address_of, get, scrape
from tests.support.processes import BrokerProcess
from tests.support.share import Member, configure, kept_states
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client.sync import Producer
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.consumer_group_heartbeat import HeartbeatAssignment
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_groups import DeleteGroupsRequest
from ottla_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla_protocol.messages.share_fetch import (
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla_protocol.messages.share_group_describe import ShareGroupDescribeRequest

pytestmark = pytest.mark.ottla_only

NOTHING = HeartbeatAssignment()

_numbers = itertools.count()


def new_topic(broker: BrokerProcess, records: int = 10) -> tuple[str, str]:
    """A group that starts at the earliest record, and a topic with some in one batch."""
    topic = f"shared-{next(_numbers)}"
    group = f"group-of-{topic}"
    with Wire(broker.port) as wire:
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30000), 7)
        configure(wire, group, share_auto_offset_reset="earliest")
    produce(broker, topic, records)
    return group, topic


def produce(broker: BrokerProcess, topic: str, records: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=200) as producer:
        for number in range(records):
            producer.send(topic, b"%d" % number)


@pytest.fixture
def member(broker: BrokerProcess) -> Callable[..., Member]:
    return lambda group, topic, name="m1": Member(broker.port, group, topic, name)


def test_records_go_to_one_member_until_they_are_released(
    broker: BrokerProcess, member: Callable[..., Member]
) -> None:
    group, topic = new_topic(broker)
    with member(group, topic).join() as one, member(group, topic, "m2").join() as two:
        assert one.acquire(records=4, mode=1) == [(0, 3, 1)]
        assert two.acquire(records=100) == [(4, 9, 1)]
        # Accept, release, reject; the fourth stays acquired.
        assert one.outcome([(0, 2, [1, 2, 3])]) == 0
        assert two.acquire() == [(1, 1, 2)]
        # Not the member's: another has it, it is done with, or no one has it.
        for offset in (4, 2):
            expected = ErrorCode.INVALID_RECORD_STATE
            assert one.outcome([(offset, offset, [1])]) == expected
        assert one.outcome([(50, 50, [1])]) == ErrorCode.INVALID_REQUEST
        # Below the start all is done with.
        assert one.outcome([(0, 0, [1])]) == 0
        for acks in ([(3, 2, [1])], [(3, 3, [7])], [(3, 4, [1, 1, 1])], [(3, 3, [1]), (3, 3, [1])]):
            assert one.outcome(acks) == ErrorCode.INVALID_REQUEST
        # A connection that closes releases what its member has.
        two.close()
        assert sorted(one.acquire()) == [(1, 1, 3), (4, 9, 2)]


def test_a_member_gets_nothing_of_a_partition_that_another_will_have(broker: BrokerProcess) -> None:
    topic = f"shared-{next(_numbers)}"
    with Wire(broker.port) as wire:
        wanted = CreatableTopic(name=topic, num_partitions=2, replication_factor=1)
        wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30000), 7)
        configure(wire, topic, share_auto_offset_reset="earliest")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for partition in (0, 1):
            producer.send(topic, b"x", partition=partition)

    def fetched(member: Member) -> set[int]:
        found = member.fetch(wait_ms=500, partitions=(0, 1))
        assert found.error_code == 0
        return {
            each.partition_index
            for one in found.responses
            for each in one.partitions
            if each.acquired_records
        }

    with Member(broker.port, topic, topic, "one") as one, Member(broker.port, topic, topic, "two") as two:

        def assigned(member: Member, epoch: int) -> set[int] | None:
            found = member.heartbeat(epoch, [topic]).assignment
            return found and {index for each in found.topic_partitions for index in each.partitions}

        wait_for(lambda: assigned(one, 0) == {0, 1}, "the first member to have both partitions")
        kept_by_two: set[int] = set()

        def joined() -> bool:
            kept_by_two.update(assigned(two, 0) or ())
            return bool(kept_by_two)

        wait_for(joined, "the second member to have a partition")
        assert len(kept_by_two) == 1
        # The first doesn't know yet that one of its partitions is the second's.
        seen: set[int] = set()
        for _ in range(4):
            seen |= fetched(one)
        assert seen == {0, 1} - kept_by_two
        assert fetched(two) | fetched(two) == kept_by_two


def test_what_is_no_groups_or_brings_nothing(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    group, topic = new_topic(broker, records=0)
    with member(group, topic).join() as one:
        # The first answer of a session names its partitions, later ones only those with something.
        (place,) = one.fetch().responses[0].partitions
        assert (place.error_code, bytes(place.records or b""), place.acquired_records) == (0, b"", [])
        assert one.fetch().responses == []
        (found,) = one.wire.call(DescribeGroupsRequest(groups=[group]), 5).groups
        assert (found.error_code, found.group_state) == (0, "Dead")
        # Of the second topic the group has had nothing.
        _, other = new_topic(broker, records=0)
        with member(group, other, "m2") as two:
            one.topic_id = two.topic_id
        assert one.outcome([(0, 0, [1])]) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_requests_answer_as_those_of_kafka_4_2_do(
    broker: BrokerProcess, member: Callable[..., Member]
) -> None:
    group, topic = new_topic(broker)
    with member(group, topic, "m" * 36).join() as one, member(group, topic, "m" * 37) as two:
        refused = ErrorCode.INVALID_REQUEST, "Invalid member id in the request."
        heartbeat, fetched, acknowledged = two.heartbeat(0, [topic]), two.fetch(), two.acknowledge([])
        for answer in (heartbeat, fetched, acknowledged):
            assert (answer.error_code, answer.error_message) == refused
        # Without a batch, a partition only has to exist: the group has nothing of the second topic yet.
        one.fetch()
        _, other = new_topic(broker, records=0)
        with member(group, other, "m3") as three:
            topic_id, one.topic_id = one.topic_id, three.topic_id
        assert one.outcome([]) == 0
        one.topic_id = bytes(range(16))
        assert one.outcome([]) == ErrorCode.UNKNOWN_TOPIC_ID
        one.topic_id = topic_id
        # A share group has no offsets, and none can be committed.
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
        for topics, expected in ((wanted, [-1]), (None, [])):
            asked = [OffsetFetchRequestGroup(group_id=group, topics=topics)]
            (found,) = one.wire.call(OffsetFetchRequest(groups=asked), 8).groups
            assert found.error_code == 0
            assert [each.committed_offset for named in found.topics for each in named.partitions] == expected
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=3)
        commit = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        )
        (outcome,) = one.wire.call(commit, 8).topics[0].partitions
        assert outcome.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_sessions_count_their_requests(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    group, topic = new_topic(broker)
    with member(group, topic).join() as one:
        assert one.fetch(epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert one.acknowledge([(0, 0, [1])], epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert one.fetch([(0, 0, [1])]).error_code == ErrorCode.INVALID_REQUEST
        assert one.acquire(records=2, mode=1) == [(0, 1, 1)]
        assert one.fetch(epoch=9).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        # The last request of a session acknowledges, and releases the rest.
        last = one.fetch([(0, 0, [1])], epoch=-1)
        assert [last.error_code, last.responses[0].partitions[0].acknowledge_error_code] == [0, 0]
        one.epoch = 0
        assert one.acquire(records=2, mode=1)[0] == (1, 1, 2)
        # The last acknowledgements may come by another connection: franz-go's do.
        with member(group, topic) as elsewhere:
            answer = elsewhere.acknowledge([(1, 1, [1])], epoch=-1)
        assert [answer.error_code, answer.responses[0].partitions[0].error_code] == [0, 0]
        one.epoch = 0
        assert one.acquire()[0] == (2, 2, 2)
        one.close()
        with member(group, topic) as elsewhere:
            assert (
                elsewhere.acknowledge([(2, 2, [1])], epoch=-1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
            )


def test_heartbeats_with_wrong_epochs_are_fenced(
    broker: BrokerProcess, member: Callable[..., Member]
) -> None:
    group, topic = new_topic(broker, 1)
    with member(group, topic) as one:
        assert one.heartbeat(1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert one.heartbeat(0, []).error_code == ErrorCode.INVALID_REQUEST
        assert one.heartbeat(-2).error_code == ErrorCode.INVALID_REQUEST
        one.join()
        with member(group, topic, "m2") as two:
            assert two.heartbeat(1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert one.heartbeat(99).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        assert one.wire.call(join, 3).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        listed = one.wire.call(ListGroupsRequest(types_filter=["share"]), 5).groups
        shown = [
            (each.protocol_type, each.group_type, each.group_state)
            for each in listed
            if each.group_id == group
        ]
        assert shown == [("share", "share", "Stable")]
        described = one.wire.call(ShareGroupDescribeRequest(group_ids=[group, "none"]), 1).groups
        assert [each.error_code for each in described] == [0, ErrorCode.GROUP_ID_NOT_FOUND]
        assert described[0].members[0].assignment.topic_partitions[0].topic_name == topic
        delete = DeleteGroupsRequest(groups_names=[group])
        assert one.wire.call(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
        assert one.heartbeat(-1).error_code == 0
        assert one.wire.call(delete, 2).results[0].error_code == 0
        assert one.heartbeat(1).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def lag_of(broker: BrokerProcess, group: str) -> tuple[str, int] | None:
    """The kind and the records of a group's last sample on /lag."""
    status, text, _ = get(address_of(broker), "/lag")
    samples = json.loads(text)["groups"] if status == 200 else []
    return next(((each["kind"], each["lag_records"]) for each in samples if each["group"] == group), None)


def test_a_restart_keeps_what_is_done_with(own_broker: Callable[..., BrokerProcess]) -> None:
    settings = {
        "metrics.listener": f"127.0.0.1:{free_port()}",
        "ottla.lag.history.enable": "true",
        "ottla.lag.history.interval.ms": 1000,
        "share.coordinator.snapshot.update.records.per.snapshot": 3,
    }
    broker = own_broker(settings=settings)
    group, topic = new_topic(broker)
    with Member(broker.port, group, topic).join() as one:
        assert one.acquire() == [(0, 9, 1)]
        for offset in (1, 3, 5, 7):
            assert one.outcome([(offset, offset, [1])]) == 0
        assert one.outcome([(0, 0, [1]), (9, 9, [2])]) == 0
        # Before the connection closes, which would release the others.
        broker.kill()
    broker.start()
    with Member(broker.port, group, topic).join() as one:
        # What was acquired then doesn't count as delivered; what was released does.
        assert one.acquire() == [(2, 2, 1), (4, 4, 1), (6, 6, 1), (8, 8, 1), (9, 9, 2)]
        wait_for(lambda: lag_of(broker, group) == ("share", 5), "the group's lag in a sample", every=0.2)
        found = scrape(broker)
        assert found("kafka_consumergroup_lag_sum", consumergroup=group) == 5
        assert 0 < (found("ottla_group_lag_seconds_max", group=group) or 0) < 3600
        for _ in range(4):
            assert one.outcome([(9, 9, [2])]) == 0
            again = one.fetch(wait_ms=0)
            last = [each.delivery_count for each in again.responses[0].partitions[0].acquired_records]
            if last == [5]:
                break
        # After the fifth delivery it is archived.
        assert one.outcome([(9, 9, [2])]) == 0
        assert not one.fetch().responses


def test_records_of_a_key_wait_for_each_other(broker: BrokerProcess, member: Callable[..., Member]) -> None:
    group, topic = new_topic(broker, 0)
    with Wire(broker.port) as wire:
        configure(wire, group, share_key_ordered="true")
    # One of the batches is compressed, so that a thread decodes it.
    for compression in (None, "gzip"):
        with Producer(
            bootstrap_servers=broker.bootstrap, linger_ms=200, compression_type=compression
        ) as producer:
            for number in range(4):
                producer.send(topic, b"%d" % number, key=b"ab"[number % 2 : number % 2 + 1])
    with member(group, topic).join() as one, member(group, topic, "m2").join() as two:
        assert one.acquire(records=2, mode=1) == [(0, 1, 1)]
        # Both keys have acquired records.
        assert not two.fetch().responses[0].partitions[0].acquired_records
        assert one.outcome([(1, 1, [1])]) == 0
        got: list[int] = []

        def all_of_b() -> bool:
            for first, last, _ in two.acquire():
                got.extend(range(first, last + 1))
                assert two.outcome([(first, last, [1])]) == 0
            return got == [3, 5, 7]

        wait_for(all_of_b, "the records of the key b")
        assert one.outcome([(0, 0, [2])]) == 0
        assert one.acquire(records=2, mode=1) == [(0, 0, 2), (2, 2, 1)]
        assert one.outcome([(2, 2, [1])]) == ErrorCode.INVALID_RECORD_STATE
        assert one.outcome([(0, 0, [1]), (2, 2, [1])]) == 0


def test_a_group_of_very_many_partitions(broker: BrokerProcess) -> None:
    topic, group = f"wide-{next(_numbers)}", f"wide-group-{next(_numbers)}"
    with Wire(broker.port) as wire:
        wanted = CreatableTopic(name=topic, num_partitions=1_050, replication_factor=1)
        wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30000), 7)
        configure(wire, group, share_auto_offset_reset="earliest")
    with Member(broker.port, group, topic) as one:
        one.wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        assigned: list[int] = []

        def joined() -> bool:
            answer = one.heartbeat(0, [topic])
            assignment = answer.assignment
            assigned[:] = [] if assignment is None else assignment.topic_partitions[0].partitions
            return answer.error_code == 0 and len(assigned) == 1_050

        wait_for(joined, "a member with all partitions")
        request = ShareFetchRequest(
            group_id=group,
            member_id=one.member_id,
            share_session_epoch=0,
            max_wait_ms=60_000,
            min_bytes=1,
            max_records=10,
            topics=[
                FetchTopic(
                    topic_id=one.topic_id,
                    partitions=[FetchPartition(partition_index=index) for index in range(1_050)],
                )
            ],
        )
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(one.wire.call, request, 2)
            # It tries the partitions in several turns, and then waits for all of them.
            with Producer(bootstrap_servers=broker.bootstrap) as producer:
                producer.send_and_wait(topic, b"v", partition=1)
            partitions = answer.result(60).responses[0].partitions
            (found,) = [each for each in partitions if each.acquired_records]
        assert (found.partition_index, found.acquired_records[0].last_offset) == (1, 0)


def offsets_of(wire: Wire, group: str, topic: str | None, *partitions: int) -> list[tuple[int, int, int]]:
    """The start offset, the lag and the error of partitions; of all for None."""
    topics = None
    if topic is not None:
        topics = [DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions))]
    wanted = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    (answer,) = wire.call(DescribeShareGroupOffsetsRequest(groups=[wanted]), 1).groups
    assert answer.error_code == 0, answer
    return [(each.start_offset, each.lag, each.error_code) for of in answer.topics for each in of.partitions]


def alter_offset(wire: Wire, group: str, topic: str, index: int, offset: int) -> tuple[int, int | None]:
    """The error codes of the request and of the partition."""
    partition = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])]
    answer = wire.call(AlterShareGroupOffsetsRequest(group_id=group, topics=topics), 0)
    partitions = [each.error_code for of in answer.responses for each in of.partitions]
    return answer.error_code, partitions[0] if partitions else None


def delete_offsets(wire: Wire, group: str, *topics: str) -> list[int]:
    """The error code of the request, and those of the topics."""
    wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
    answer = wire.call(DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted), 0)
    return [answer.error_code, *(each.error_code for each in answer.responses)]


def test_the_offsets_of_a_group_are_shown_and_changed(
    broker: BrokerProcess, member: Callable[..., Member]
) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    group, topic = new_topic(broker)
    with Wire(broker.port) as wire:
        with member(group, topic).join() as one:
            # No one has asked for records yet.
            assert offsets_of(wire, group, None) == [(-1, -1, 0)]
            assert one.acquire() == [(0, 9, 1)]
            assert one.outcome([(0, 3, [1]), (5, 5, [1])]) == 0
            assert offsets_of(wire, group, topic, 0, 7) == [(-1, -1, unknown), (4, 5, 0)]
            assert offsets_of(wire, group, "missing", 0) == [(-1, -1, unknown)]
            assert alter_offset(wire, group, topic, 0, 2) == (ErrorCode.NON_EMPTY_GROUP, None)
            assert delete_offsets(wire, group, topic) == [ErrorCode.NON_EMPTY_GROUP]
            assert one.fetch(epoch=-1).error_code == 0
            assert one.heartbeat(-1).error_code == 0
        # Twice within a second: each is a new state epoch.
        for offset in (8, 2):
            assert alter_offset(wire, group, topic, 0, offset) == (0, 0)
        assert offsets_of(wire, group, None) == [(2, 8, 0)]
        for index, offset, code in ((7, 1, unknown), (0, -5, ErrorCode.INVALID_REQUEST)):
            assert alter_offset(wire, group, topic, index, offset) == (0, code)
        # As a new group does.
        assert alter_offset(wire, group, topic, 0, -1) == (0, 0)
        assert offsets_of(wire, group, None) == [(-1, -1, 0)]
        assert alter_offset(wire, group, topic, 0, 2) == (0, 0)
        assert offsets_of(wire, f"new-{group}", None) == []
        # A group that isn't there is made, once something of it is written.
        assert alter_offset(wire, f"new-{group}", "missing", 0, 1) == (0, unknown)
        assert delete_offsets(wire, f"new-{group}", topic) == [ErrorCode.GROUP_ID_NOT_FOUND]
        assert alter_offset(wire, f"new-{group}", topic, 0, 3) == (0, 0)
        assert offsets_of(wire, f"new-{group}", None) == [(3, 7, 0)]
        with member(group, topic).join() as one:
            assert one.acquire() == [(2, 9, 1)]
            assert one.outcome([(2, 9, [1])]) == 0
            assert offsets_of(wire, group, None) == [(10, 0, 0)]
            assert one.fetch(epoch=-1).error_code == 0
            assert one.heartbeat(-1).error_code == 0
        assert delete_offsets(wire, group, topic, "missing") == [0, 0, unknown]
        assert offsets_of(wire, group, None) == []
        assert offsets_of(wire, group, topic, 0) == [(-1, -1, 0)]
        with member(group, topic).join() as one:
            assert one.acquire() == [(0, 9, 1)]


def test_the_state_of_a_deleted_topic_is_deleted(
    broker: BrokerProcess, member: Callable[..., Member]
) -> None:
    group, topic = new_topic(broker)
    with member(group, topic).join() as one, Wire(broker.port) as wire:
        assert one.acquire() == [(0, 9, 1)]
        assert kept_states(broker.bootstrap, group) == {0: True}
        deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=30000)
        assert wire.call(deleted, 6).responses[0].error_code == 0
        wait_for(lambda: kept_states(broker.bootstrap, group) == {0: False}, "the state to be deleted")
        assert offsets_of(wire, group, None) == []
        # One of the same name is another topic.
        wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
        wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30000), 7)
    produce(broker, topic, 3)
    with member(group, topic, "m2") as one:

        def assigned() -> bool:
            return bool((one.heartbeat(0, [topic]).assignment or NOTHING).topic_partitions)

        wait_for(assigned, "the member to have the new topic")
        assert one.acquire() == [(0, 2, 1)]
