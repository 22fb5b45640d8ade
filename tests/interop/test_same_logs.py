"""The same requests to Kafka 3.9.1 and Ottla: the same answers, the same files, the same answers after a restart.

Markers of transactions have the coordinator's time, and producers are numbered by the broker: both are replaced.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.brokers import Broker, Kafka, Ottla
from harness.java import Unavailable
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.messages import (
    add_partitions_to_txn,
    create_topics,
    delete_records,
    describe_producers,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from ottla_protocol.records.record import encode_batch

SETTINGS = {"offsets.topic.num.partitions": "1", "transaction.state.log.num.partitions": "1"}
TOPICS = {
    "plain": {},
    "rolls": {"segment.bytes": "2000", "index.interval.bytes": "200", "segment.index.bytes": "1000"},
    "by-time": {"segment.ms": "1000", "index.interval.bytes": "0"},
    "cut": {"segment.bytes": "1000"},
    "repeated": {"segment.bytes": "1500"},
    "empty": {},
    "nulls": {},
    "transactions": {"segment.bytes": "1500"},
}
RETRIABLE = {14, 15, 16, 19, 51, 56}
BATCHES = 40

Records = list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]


class Side:
    """A broker, and the producers that it numbered, by the names that the test gives them."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.producers: dict[str, tuple[int, int]] = {}
        self.wire = Wire(broker.port)

    def start(self) -> None:
        self.broker.start()
        self.wire = Wire(self.broker.port)
        wait_for(lambda: all(self.offset(topic, -1).error_code == 0 for topic in TOPICS), "leaders")

    def call(self, message: Any, version: int, error: Callable[[Any], int]) -> Any:
        """Ask until the answer has no error."""

        def answered() -> Any:
            answer = self.wire.call(message, version)
            assert error(answer) == 0 or error(answer) in RETRIABLE, answer
            return answer if error(answer) == 0 else None

        return wait_for(answered, "an answer without an error", timeout=60.0)

    def make_topic(self, name: str, configs: dict[str, str]) -> None:
        asked = create_topics.CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[
                create_topics.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()
            ],
        )
        message = create_topics.CreateTopicsRequest(topics=[asked], timeout_ms=30_000)
        self.call(message, 5, lambda answer: answer.topics[0].error_code)
        wait_for(lambda: self.offset(name, -1).error_code == 0, "a leader")

    def begin(self, producer: str, transactional_id: str | None) -> None:
        if transactional_id is not None:
            found = find_coordinator.FindCoordinatorRequest(key=transactional_id, key_type=1)
            self.call(found, 2, lambda answer: answer.error_code)
        message = init_producer_id.InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=600_000
        )
        answer = self.call(message, 4, lambda answer: answer.error_code)
        self.producers[producer] = answer.producer_id, answer.producer_epoch

    def produce(
        self,
        topic: str,
        records: Records,
        producer: str = "",
        sequence: int = -1,
        transactional_id: str | None = None,
    ) -> None:
        number, epoch = self.producers[producer] if producer else (-1, -1)
        data = encode_batch(
            records,
            producer_id=number,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional_id is not None,
        )
        part = produce.PartitionProduceData(index=0, records=bytes(data))
        message = produce.ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=[part])],
        )
        self.call(message, 9, lambda answer: answer.responses[0].partition_responses[0].error_code)

    def add(self, transactional_id: str, topic: str) -> None:
        number, epoch = self.producers[transactional_id]
        message = add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=number,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )
        self.call(
            message,
            3,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )

    def end(self, transactional_id: str, committed: bool) -> None:
        number, epoch = self.producers[transactional_id]
        message = end_txn.EndTxnRequest(
            transactional_id=transactional_id, producer_id=number, producer_epoch=epoch, committed=committed
        )
        self.call(message, 3, lambda answer: answer.error_code)

    def delete_before(self, topic: str, offset: int) -> None:
        part = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
        message = delete_records.DeleteRecordsRequest(
            timeout_ms=30_000, topics=[delete_records.DeleteRecordsTopic(name=topic, partitions=[part])]
        )
        self.call(message, 2, lambda answer: answer.topics[0].partitions[0].error_code)

    def offset(self, topic: str, timestamp: int, isolation: int = 0) -> Any:
        part = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        message = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[list_offsets.ListOffsetsTopic(name=topic, partitions=[part])],
        )
        return self.wire.call(message, 9).topics[0].partitions[0]

    def wait_for_end(self, topic: str, end: int) -> None:
        """Wait until a transaction's marker is there."""
        wait_for(lambda: self.offset(topic, -1, 1).offset == end, "the markers")

    def fetched(self, topic: str, offset: int, isolation: int) -> tuple[Any, ...]:
        part = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        message = fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=isolation,
            topics=[fetch.FetchTopic(topic=topic, partitions=[part])],
        )
        answer = self.wire.call(message, 11).responses[0].partitions[0]
        return (
            answer.error_code,
            answer.high_watermark,
            answer.last_stable_offset,
            answer.log_start_offset,
            [(self.named(each.producer_id), each.first_offset) for each in answer.aborted_transactions or ()],
            self.batches(bytes(answer.records or b"")),
        )

    def answers(self, topic: str, times: list[int], restarted: bool) -> Iterator[Any]:
        """What clients can learn of a partition.

        Kafka's leader epoch grows with a restart, that of an Ottla broker alone doesn't.
        """
        for isolation in (0, 1):
            for timestamp in (-1, -2, -3, -4, -5, *times):
                found = self.offset(topic, timestamp, isolation)
                shown = found.timestamp if topic != "transactions" else found.timestamp > 0
                yield (
                    timestamp,
                    found.error_code,
                    found.offset,
                    shown,
                    None if restarted else found.leader_epoch,
                )
            for offset in (0, 1, 7, 37, 60, 10_000):
                yield offset, self.fetched(topic, offset, isolation)
        for epoch in (0,) if restarted else (-1, 0, 1, 5):
            asked = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
            message: Any = offset_for_leader_epoch.OffsetForLeaderEpochRequest(
                replica_id=-1,
                topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic=topic, partitions=[asked])],
            )
            part = self.wire.call(message, 4).topics[0].partitions[0]
            yield epoch, part.error_code, part.leader_epoch, part.end_offset
        message = describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=topic, partition_indexes=[0])]
        )
        yield sorted(
            (
                self.named(each.producer_id),
                each.producer_epoch,
                each.last_sequence,
                each.coordinator_epoch,
                each.current_txn_start_offset,
            )
            for each in self.wire.call(message, 0).topics[0].partitions[0].active_producers
        )

    def named(self, number: int) -> str:
        return next((name for name, (own, _) in self.producers.items() if own == number), "")

    def batches(self, data: bytes) -> list[tuple[Any, ...]]:
        """The batches of a log: each header without CRC and times where the broker wrote them, and the records."""
        found = []
        while len(data) >= 61:
            (
                offset,
                size,
                epoch,
                magic,
                _,
                attributes,
                last,
                first_ms,
                last_ms,
                number,
                producer_epoch,
                sequence,
            ) = struct.unpack_from(">qiibIhiqqqhi", data)
            is_marker = bool(attributes & 32)
            times = () if is_marker else (first_ms, last_ms)
            head = (
                offset,
                size,
                epoch,
                magic,
                attributes,
                last,
                *times,
                self.named(number),
                producer_epoch,
                sequence,
            )
            found.append((*head, data[57 : 12 + size]))
            data = data[12 + size :]
        return found

    def files(self, topic: str) -> dict[str, Any]:
        """The files of a partition, read as far as they depend on the requests."""
        found: dict[str, Any] = {}
        for path in sorted((self.broker.data / f"{topic}-0").iterdir()):
            data = path.read_bytes()
            kind = path.name.removesuffix(".deleted").rpartition(".")[2]
            if kind == "log":
                found[path.name] = self.batches(data)
            elif kind == "timeindex" and topic == "transactions":
                found[path.name] = len(data)
            elif kind == "txnindex":
                found[path.name] = [
                    (self.named(number), first, last, stable)
                    for _, number, first, last, stable in struct.iter_unpack(">hqqqq", data)
                ]
            elif kind == "snapshot":
                found[path.name] = sorted(
                    (self.named(number), epoch, sequence, last, delta, first)
                    for number, epoch, sequence, last, delta, _, _, first in struct.iter_unpack(
                        ">qhiqiqiq", data[10:]
                    )
                )
            elif path.name != "partition.metadata":
                found[path.name] = data
        # Kafka writes a snapshot without producers; neither side's unlinking is waited for.
        return {
            name: what
            for name, what in found.items()
            if not name.endswith(".deleted") and (what or "." not in name)
        }


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Side]]:
    folder = tmp_path_factory.mktemp("same")
    try:
        brokers: list[Broker] = [Kafka(folder / "kafka", SETTINGS), Ottla(folder / "ottla", SETTINGS)]
    except Unavailable as lack:
        pytest.skip(str(lack))
    try:
        for broker in brokers:
            broker.start()
        made = [Side(broker) for broker in brokers]
        yield made
        for side in made:
            side.wire.close()
    finally:
        for broker in brokers:
            broker.remove()


def _write(side: Side, now_ms: int) -> None:
    for topic, configs in TOPICS.items():
        side.make_topic(topic, configs)
    for number in range(BATCHES):
        count, size = ((1, 5), (3, 60), (10, 30), (1, 200))[number % 4]
        records: Records = [
            (now_ms + 100 * number + each, b"k%d" % (each % 5), bytes([65 + each]) * size, ())
            for each in range(count)
        ]
        for topic in ("plain", "rolls", "cut"):
            side.produce(topic, records)
    for number in range(6):
        # Backwards in time as well.
        side.produce("by-time", [(now_ms + 700 * (number ^ 1), b"k", b"v", ())] * 2)
    side.produce("nulls", [(now_ms, None, None, ()), (now_ms - 5, b"", b"", (("h", b"v"), ("h", None)))])
    side.begin("one", None)
    side.begin("other", None)
    for number in range(20):
        for _ in range(1 + (number % 4 == 0)):
            side.produce("repeated", [(now_ms, b"k", b"v" * 40, ())] * 2, "one", 2 * number)
        if number % 5 == 0:
            side.produce("repeated", [(now_ms, b"k", b"v", ())], "other", number // 5)
    for name in ("t1", "t2"):
        side.begin(name, name)
    for number in range(9):
        name = ("t1", "t2")[number % 2]
        side.add(name, "transactions")
        side.produce("transactions", [(now_ms, b"k", b"v" * 60, ())] * 3, name, 3 * (number // 2), name)
        if number < 8:  # the last one stays open
            side.end(name, number % 3 != 0)
            side.wait_for_end("transactions", 4 * (number + 1))
    side.delete_before("cut", 37)


def test_the_same_requests_leave_the_same(sides: list[Side]) -> None:
    now_ms = int(time.time() * 1000) - 100_000
    for side in sides:
        _write(side, now_ms)

    def compare_answers(restarted: bool) -> None:
        for topic in TOPICS:
            # By time, Kafka doesn't look behind a segment whose records are all deleted.
            asked = [] if topic == "cut" else times
            kafka, ottla = (list(side.answers(topic, asked, restarted)) for side in sides)
            assert ottla == kafka, topic

    times = [0, now_ms - 1, now_ms, now_ms + 1, now_ms + 333, now_ms + 3_900, now_ms + 10**7]
    compare_answers(restarted=False)
    for side in sides:
        side.wire.close()
        side.broker.stop()
    for topic in TOPICS:
        kafka, ottla = (side.files(topic) for side in sides)
        assert ottla == kafka, topic
    for side in sides:
        side.start()
    compare_answers(restarted=True)
