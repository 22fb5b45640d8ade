"""Starting, stopping and restarting: the clean-shutdown marker, waiting requests, and the data afterwards."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable

import pytest
from tests.badinput.requests import fetch, fetch_request, produce, produce_request, records
from tests.badinput.test_groups import commit, join, join_request, ready, stable
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.metadata import MetadataRequest

OwnBroker = Callable[..., BrokerProcess]
MARKER = ".kafka_cleanshutdown"
STOP_S = 30.0
"""The longest stop."""


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_a_clean_stop_leaves_its_marker(own_broker: OwnBroker, sign: signal.Signals) -> None:
    broker = own_broker()
    assert not (broker.folder / MARKER).exists()
    assert broker.stop(STOP_S, sign) == 0
    assert (broker.folder / MARKER).exists()
    broker.start()
    assert not (broker.folder / MARKER).exists()
    broker.kill()
    assert not (broker.folder / MARKER).exists()


def test_waiting_clients_do_not_delay_the_stop(own_broker: OwnBroker) -> None:
    """A long poll, a join that waits for others, an idle client and one that does not read: none delays the stop."""
    broker = own_broker(settings={"group.initial.rebalance.delay.ms": 60_000})
    create_topic(broker, "t", 1)
    with Wire(broker.port) as poll, Wire(broker.port) as group, Wire(broker.port), Wire(broker.port) as slow:
        poll.send(request_bytes(fetch_request("t", 0, max_wait_ms=300_000), 12))
        ready(group, "g")
        member = join(group, "g").member_id
        group.send(request_bytes(join_request("g", member), 5))
        for _ in range(30):
            assert produce(slow, "t", records(b"x" * 900_000))[0] == 0
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(20):
            slow.send(request_bytes(fetch_request("t", 0, max_bytes=50_000_000), 12))
        time.sleep(0.2)
        assert broker.stop(STOP_S) == 0
    assert (broker.folder / MARKER).exists()


def test_a_stop_under_load_loses_nothing(own_broker: OwnBroker) -> None:
    broker = own_broker()
    create_topic(broker, "t", 1)
    acked: list[int] = []

    def load() -> None:
        try:
            with Wire(broker.port) as wire:
                while True:
                    error, offset = produce(wire, "t", records(b"%d" % len(acked)))
                    if error == 0:
                        acked.append(offset)
        except OSError:
            return

    thread = threading.Thread(target=load)
    thread.start()
    wait_for(lambda: len(acked) > 200, "some records")
    assert broker.stop(STOP_S) == 0
    thread.join(60)
    assert acked == list(range(len(acked)))
    broker.start()
    with Wire(broker.port) as wire:
        error, data = fetch(wire, "t", acked[-1])
        assert error == 0
        assert b"%d" % (len(acked) - 1) in data


def test_a_clean_stop_needs_no_recovery(own_broker: OwnBroker) -> None:
    broker = own_broker()
    create_topic(broker, "t", 2, retention_ms=8_888_888)
    with Wire(broker.port) as wire:
        for partition in (0, 1):
            assert produce(wire, "t", records(b"a", b"b"), partition=partition) == (0, 0)
        member, generation = stable(wire, "g")
        assert commit(wire, "g", "t", member=member, generation=generation) == 0
    assert broker.stop(STOP_S) == 0
    broker.start()
    loaded = wait_for(
        lambda: [e for e in broker.events() if e["event"] == "logs loaded"], "what the start did"
    )
    assert loaded[-1]["recovered"] == 0
    with Wire(broker.port) as wire:
        assert produce(wire, "t", records(b"c"), partition=1) == (0, 2)
        ready(wire, "other")
        again = join(wire, "g", member)
        assert again.error_code == 0, "the group knows its member after the restart"


def test_stopped_while_it_starts(own_broker: OwnBroker) -> None:
    broker = own_broker()
    for partitions in range(3):
        create_topic(broker, f"t{partitions}", 50)
    assert broker.stop(STOP_S) == 0
    for delay in (0.05, 0.1, 0.15, 0.2, 0.25, 0.3):
        broker.spawn()
        time.sleep(delay)
        broker.send_signal(signal.SIGTERM)
        assert broker.wait(STOP_S) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    broker.start()
    with Wire(broker.port) as wire:
        found = wire.call(MetadataRequest(topics=None), 8)
        assert {(topic.name, len(topic.partitions)) for topic in found.topics} == {
            (f"t{n}", 50) for n in range(3)
        }


def test_a_produce_at_the_stop_is_stored_whole_or_not_at_all(own_broker: OwnBroker) -> None:
    broker = own_broker()
    create_topic(broker, "t", 1)
    with Wire(broker.port) as wire:
        whole = request_bytes(produce_request("t", bytes(records(b"x" * 100_000))), 9)
        wire.send(whole[: len(whole) // 2])
        time.sleep(0.1)
        assert broker.stop(STOP_S) == 0
    broker.start()
    with Wire(broker.port) as wire:
        assert fetch(wire, "t", 0) == (0, b"")
        assert fetch(wire, "t", 1)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
