"""The handlers of the transaction APIs in every version, with a coordinator in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.coordinator.test_handlers import FakeBroker
from tests.support.handlers import INTER_BROKER

from ottla_broker.coordinator.transaction.metadata import Producer
from ottla_broker.handlers.index import INDEX
from ottla_broker.log.verification import VerificationGuard
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla_protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla_protocol.messages.end_txn import EndTxnRequest
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.list_transactions import ListTransactionsRequest
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)


def versions(api: ApiKey) -> Any:
    served = INDEX[api]
    return pytest.mark.parametrize("version", range(served.min_version, served.max_version + 1))


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def add_request(
    version: int,
    producer: Producer,
    *topics: tuple[str, list[int]],
    name: str = "x",
    verify_only: bool = False,
) -> AddPartitionsToTxnRequest:
    asked = [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in topics]
    if version < 4:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=asked,
        )
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.id,
                producer_epoch=producer.epoch,
                verify_only=verify_only,
                topics=asked,
            )
        ]
    )


def added(answer: Any, version: int) -> dict[tuple[str, int], Code]:
    if version >= 4:
        assert answer.error_code == 0
        [result] = answer.results_by_transaction
        assert result.transactional_id == "x"
        topics = result.topic_results
    else:
        topics = answer.results_by_topic_v3_and_below
    return {
        (topic.name, each.partition_index): Code(each.partition_error_code)
        for topic in topics
        for each in topic.results_by_partition
    }


def add(
    broker: FakeBroker, version: int, producer: Producer, *topics: tuple[str, list[int]], **options: Any
) -> dict[tuple[str, int], Code]:
    answer = broker.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        add_request(version, producer, *topics, **options),
        INTER_BROKER if version >= 4 else "PLAINTEXT",
    )
    return added(answer, version)


def init(broker: FakeBroker, version: int, **options: Any) -> Any:
    given = {"transactional_id": "x", "transaction_timeout_ms": 1000, **options}
    return broker.ask(ApiKey.INIT_PRODUCER_ID, version, InitProducerIdRequest(**given))


@versions(ApiKey.INIT_PRODUCER_ID)
def test_init_producer_id(broker: FakeBroker, version: int) -> None:
    first = init(broker, version)
    assert (first.error_code, first.producer_id, first.producer_epoch) == (0, 1000, 0)
    assert init(broker, version).producer_epoch == 1
    assert init(broker, version, transactional_id="").error_code == Code.INVALID_REQUEST
    refused = init(broker, version, transaction_timeout_ms=0)
    assert (refused.error_code, refused.producer_id, refused.producer_epoch) == (
        Code.INVALID_TRANSACTION_TIMEOUT,
        -1,
        -1,
    )
    if version >= 3:
        again = init(broker, version, producer_id=1000, producer_epoch=1)
        assert (again.producer_id, again.producer_epoch) == (1000, 2)
        fenced = init(broker, version, producer_id=1000, producer_epoch=0)
        assert fenced.error_code == (Code.PRODUCER_FENCED if version >= 4 else Code.INVALID_PRODUCER_EPOCH)
        half = init(broker, version, producer_id=1000)
        assert half.error_code == Code.INVALID_REQUEST


@versions(ApiKey.ADD_PARTITIONS_TO_TXN)
def test_add_partitions(broker: FakeBroker, version: int) -> None:
    producer = broker.world.producer()
    assert add(broker, version, producer, ("t", [1, 0])) == {("t", 0): Code.NONE, ("t", 1): Code.NONE}
    assert broker.world.metadata().partitions == {("t", 0), ("t", 1)}
    assert add(broker, version, producer, ("t", [0, 7]), ("no", [1])) == {
        ("t", 0): Code.OPERATION_NOT_ATTEMPTED,
        ("t", 7): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("no", 1): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    fenced = Code.PRODUCER_FENCED if version >= 2 else Code.INVALID_PRODUCER_EPOCH
    assert add(broker, version, Producer(producer.id, -1), ("t", [0])) == {("t", 0): fenced}
    if version < 4:
        answers = add(broker, version, producer, ("t", [0]), ("__consumer_offsets", [0]))
        assert answers["__consumer_offsets", 0] is Code.TOPIC_AUTHORIZATION_FAILED


@versions(ApiKey.ADD_PARTITIONS_TO_TXN)
def test_add_partitions_while_the_cluster_is_unknown(broker: FakeBroker, version: int) -> None:
    producer = broker.world.producer()
    broker.joined = asyncio.Event()  # type: ignore[assignment]
    assert add(broker, version, producer, ("t", [0])) == {("t", 0): Code.COORDINATOR_LOAD_IN_PROGRESS}


@pytest.mark.parametrize("version", [4, 5])
def test_verification(broker: FakeBroker, version: int) -> None:
    producer = broker.world.producer()
    broker.world.add(producer, (0,))
    lacks = Code.TRANSACTION_ABORTABLE if version >= 5 else Code.INVALID_TXN_STATE
    asked = add(broker, version, producer, ("t", [0, 1]), verify_only=True)
    assert asked == {("t", 0): Code.NONE, ("t", 1): lacks}
    assert broker.world.metadata().partitions == {("t", 0)}
    old = add(broker, version, Producer(producer.id, -1), ("t", [0]), verify_only=True)
    assert old == {("t", 0): Code.PRODUCER_FENCED}


@pytest.mark.parametrize("version", [4, 5])
def test_only_brokers_ask_for_several(broker: FakeBroker, version: int) -> None:
    request = add_request(version, Producer(1, 0), ("t", [0]))
    answer = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request)
    assert answer.error_code == Code.CLUSTER_AUTHORIZATION_FAILED
    assert not answer.results_by_transaction


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions(broker: FakeBroker, version: int) -> None:
    producers = {name: broker.world.producer(name) for name in "ab"}
    request = AddPartitionsToTxnRequest(
        transactions=[
            add_request(version, producer, ("t", [0]), name=name).transactions[0]
            for name, producer in [*producers.items(), ("lost", Producer(1, 0))]
        ]
    )
    answer = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, request, INTER_BROKER)
    assert [
        (each.transactional_id, each.topic_results[0].results_by_partition[0].partition_error_code)
        for each in answer.results_by_transaction
    ] == [("a", 0), ("b", 0), ("lost", Code.INVALID_PRODUCER_ID_MAPPING)]
    nothing = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, AddPartitionsToTxnRequest(), INTER_BROKER)
    assert nothing.results_by_transaction == []


@versions(ApiKey.ADD_OFFSETS_TO_TXN)
def test_add_offsets(broker: FakeBroker, version: int) -> None:
    producer = broker.world.producer()

    def ask(producer: Producer) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=producer.id, producer_epoch=producer.epoch, group_id="g"
        )
        return int(broker.ask(ApiKey.ADD_OFFSETS_TO_TXN, version, request).error_code)

    assert ask(producer) == 0
    partition = broker.groups.partition_for("g")
    assert broker.world.metadata().partitions == {("__consumer_offsets", partition)}
    fenced = Code.PRODUCER_FENCED if version >= 2 else Code.INVALID_PRODUCER_EPOCH
    assert ask(Producer(producer.id, -1)) == fenced


@versions(ApiKey.END_TXN)
def test_end(broker: FakeBroker, version: int) -> None:
    producer = broker.world.producer()

    def ask(producer: Producer, commit: bool) -> Any:
        request = EndTxnRequest(
            transactional_id="x",
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=commit,
        )
        return broker.ask(ApiKey.END_TXN, version, request)

    assert ask(producer, True).error_code == Code.INVALID_TXN_STATE
    for commit in (True, False):
        broker.world.add(producer)
        answer = ask(producer, commit)
        assert answer.error_code == 0
        assert broker.world.markers()[-1].commit is commit
        if version >= 5:
            assert (answer.producer_id, answer.producer_epoch) == (producer.id, producer.epoch + 1)
            producer = Producer(answer.producer_id, answer.producer_epoch)
    fenced = Code.PRODUCER_FENCED if version >= 2 else Code.INVALID_PRODUCER_EPOCH
    assert ask(Producer(producer.id, -1), True).error_code == fenced


def test_an_answer_that_waits_for_the_log(broker: FakeBroker) -> None:
    producer = broker.world.producer()
    broker.world.partition.hold = True
    answer = broker.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, add_request(3, producer, ("t", [0])))
    assert not answer.heard
    broker.world.partition.release()
    assert answer.heard


def offsets_request(version: int, **options: Any) -> TxnOffsetCommitRequest:
    partitions = [
        TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=10 + index, committed_metadata="m"
        )
        for index in (0, 9)
    ]
    topics = [
        TxnOffsetCommitRequestTopic(name="t", partitions=partitions),
        TxnOffsetCommitRequestTopic(name="no", partitions=partitions[:1]),
    ]
    return TxnOffsetCommitRequest(
        **{
            "transactional_id": "x",
            "group_id": "g",
            "producer_id": 7,
            "producer_epoch": 0,
            "topics": topics,
            **options,
        }
    )


def codes(answer: Any) -> dict[tuple[str, int], Code]:
    return {
        (topic.name, each.partition_index): Code(each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    }


@versions(ApiKey.TXN_OFFSET_COMMIT)
def test_offsets(broker: FakeBroker, version: int) -> None:
    answer = broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, offsets_request(version))
    assert codes(answer) == {
        ("t", 0): Code.NONE,
        ("t", 9): Code.UNKNOWN_TOPIC_OR_PARTITION,
        ("no", 0): Code.UNKNOWN_TOPIC_OR_PARTITION,
    }
    broker.groups.complete_transaction(range(3), 7, True)
    _, [(_, [found])] = broker.groups.fetch("g", [("t", [0])], True)
    assert (found.offset, found.metadata) == (10, "m")
    if version >= 3:
        request = offsets_request(version, generation_id=4, member_id="other")
        assert codes(broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, request))["t", 0] is (
            Code.UNKNOWN_MEMBER_ID
        )


@versions(ApiKey.TXN_OFFSET_COMMIT)
def test_offsets_while_loading(broker: FakeBroker, version: int) -> None:
    for partition in broker.partitions:
        broker.groups.on_stop(partition.topic, partition.partition)
        broker.groups.on_leader(partition)
    answer = broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, offsets_request(version))
    assert codes(answer)["t", 0] is (
        Code.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else Code.COORDINATOR_NOT_AVAILABLE
    )


def guarded(broker: FakeBroker) -> tuple[VerificationGuard, tuple[str, int]]:
    """Have the transactions of the group's producers verified."""
    guard, index = VerificationGuard(), broker.groups.partition_for("g")
    broker.partitions[index].guard = guard
    return guard, ("__consumer_offsets", index)


@versions(ApiKey.TXN_OFFSET_COMMIT)
def test_offsets_that_begin_a_transaction_are_verified(broker: FakeBroker, version: int) -> None:
    guard, partition = guarded(broker)
    answer = broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, offsets_request(version))
    assert codes(answer)["t", 0] is Code.NONE
    assert broker.partitions[partition[1]].guards == [guard]
    [(verification, _)] = broker.asked
    assert verification == ("x", 7, 0, [partition], version >= 5)


@pytest.mark.parametrize(
    ("verdict", "version", "code"),
    [
        (Code.TRANSACTION_ABORTABLE, 4, Code.TRANSACTION_ABORTABLE),
        (Code.TRANSACTION_ABORTABLE, 3, Code.INVALID_TXN_STATE),
        (Code.NETWORK_EXCEPTION, 4, Code.COORDINATOR_LOAD_IN_PROGRESS),
        (Code.NETWORK_EXCEPTION, 1, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.INVALID_PRODUCER_EPOCH, 0, Code.INVALID_PRODUCER_EPOCH),
        (Code.INVALID_PRODUCER_ID_MAPPING, 4, Code.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_offsets_of_no_open_transaction(broker: FakeBroker, verdict: Code, version: int, code: Code) -> None:
    _, partition = guarded(broker)
    broker.verdicts = {partition: verdict}
    answer = broker.ask(ApiKey.TXN_OFFSET_COMMIT, version, offsets_request(version))
    assert codes(answer)["t", 0] is code
    assert not broker.partitions[partition[1]].batches


def test_offsets_wait_for_the_verification(broker: FakeBroker) -> None:
    _, partition = guarded(broker)
    broker.verdicts = None
    answer = broker.ask(ApiKey.TXN_OFFSET_COMMIT, 4, offsets_request(4))
    assert not answer.heard
    broker.asked[0][1]({})
    assert answer.heard
    assert broker.partitions[partition[1]].batches


def test_describe(broker: FakeBroker) -> None:
    producer = broker.world.producer()
    broker.world.add(producer, (1, 0))
    request = DescribeTransactionsRequest(transactional_ids=["x", "y", ""])
    found, unknown, empty = broker.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, request).transaction_states
    assert (found.error_code, found.transaction_state, found.producer_id, found.producer_epoch) == (
        0,
        "Ongoing",
        producer.id,
        producer.epoch,
    )
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (
        60_000,
        broker.clock.now_ms(),
    )
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("t", [0, 1])]
    assert (unknown.transactional_id, unknown.error_code) == ("y", Code.TRANSACTIONAL_ID_NOT_FOUND)
    assert empty.error_code == Code.INVALID_REQUEST


@versions(ApiKey.LIST_TRANSACTIONS)
def test_list(broker: FakeBroker, version: int) -> None:
    producer = broker.world.producer()
    broker.world.add(producer)
    broker.clock.advance(1)

    def ask(**filters: Any) -> Any:
        return broker.ask(ApiKey.LIST_TRANSACTIONS, version, ListTransactionsRequest(**filters))

    [found] = ask().transaction_states
    assert (found.transactional_id, found.producer_id, found.transaction_state) == (
        "x",
        producer.id,
        "Ongoing",
    )
    assert not ask(state_filters=["Empty"]).transaction_states
    assert ask(state_filters=["What"]).unknown_state_filters == ["What"]
    assert not ask(producer_id_filters=[5]).transaction_states
    if version >= 1:
        assert len(ask(duration_filter=999).transaction_states) == 1
        assert not ask(duration_filter=1000).transaction_states
