"""The requests of transaction version 2, one by one. ``--kafka=4`` shows that Apache Kafka 4.2 answers the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla_protocol.messages.end_txn import EndTxnRequest
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.record import encode_batch

Answer = tuple[str, int]
"""An error's name, and the next epoch if there is one."""
_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}


class Client:
    """Sends requests of one transactional id, and sends them again while they come too early."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self._wire, self._topic, self._name = wire, topic, f"tx-{topic}"
        self._producer_id = -1
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[self._name])
        self._ask(lambda: (wire.call(find, 4).coordinators[0].error_code, -1))

    @staticmethod
    def _ask(request: Callable[[], tuple[int, int]]) -> Answer:
        deadline = time.monotonic() + 60
        while True:
            code, epoch = request()
            if code not in _AGAIN or time.monotonic() > deadline:
                return ErrorCode(code).name, epoch
            time.sleep(0.02)

    def init(self) -> Answer:
        def ask() -> tuple[int, int]:
            request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=60_000)
            answer = self._wire.call(request, 4)
            self._producer_id = max(self._producer_id, answer.producer_id)
            return answer.error_code, answer.producer_epoch

        return self._ask(ask)

    def end(self, epoch: int, commit: bool, version: int = 5) -> Answer:
        request = EndTxnRequest(
            transactional_id=self._name,
            producer_id=self._producer_id,
            producer_epoch=epoch,
            committed=commit,
        )

        def ask() -> tuple[int, int]:
            answer = self._wire.call(request, version)
            assert answer.producer_id in (-1, self._producer_id)
            return answer.error_code, answer.producer_epoch

        return self._ask(ask)

    def add(self, epoch: int) -> Answer:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._name,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self._topic, partitions=[0])],
        )

        def ask() -> tuple[int, int]:
            [topic] = self._wire.call(request, 3).results_by_topic_v3_and_below
            return topic.results_by_partition[0].partition_error_code, -1

        return self._ask(ask)

    def produce(self, epoch: int, sequence: int, version: int = 12) -> Answer:
        batch = encode_batch(
            [(int(time.time() * 1000), None, b"v", ())],
            producer_id=self._producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [PartitionProduceData(index=0, records=batch)]
        request = ProduceRequest(
            transactional_id=self._name,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=self._topic, partition_data=data)],
        )
        return self._ask(
            lambda: (self._wire.call(request, version).responses[0].partition_responses[0].error_code, -1)
        )


@pytest.fixture
def client(
    broker: BrokerProcess, new_topic: Callable[[], str], request: pytest.FixtureRequest
) -> Iterator[Client]:
    if request.config.getoption("--kafka") == "3":
        pytest.skip("Kafka 3.9 has no transaction version 2")
    with Wire(broker.port) as wire:
        yield Client(wire, new_topic())


OLD, UNKNOWN = ("PRODUCER_FENCED", -1), ("INVALID_TXN_STATE", -1)
OLD_BATCH, DONE = ("INVALID_PRODUCER_EPOCH", -1), ("NONE", -1)


def test_each_end_raises_the_epoch(client: Client, is_kafka: bool) -> None:
    assert client.init() == ("NONE", 0)
    # Nothing was written: it can be aborted, because the producer may not know that.
    assert client.end(0, commit=True) == UNKNOWN
    assert client.end(0, commit=False) == ("NONE", 1)
    assert client.end(0, commit=False) == ("NONE", 1)
    assert client.end(0, commit=True) == (UNKNOWN if is_kafka else OLD)  # Since KAFKA-20785
    assert client.end(1, commit=False) == ("NONE", 2)
    assert client.produce(2, 0) == DONE
    assert client.produce(2, 1) == DONE
    assert client.produce(1, 0) == OLD_BATCH
    assert client.end(1, commit=True) == OLD
    assert client.end(2, commit=True) == ("NONE", 3)
    assert client.end(2, commit=True) == ("NONE", 3)
    assert client.end(2, commit=False) == UNKNOWN
    assert client.produce(2, 2) == OLD_BATCH
    assert client.end(3, commit=True) == UNKNOWN
    assert client.produce(3, 5) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert client.produce(3, 0) == DONE
    assert client.end(3, commit=False) == ("NONE", 4)
    assert client.end(3, commit=False) == ("NONE", 4)
    # Ottla takes it for an epoch that another coordinator has given out since.
    assert client.end(9, commit=False) == (OLD if is_kafka else ("NOT_COORDINATOR", -1))


def test_a_client_moves_between_the_versions(client: Client, is_kafka: bool) -> None:
    assert client.init() == ("NONE", 0)
    assert client.produce(0, 0) == DONE
    assert client.end(0, commit=True) == ("NONE", 1)
    assert client.add(1) == DONE
    assert client.produce(1, 0, version=11) == DONE
    for _ in range(2):
        assert client.end(1, commit=True, version=4) == DONE
    assert client.end(1, commit=False, version=4) == UNKNOWN
    # A repetition of the request before. Kafka takes it for one of the last transaction.
    assert client.end(0, commit=True) == (("NONE", 1) if is_kafka else OLD)
    assert client.end(1, commit=True) == UNKNOWN
    assert client.add(1) == DONE
    assert client.end(1, commit=True) == ("NONE", 2)


def test_a_new_producer_fences_the_old_one(client: Client) -> None:
    assert client.init() == ("NONE", 0)
    assert client.produce(0, 0) == DONE
    assert client.init() == ("NONE", 2)
    assert client.produce(0, 1) == OLD_BATCH
    assert client.end(0, commit=False) == OLD
    assert client.end(0, commit=True) == OLD
    assert client.produce(2, 0, version=11) == ("TRANSACTION_ABORTABLE", -1)
