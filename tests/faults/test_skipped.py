"""Sequence numbers that no producer has sent are found in kept frames."""

from __future__ import annotations

from pathlib import Path

from tests.faults.skipped import skipping
from tests.faults.transactors import Trace

from ottla_protocol.header import RequestHeader, encode_request_header
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.record import encode_batch


def frame(transaction: str, sequence: int, *, epoch: int = 0, partition: int = 3) -> bytes:
    value = f"{transaction}/4/1/commit/0/1".encode()
    records = encode_batch(
        [(0, None, value, ())], producer_id=1000, producer_epoch=epoch, base_sequence=sequence
    )
    data = [
        TopicProduceData(
            name="transactions", partition_data=[PartitionProduceData(index=partition, records=records)]
        )
    ]
    request = ProduceRequest(transactional_id="c1", acks=-1, timeout_ms=1000, topic_data=data)
    return encode_request_header(RequestHeader(0, 10, 1, "tx-c1")) + request.encode(10)


def test_a_number_that_was_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "frames.trace"
    trace = Trace(path, [])
    for kind, sent in (
        (">", frame("c1.1.1", 538)),  # the first that is seen
        ("<", frame("c1.1.2", 539)),  # no request
        (">", frame("c1.1.3", 540)),
        (">", frame("c1.1.4", 542)),
        ("CUT", frame("c1.1.5", 541)),
        (">", frame("c1.1.6", 600, partition=4)),
        (">", frame("c1.1.7", 0, epoch=1)),
    ):
        trace._note(1, kind, sent)
    trace.close()
    assert skipping(path) == {("c1", "c1.1.3")}
