"""Readers get what they were promised while topics, segments and processes disappear."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest
from tests.badinput.requests import fetch_request, produce, produce_request, records
from tests.badinput.test_groups import join, join_request, ready, stable
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest
from ottla_protocol.messages.fetch import FetchResponse
from ottla_protocol.records.batch import crc_is_valid
from ottla_protocol.records.formats import iter_headers

OwnBroker = Callable[..., BrokerProcess]
BATCHES = 40


@pytest.mark.parametrize("how", ["delete the topic", "delete its records", "retention"])
def test_a_slow_reader_gets_the_bytes_of_deleted_files(own_broker: OwnBroker, how: str) -> None:
    broker = own_broker()
    configs = {"retention_bytes": 100_000} if how == "retention" else {}
    create_topic(broker, "t", 1, segment_bytes=40_000_000, file_delete_delay_ms=0, **configs)
    with Wire(broker.port, 20) as slow, Wire(broker.port) as other:
        for _ in range(BATCHES):
            assert produce(other, "t", records(os.urandom(900_000)))[0] == 0
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        request = fetch_request("t", 0, max_bytes=60_000_000)
        request.topics[0].partitions[0].partition_max_bytes = 60_000_000
        slow.send(request_bytes(request, 12))
        (size,) = struct.unpack(">i", slow.socket.recv(4, socket.MSG_WAITALL))
        assert size > 30_000_000
        if how == "delete the topic":
            answer = other.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=5000), 5)
            assert answer.responses[0].error_code == 0
        elif how == "delete its records":
            delete_records(other, BATCHES + 5)
        else:
            roll(other)
        gone = broker.folder / "t-0" / f"{0:020}.log"
        wait_for(lambda: not gone.exists(), "the segment's file to go")
        time.sleep(0.3)
        data = slow._exactly(size)
        records_ = FetchResponse.decode(data, 12, 5).responses[0].partitions[0].records
        found = [(position, header) for position, header in iter_headers(records_)]
        assert len(found) > 30
        assert all(crc_is_valid(records_, position, header) for position, header in found)
        assert [header.base_offset for _, header in found] == list(range(len(found)))


def delete_records(wire: Wire, offset: int) -> None:
    """Delete up to ``offset``, behind which a new segment has been begun."""
    roll(wire)
    asked = DeleteRecordsTopic(
        name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
    )
    answer = wire.call(DeleteRecordsRequest(topics=[asked], timeout_ms=5000), 2)
    assert answer.topics[0].partitions[0].error_code == 0


def roll(wire: Wire) -> None:
    """Fill the segment, so that it is no longer the active one."""
    for _ in range(6):
        assert produce(wire, "t", records(os.urandom(900_000)))[0] == 0


def test_pipelined_produces_with_fsync_are_answered_in_order(own_broker: OwnBroker) -> None:
    broker = own_broker(settings={"log.flush.interval.messages": 1})
    create_topic(broker, "t", 3)
    count = 300
    with Wire(broker.port) as wire:
        requests = [
            request_bytes(
                produce_request("t", bytes(records(b"%d" % n)), n % 3, acks=1 if n % 2 else -1), 9, n
            )
            for n in range(count)
        ]
        sender = threading.Thread(target=wire.send, args=(b"".join(requests),))
        sender.start()
        assert [struct.unpack_from(">i", wire.receive())[0] for _ in range(count)] == list(range(count))
        sender.join()


def test_killed_while_a_group_rebalances(own_broker: OwnBroker) -> None:
    broker = own_broker()
    with Wire(broker.port) as first, Wire(broker.port) as second:
        member, generation = stable(first, "g", rebalance_timeout_ms=60_000)
        other = join(second, "g").member_id
        second.send(request_bytes(join_request("g", other), 5))
        time.sleep(0.2)
        broker.kill()
    broker.start()
    with Wire(broker.port) as first:
        ready(first, "else")
        again = join(first, "g", member)
        assert again.error_code == 0
        assert again.generation_id > generation


def test_a_thousand_connections(own_broker: OwnBroker) -> None:
    broker = own_broker(settings={"socket.listen.backlog.size": 1000})
    create_topic(broker, "t", 1)
    wires = [Wire(broker.port) for _ in range(1000)]
    try:
        for wire in wires:
            wire.send(request_bytes(produce_request("t", bytes(records(b"v"))), 9))
        for wire in wires:
            assert wire.receive()
    finally:
        for wire in wires:
            wire.close()
    with Wire(broker.port) as wire:
        assert produce(wire, "t", records(b"v")) == (0, 1000)
    assert broker.stop(5) == 0
