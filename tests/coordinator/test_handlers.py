"""The handlers of the group APIs, in every served version."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from tests.coordinator.harness import DELAY_MS, FakePartition, NoTopics, usual_times
from tests.coordinator.transactions import TransactionWorld
from tests.support.clock import FakeClock
from tests.support.handlers import awaited, handled, module_of, request_context, services, when_answered

from ottla_broker.config import BrokerConfig
from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.handlers import describe_groups
from ottla_broker.handlers.index import INDEX
from ottla_broker.log.config import LogConfig
from ottla_broker.metadata.cache import BrokerInfo, MetadataCache, PartitionInfo, TopicInfo
from ottla_broker.replica.transaction_verifier import Verification, Verified
from ottla_broker.requests.inline import Running
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages.delete_groups import DeleteGroupsRequest
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla_protocol.messages.list_groups import ListGroupsRequest
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla_protocol.registry import response_class


def topic(name: str, partitions: int) -> TopicInfo:
    infos = {index: PartitionInfo(index, 1, 0, [1], [1]) for index in range(partitions)}
    return TopicInfo(name, name.encode().ljust(16, b"\0"), infos, False, {}, LogConfig())


class FakeController:
    def __init__(self, metadata: MetadataCache) -> None:
        self.metadata = metadata
        self.fails = False

    async def ensure_topic(self, name: str) -> TopicInfo:
        if self.fails:
            raise KafkaError(Code.INVALID_REPLICATION_FACTOR)
        made = topic(name, 3)
        self.metadata.put(made)
        return made


class FakeBroker:
    """The parts of a broker that the handlers use, with topic ``t`` of two partitions."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.joined = None
        self.metadata = MetadataCache("cluster", 1)
        self.metadata.put(topic("t", 2))
        self.metadata.brokers[1] = BrokerInfo(1, "10.0.0.1", 9092, None, {"INSIDE": ("inside", 19092)})
        self.controller = FakeController(self.metadata)
        self.partitions = [FakePartition(index) for index in range(3)]
        self.groups = GroupCoordinator(
            GroupSettings(), self.clock, random.Random(1), lambda: 3, NoTopics(), usual_times
        )
        self.groups.start()
        for partition in self.partitions:
            self.groups.on_leader(partition)
        self.world = TransactionWorld(clock=self.clock)
        self.transactions = self.world.coordinator
        self.verdicts: dict[tuple[str, int], Code] | None = {}
        self.asked: list[tuple[Verification, Verified]] = []
        self.clock.run_due()

    def verify(self, verification: Verification, verified: Verified) -> None:
        """As a TransactionVerifier: answers at once, unless ``verdicts`` is None."""
        self.asked.append((verification, verified))
        if self.verdicts is not None:
            verified(self.verdicts)

    def ask(self, api: ApiKey, version: int, request: Any, listener: str = "PLAINTEXT") -> Any:
        """Encode, decode and handle a request; returns a Waiting if there is no answer yet."""
        sent = type(request).decode(request.encode(version), version)
        given = services(
            clock=self.clock,
            metadata=self.metadata,
            controller=self.controller,
            groups=self.groups,
            transactions=self.transactions,
            transaction_verifier=self,
            config=BrokerConfig.from_properties({}),
            joined=self.joined,
        )
        context = request_context(given, version, api, listener, client_id="me")
        answer = handled(module_of(api), context, sent)
        return (
            Waiting(answer, api, version) if isinstance(answer, Running) else received(answer, api, version)
        )


class Waiting:
    def __init__(self, running: Running[Any], api: ApiKey, version: int) -> None:
        self.heard: list[Any] = []
        self.running, self.api, self.version = running, api, version
        when_answered(running, self.heard.append)

    @property
    def answer(self) -> Any:
        return received(self.heard[0], self.api, self.version)

    async def until_answered(self) -> Any:
        await awaited(self.running)
        return received(self.running.value(), self.api, self.version)


def received(answer: Any, api: ApiKey, version: int) -> Any:
    """The answer after encoding and decoding."""
    cls = response_class(api)
    assert isinstance(answer, cls)
    return cls.decode(answer.encode(version), version)


def versions(api: ApiKey, first: int = 0) -> Callable[[Any], Any]:
    served = INDEX[api]
    return pytest.mark.parametrize("version", range(max(first, served.min_version), served.max_version + 1))


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def join_request(member_id: str = "", **more: Any) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t\0\0\0\0")],
        **more,
    )


def member(broker: FakeBroker, version: int = 0) -> str:
    """The one member of a stable group, in generation 1."""
    waiting = broker.ask(ApiKey.JOIN_GROUP, version, join_request())
    if version >= 4:
        waiting = broker.ask(ApiKey.JOIN_GROUP, version, join_request(waiting.member_id))
    broker.clock.advance(DELAY_MS / 1000)
    member_id: str = waiting.answer.member_id
    broker.ask(
        ApiKey.SYNC_GROUP,
        0,
        SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
        ),
    )
    return member_id


@versions(ApiKey.JOIN_GROUP)
def test_join(broker: FakeBroker, version: int) -> None:
    answer = broker.ask(ApiKey.JOIN_GROUP, version, join_request())
    if version >= 4:
        assert answer.error_code == Code.MEMBER_ID_REQUIRED
        assert answer.generation_id == -1
        answer = broker.ask(ApiKey.JOIN_GROUP, version, join_request(answer.member_id))
    broker.clock.advance(DELAY_MS / 1000)
    joined = answer.answer
    assert joined.error_code == 0
    assert joined.member_id.startswith("me-")
    assert joined.leader == joined.member_id == joined.members[0].member_id
    assert joined.protocol_name == "range"
    assert joined.protocol_type == ("consumer" if version >= 7 else None)


@versions(ApiKey.JOIN_GROUP)
def test_a_join_that_fails(broker: FakeBroker, version: int) -> None:
    answer = broker.ask(ApiKey.JOIN_GROUP, version, join_request("stranger"))
    assert answer.error_code == Code.UNKNOWN_MEMBER_ID
    assert answer.protocol_name == (None if version >= 7 else "")


@versions(ApiKey.JOIN_GROUP)
def test_a_protocol_without_a_name_is_null(broker: FakeBroker, version: int) -> None:
    request = join_request()
    request.protocols[0].name = ""
    answer = broker.ask(ApiKey.JOIN_GROUP, version, request)
    if version >= 4:
        request.member_id = answer.member_id
        answer = broker.ask(ApiKey.JOIN_GROUP, version, request)
    broker.clock.advance(DELAY_MS / 1000)
    assert answer.answer.protocol_name == (None if version >= 7 else "")


def test_version_0_takes_the_session_timeout_for_the_rebalance(broker: FakeBroker) -> None:
    member(broker)
    [(found, _, _)] = broker.groups.describe("g").members
    assert (found.rebalance_timeout_ms, found.session_timeout_ms) == (10_000, 10_000)
    assert (found.client_id, found.client_host) == ("me", "/127.0.0.1")


@versions(ApiKey.SYNC_GROUP)
def test_sync(broker: FakeBroker, version: int) -> None:
    member_id = member(broker)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member_id)
    if version >= 5:
        assert broker.ask(ApiKey.SYNC_GROUP, version, request).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type, request.protocol_name = "consumer", "range"
    answer = broker.ask(ApiKey.SYNC_GROUP, version, request)
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    request.generation_id = 2
    assert broker.ask(ApiKey.SYNC_GROUP, version, request).error_code == Code.ILLEGAL_GENERATION


@versions(ApiKey.HEARTBEAT)
def test_heartbeat(broker: FakeBroker, version: int) -> None:
    member_id = member(broker)
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
    assert broker.ask(ApiKey.HEARTBEAT, version, request).error_code == 0
    request.member_id = "stranger"
    assert broker.ask(ApiKey.HEARTBEAT, version, request).error_code == Code.UNKNOWN_MEMBER_ID


@versions(ApiKey.LEAVE_GROUP)
def test_leave(broker: FakeBroker, version: int) -> None:
    member_id = member(broker)

    def request(*names: str) -> LeaveGroupRequest:
        if version < 3:
            return LeaveGroupRequest(group_id="g", member_id=names[0])
        return LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=name) for name in names])

    answer = broker.ask(ApiKey.LEAVE_GROUP, version, request("stranger", member_id))
    if version < 3:
        assert answer.error_code == Code.UNKNOWN_MEMBER_ID
        assert broker.ask(ApiKey.LEAVE_GROUP, version, request(member_id)).error_code == 0
    else:
        assert [(m.member_id, m.error_code) for m in answer.members] == [
            ("stranger", Code.UNKNOWN_MEMBER_ID),
            (member_id, 0),
        ]
    assert broker.groups.describe("g").state == "Empty"


def commit_request(**more: Any) -> OffsetCommitRequest:
    def partition(index: int) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=index, committed_offset=40 + index, committed_metadata="note"
        )

    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(name="unknown", partitions=[partition(0)]),
            OffsetCommitRequestTopic(name="t", partitions=[partition(0), partition(1), partition(2)]),
            OffsetCommitRequestTopic(name="without partitions", partitions=[]),
        ],
        **more,
    )


@versions(ApiKey.OFFSET_COMMIT, first=1)  # version 0 goes to ZooKeeper
def test_commit(broker: FakeBroker, version: int) -> None:
    gone = commit_request(generation_id_or_member_epoch=3, member_id="a member")
    answer = broker.ask(ApiKey.OFFSET_COMMIT, version, gone)
    assert {p.error_code for p in answer.topics[1].partitions[:2]} == {Code.ILLEGAL_GENERATION}
    answer = broker.ask(ApiKey.OFFSET_COMMIT, version, commit_request())
    assert [(t.name, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics] == [
        ("unknown", [(0, Code.UNKNOWN_TOPIC_OR_PARTITION)]),
        ("t", [(0, 0), (1, 0), (2, Code.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    request = commit_request(generation_id_or_member_epoch=3, member_id="stranger")
    answer = broker.ask(ApiKey.OFFSET_COMMIT, version, request)
    assert [p.error_code for p in answer.topics[1].partitions] == [
        Code.UNKNOWN_MEMBER_ID,
        Code.UNKNOWN_MEMBER_ID,
        Code.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_commit_for_unknown_partitions_makes_no_group(broker: FakeBroker) -> None:
    request = commit_request()
    del request.topics[1]
    answer = broker.ask(ApiKey.OFFSET_COMMIT, 9, request)
    assert answer.topics[0].partitions[0].error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert list(broker.groups.list([], [])[1]) == []


def test_a_retention_time_becomes_an_expiry(broker: FakeBroker) -> None:
    broker.ask(ApiKey.OFFSET_COMMIT, 2, commit_request(retention_time_ms=60_000))
    broker.clock.advance(700)
    assert list(broker.groups.list([], [])[1]) == []


@versions(ApiKey.OFFSET_FETCH, first=1)  # version 0 goes to ZooKeeper
def test_fetch(broker: FakeBroker, version: int) -> None:
    broker.ask(ApiKey.OFFSET_COMMIT, 9, commit_request())

    def ask(
        group_id: str, topics: dict[str, list[int]] | None
    ) -> tuple[int, dict[str, list[tuple[int, ...]]]]:
        if version < 8:
            wanted = topics and [
                OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
            request = OffsetFetchRequest(group_id=group_id, topics=wanted)
        else:
            several = topics and [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes)
                for name, indexes in topics.items()
            ]
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=several)])
        answer = broker.ask(ApiKey.OFFSET_FETCH, version, request)
        one = answer if version < 8 else answer.groups[0]
        return one.error_code, {
            t.name: [(p.partition_index, p.committed_offset, p.metadata, p.error_code) for p in t.partitions]
            for t in one.topics
        }

    assert ask("g", {"t": [0, 7]}) == (0, {"t": [(0, 40, "note", 0), (7, -1, "", 0)]})
    assert ask("g", {"t": [0], "u": []}) == (0, {"t": [(0, 40, "note", 0)]}), "as Kafka leaves it out"
    assert ask("other", {"t": [0]}) == (0, {"t": [(0, -1, "", 0)]})
    if version >= 2:
        assert ask("g", None) == (0, {"t": [(0, 40, "note", 0), (1, 41, "note", 0)]})
    broker.groups.on_stop("__consumer_offsets", broker.groups.partition_for("g"))
    code, found = ask("g", {"t": [0]})
    if version < 2:
        assert found == {"t": [(0, -1, "", Code.NOT_COORDINATOR)]}
    else:
        assert (code, found) == (Code.NOT_COORDINATOR, {})


@versions(ApiKey.DESCRIBE_GROUPS)
def test_describe(broker: FakeBroker, version: int) -> None:
    member_id = member(broker)
    request = DescribeGroupsRequest(groups=["g", "nothing"], include_authorized_operations=version >= 3)
    found, nothing = broker.ask(ApiKey.DESCRIBE_GROUPS, version, request).groups
    assert (found.error_code, found.group_state, found.protocol_data) == (0, "Stable", "range")
    assert [(m.member_id, m.member_assignment) for m in found.members] == [(member_id, b"mine")]
    assert (nothing.error_code, nothing.group_state, nothing.members) == (0, "Dead", [])
    assert found.authorized_operations == (328 if version >= 3 else -(2**31))
    request.include_authorized_operations = False
    found, _ = broker.ask(ApiKey.DESCRIBE_GROUPS, version, request).groups
    assert found.authorized_operations == -(2**31)


def test_a_description_that_fills_the_answer_is_its_last(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(describe_groups, "MOST_ANSWER", 100)
    member(broker)
    asked = DescribeGroupsRequest(groups=["nothing", "g", "later"])
    nothing, found, later = broker.ask(ApiKey.DESCRIBE_GROUPS, 5, asked).groups
    assert (nothing.error_code, found.error_code, len(found.members)) == (0, 0, 1)
    # Clients ask for it again, without the others.
    assert later.error_code == Code.COORDINATOR_LOAD_IN_PROGRESS


@versions(ApiKey.LIST_GROUPS)
def test_list(broker: FakeBroker, version: int) -> None:
    member(broker)
    [found] = broker.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest()).groups
    assert (found.group_id, found.protocol_type) == ("g", "consumer")
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")
    if version >= 4:
        assert (
            broker.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(states_filter=["Empty"])).groups == []
        )
    if version >= 5:
        assert (
            broker.ask(ApiKey.LIST_GROUPS, version, ListGroupsRequest(types_filter=["consumer"])).groups == []
        )


@versions(ApiKey.DELETE_GROUPS)
def test_delete(broker: FakeBroker, version: int) -> None:
    broker.ask(ApiKey.OFFSET_COMMIT, 9, commit_request())
    answer = broker.ask(ApiKey.DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=["g", "nothing"]))
    assert {r.group_id: r.error_code for r in answer.results} == {"g": 0, "nothing": Code.GROUP_ID_NOT_FOUND}


def test_delete_offsets(broker: FakeBroker) -> None:
    broker.ask(ApiKey.OFFSET_COMMIT, 9, commit_request())

    def ask(group_id: str) -> Any:
        partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in (0, 5)]
        request = OffsetDeleteRequest(
            group_id=group_id, topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)]
        )
        return broker.ask(ApiKey.OFFSET_DELETE, 0, request)

    answer = ask("g")
    assert answer.error_code == 0
    assert [(p.partition_index, p.error_code) for p in answer.topics[0].partitions] == [
        (0, 0),
        (5, Code.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    answer = ask("nothing")
    assert (answer.error_code, answer.topics) == (Code.GROUP_ID_NOT_FOUND, [])


def find_request(version: int, *keys: str, key_type: int = 0) -> FindCoordinatorRequest:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=list(keys), key_type=key_type)
    return FindCoordinatorRequest(key=keys[0], key_type=key_type)


def found(answer: Any, version: int) -> list[tuple[int, int, str, int]]:
    every = answer.coordinators if version >= 4 else [answer]
    return [(one.error_code, one.node_id, one.host, one.port) for one in every]


@pytest.mark.parametrize("version", range(1, 7))
async def test_find_a_transaction_coordinator(broker: FakeBroker, version: int) -> None:
    making = broker.ask(ApiKey.FIND_COORDINATOR, version, find_request(version, "x", key_type=1))
    answer = await making.until_answered()
    assert found(answer, version) == [(0, 1, "10.0.0.1", 9092)]
    info = broker.metadata.topic("__transaction_state")
    assert info is not None
    assert broker.metadata.topic("__consumer_offsets") is None
    info.partitions.clear()
    broker.metadata.put(info)
    answer = broker.ask(ApiKey.FIND_COORDINATOR, version, find_request(version, "x", key_type=1))
    assert found(answer, version) == [(Code.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]


@versions(ApiKey.FIND_COORDINATOR)
async def test_find(broker: FakeBroker, version: int) -> None:
    # The first to ask has the topic made.
    making = broker.ask(ApiKey.FIND_COORDINATOR, version, find_request(version, "g", "h"))
    answer = await making.until_answered()
    here = (0, 1, "10.0.0.1", 9092)
    assert found(answer, version) == [here, here][: 2 if version >= 4 else 1]
    if version >= 4:
        assert [one.key for one in answer.coordinators] == ["g", "h"]
    answer = broker.ask(ApiKey.FIND_COORDINATOR, version, find_request(version, "g"), "INSIDE")
    assert found(answer, version) == [(0, 1, "inside", 19092)]
    del broker.metadata.brokers[1]
    answer = broker.ask(ApiKey.FIND_COORDINATOR, version, find_request(version, "g"))
    assert found(answer, version) == [(Code.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]


@pytest.mark.parametrize("version", range(1, 7))
def test_coordinators_on_other_brokers(broker: FakeBroker, version: int) -> None:
    def ask(key_type: int) -> Code:
        answer = broker.ask(ApiKey.FIND_COORDINATOR, version, find_request(version, "x", key_type=key_type))
        [(code, node, _, _)] = found(answer, version)
        assert node == -1
        one = answer.coordinators[0] if version >= 4 else answer
        assert one.error_message or code == Code.COORDINATOR_NOT_AVAILABLE
        return Code(code)

    assert ask(2) is (Code.COORDINATOR_NOT_AVAILABLE if version >= 6 else Code.INVALID_REQUEST)
    assert ask(9) is Code.INVALID_REQUEST


async def test_a_topic_that_cannot_be_created(broker: FakeBroker) -> None:
    broker.controller.fails = True
    answer = await broker.ask(ApiKey.FIND_COORDINATOR, 6, find_request(6, "g")).until_answered()
    assert found(answer, 6) == [(Code.COORDINATOR_NOT_AVAILABLE, -1, "", -1)]
