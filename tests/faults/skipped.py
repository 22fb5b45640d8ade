"""Finds sequence numbers that a client has skipped, in the frames that ``Trace`` kept.

librdkafka that aborts drops records that wait. Rarely it doesn't count one of them back, and the producer's next record
in that partition gets OUT_OF_ORDER_SEQUENCE_NUMBER, as it does from Kafka. Such an error is none of the broker's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.faults.transactors import Trace
from tests.support.late_frames import PRODUCE

from ottla_protocol.header import parse_request_header
from ottla_protocol.messages.produce import ProduceRequest
from ottla_protocol.records.formats import iter_headers

_TRANSACTION = re.compile(rb"([a-z]+\d+)\.\d+\.\d+(?=/\d+/\d+/)")


def skipping(path: Path) -> set[tuple[str, str]]:
    """The names of producers and of their transactions that wrote behind a number that was never sent.

    What was sent before the trace began isn't known, so a producer's first batch in a partition skips nothing.
    """
    sent: defaultdict[tuple[int, int, int], set[int]] = defaultdict(set)
    writes = []
    for producer, first, count, names in _batches(path):
        sent[producer].update(range(first, first + count))
        writes.append((producer, first, names))
    return {
        names
        for producer, first, names in writes
        if first - 1 not in sent[producer] and first > min(sent[producer])
    }


def _batches(path: Path) -> Iterator[tuple[tuple[int, int, int], int, int, tuple[str, str]]]:
    """Each batch's producer id, epoch and partition; first sequence number; records; producer and transaction."""
    for frame in _requests(path):
        header, at = parse_request_header(frame)
        if header.api_key != PRODUCE:
            continue
        for topic in ProduceRequest.decode(frame, header.api_version, at).topic_data:
            for data in topic.partition_data:
                records = bytes(data.records or b"")
                name = _TRANSACTION.search(records)
                for _, batch in iter_headers(records) if name else ():
                    producer = batch.producer_id, batch.producer_epoch, data.index
                    names = name[1].decode(), name[0].decode()
                    yield producer, batch.base_sequence, batch.record_count, names


def _requests(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(Trace.HEAD.size):
            _, _, kind, length = Trace.HEAD.unpack(head)
            frame = file.read(length)
            if kind.rstrip(b"\0") not in (b"<", b"late"):
                yield frame
