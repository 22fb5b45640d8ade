"""Quotas in a running broker: a client that exceeds one has to wait and isn't read meanwhile; others don't wait."""

from __future__ import annotations

import select
from collections.abc import Iterator

import pytest
from tests.badinput.requests import fetch_request, produce_request, records
from tests.support.processes import BrokerProcess
from tests.support.share import Member, configure
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from ottla_protocol.messages.metadata import MetadataRequest

CLIENT = "wire"
TOPIC = "limited"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    running = BrokerProcess(tmp_path_factory.mktemp("quotas") / "data").start()
    with Wire(running.port) as wire:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].error_code == 0
    yield running
    assert running.stop() == 0


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Wire]:
    """No quotas are left behind."""
    with Wire(broker.port) as connection:
        yield connection
        everything = (
            "producer_byte_rate",
            "consumer_byte_rate",
            "request_percentage",
            "controller_mutation_rate",
        )
        alter(connection, **dict.fromkeys(everything))


def alter(wire: Wire, **values: float | None) -> None:
    """Set quotas of this test's client id; None removes one."""
    entry = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name=CLIENT)],
        ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )
    wire.send(request_bytes(AlterClientQuotasRequest(entries=[entry]), 1, client_id="admin"))
    wire.receive()


def is_read(wire: Wire, seconds: float = 0.2) -> bool:
    """Whether the broker answers a request within a while."""
    wire.send(request_bytes(ApiVersionsRequest(), 0, 99, CLIENT))
    return bool(select.select([wire.socket], [], [], seconds)[0])


def test_produce(broker: BrokerProcess, admin: Wire, wire: Wire) -> None:
    request = produce_request(TOPIC, bytes(records(b"x" * 50_000)))
    assert wire.call(request, 9).throttle_time_ms == 0
    # Ten times what eleven seconds allow: the wait is long enough for this test to see it.
    alter(admin, producer_byte_rate=500)
    answer = wire.call(request, 9)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert answer.throttle_time_ms > 60_000
    assert not is_read(wire)
    with Wire(broker.port) as other:
        other.send(request_bytes(request, 9, 1, "another"))
        assert other.receive()
    alter(admin, producer_byte_rate=None)
    with Wire(broker.port) as again:
        assert again.call(request, 9).throttle_time_ms == 0


def test_produce_without_acknowledgements(admin: Wire, wire: Wire) -> None:
    alter(admin, producer_byte_rate=500)
    wire.send(request_bytes(produce_request(TOPIC, bytes(records(b"x" * 50_000)), acks=0), 9))
    assert not is_read(wire)


def test_fetch(admin: Wire, wire: Wire) -> None:
    for _ in range(4):
        wire.call(produce_request(TOPIC, bytes(records(b"x" * 20_000))), 9)
    alter(admin, consumer_byte_rate=1_000_000)
    assert wire.call(fetch_request(TOPIC, 0), 12).throttle_time_ms == 0
    alter(admin, consumer_byte_rate=200)
    answer = wire.call(fetch_request(TOPIC, 0), 12)
    # As with any limit, the first batch comes whole.
    assert answer.responses[0].partitions[0].records
    assert answer.throttle_time_ms > 5000
    assert not is_read(wire)


def test_share_fetch(broker: BrokerProcess, admin: Wire) -> None:
    admin.call(produce_request(TOPIC, bytes(records(b"x" * 20_000))), 9)
    configure(admin, "sharing", share_auto_offset_reset="earliest")
    with Member(broker.port, "sharing", TOPIC).join() as member:
        alter(admin, consumer_byte_rate=200)
        waits: list[int] = []

        def has_records() -> bool:
            answer = member.fetch(wait_ms=500)
            waits.append(answer.throttle_time_ms)
            return any(each.records for topic in answer.responses for each in topic.partitions)

        wait_for(has_records, "records to acquire")
        assert waits[-1] > 5000
        assert not is_read(member.wire)


def test_time(admin: Wire, wire: Wire) -> None:
    alter(admin, request_percentage=0.0000001)
    answer = wire.call(MetadataRequest(topics=None), 9)
    assert 0 < answer.throttle_time_ms <= 1000
    # A window at most: the next request is read, and its client has to wait once more.
    assert wire.call(MetadataRequest(topics=None), 9).throttle_time_ms > 0


def test_creations_and_deletions(admin: Wire, wire: Wire) -> None:
    alter(admin, controller_mutation_rate=0.1)

    def create(name: str, version: int) -> tuple[int, int]:
        topic = CreatableTopic(name=name, num_partitions=5, replication_factor=1)
        answer = wire.call(CreateTopicsRequest(topics=[topic], validate_only=True), version)
        return answer.topics[0].error_code, answer.throttle_time_ms

    # The burst is 1.1 partitions; a request may overdraw it once.
    assert create("one", 7) == (0, 0)
    code, wait_ms = create("two", 7)
    assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert wait_ms > 30_000
    assert not is_read(wire)


@pytest.mark.parametrize("old", [False, True])
def test_what_is_done_while_the_quota_is_exhausted(broker: BrokerProcess, admin: Wire, old: bool) -> None:
    """Old clients can't be refused: they wait afterwards (KIP-599)."""
    alter(admin, controller_mutation_rate=0.01)
    topic = CreatableTopic(name="spent", num_partitions=1, replication_factor=1)
    requests = [
        (CreateTopicsRequest(topics=[topic], validate_only=True), (5, 7)),
        (
            CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=TOPIC, count=9)], validate_only=True),
            (2, 3),
        ),
        (
            DeleteTopicsRequest(topic_names=["gone"])
            if old
            else DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]),
            (4, 6),
        ),
    ]
    with Wire(broker.port) as spend:
        spend.call(requests[0][0], 7)
    for request, versions in requests:
        with Wire(broker.port) as wire:
            answer = wire.call(request, versions[0 if old else 1])
        results = next(
            getattr(answer, name) for name in ("topics", "results", "responses") if hasattr(answer, name)
        )
        refused = results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert refused is not old, request
        assert answer.throttle_time_ms > 0


def test_quotas_survive_a_restart(broker: BrokerProcess) -> None:
    with Wire(broker.port) as wire:
        alter(wire, producer_byte_rate=12_345)
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        answer = wire.call(DescribeClientQuotasRequest(), 1)
        (entry,) = answer.entries
        assert [(part.entity_type, part.entity_name) for part in entry.entity] == [("client-id", CLIENT)]
        assert [(value.key, value.value) for value in entry.values] == [("producer_byte_rate", 12_345)]
        alter(wire, producer_byte_rate=None)
        assert wire.call(DescribeClientQuotasRequest(), 1).entries == []


def test_connections_of_an_address(broker: BrokerProcess) -> None:
    def limit(rate: float | None) -> None:
        entry = EntryData(
            entity=[EntityData(entity_type="ip", entity_name="127.0.0.3")],
            ops=[OpData(key="connection_creation_rate", value=rate or 0.0, remove=rate is None)],
        )
        with Wire(broker.port) as wire:
            assert wire.call(AlterClientQuotasRequest(entries=[entry]), 1).entries[0].error_code == 0

    limit(0)
    with Wire(broker.port, source="127.0.0.3") as refused:
        assert refused.is_closed()
    limit(None)
    with Wire(broker.port, source="127.0.0.3") as wire:
        assert wire.call(ApiVersionsRequest(), 0).error_code == 0
