"""The records of a topic, read by Fetch requests."""

from __future__ import annotations

from tests.support.wire import Wire

from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.records.batch import crc_is_valid
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records


def partitions_of(port: int, topic: str) -> int:
    with Wire(port) as wire:
        answer = wire.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 4)
        return len(answer.topics[0].partitions)


def read_partition(port: int, topic: str, partition: int = 0) -> list[Record]:
    """All records of a partition, from its start."""
    records: list[Record] = []
    offset = 0
    with Wire(port) as wire:
        while True:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 24)
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 26,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            answer = wire.call(request, 11).responses[0].partitions[0]
            assert answer.error_code == 0, answer.error_code
            data = bytes(answer.records or b"")
            before = offset
            for position, header in iter_headers(data):
                if position + header.size > len(data):
                    break
                assert crc_is_valid(data, position, header)
                records += [
                    record for record in decode_records(data, position, header) if record.offset >= offset
                ]
                offset = header.last_offset + 1
            if offset == before and offset >= answer.high_watermark:
                return records


def read_topic(port: int, topic: str) -> list[Record]:
    """All records, partition after partition."""
    return [
        record
        for partition in range(partitions_of(port, topic))
        for record in read_partition(port, topic, partition)
    ]
