"""Failed starts, repeated signals, closed outputs, and limits."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.badinput.requests import fetch, fetch_request, produce, records
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.messages.metadata import MetadataRequest

OwnBroker = Callable[..., BrokerProcess]
MARKER = ".kafka_cleanshutdown"


def test_a_failed_start_leaves_no_clean_shutdown_marker(own_broker: OwnBroker) -> None:
    """After a crash, and a start that ends before the logs were looked at, the next one recovers them all the same."""
    broker = own_broker()
    create_topic(broker, "t")
    with Wire(broker.port) as wire:
        assert produce(wire, "t", records(b"v")) == (0, 0)
    broker.kill()
    failed = subprocess.run(
        [*broker.command, "--set", "broker.id=77"], capture_output=True, text=True, timeout=60, check=False
    )
    assert failed.returncode == 1
    assert "broker.id" in failed.stderr
    assert not (broker.folder / MARKER).exists()
    broker.start()

    def loaded() -> list[dict[str, object]]:
        return [event for event in broker.events() if event["event"] == "logs loaded"]

    assert wait_for(loaded, "the event")[-1]["recovered"] == 1
    with Wire(broker.port) as wire:
        assert fetch(wire, "t", 0)[0] == 0


def test_a_repeated_signal_changes_nothing(own_broker: OwnBroker) -> None:
    broker = own_broker()
    create_topic(broker, "t")
    with Wire(broker.port) as wire:
        wire.send(request_bytes(fetch_request("t", 0, max_wait_ms=60_000), 12))
        for sign in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            broker.send_signal(sign)
        assert broker.wait() == 0
    assert (broker.folder / MARKER).exists()


@pytest.mark.parametrize("closed", ["stdout-closed", "stdout-unread", "stderr-closed", "stderr-unread"])
def test_closed_outputs(closed: str, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    reader, writer = os.pipe()
    os.close(reader)
    stream, how = closed.split("-")
    redirect = {"stdout": ">&-", "stderr": "2>&-"}[stream] if how == "closed" else ""
    outputs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: writer}
    process = subprocess.Popen(["bash", "-c", f'exec "$@" {redirect}', "-", *broker.command], **outputs)  # type: ignore[call-overload]
    os.close(writer)
    try:

        def produced() -> bool:
            try:
                with Wire(broker.port) as wire:
                    return bool(wire.call(MetadataRequest(topics=None), 8).brokers)
            except ConnectionError:
                return False

        wait_for(produced, "the broker to serve")
        # Something to log, after the log of events has been loaded.
        with socket.create_connection(("127.0.0.1", broker.port)) as bad:
            bad.sendall(b"\xff" * 8)
            assert bad.recv(1) == b""
        assert produced()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert (tmp_path / "data" / MARKER).exists()


def test_out_of_descriptors(own_broker: OwnBroker) -> None:
    """Who is there is served; who comes is served as soon as there are descriptors again."""
    broker = own_broker()
    create_topic(broker, "t")
    with Wire(broker.port) as early:
        assert produce(early, "t", records(b"v")) == (0, 0)
        # The library for this is imported a second after the start: not while there are no descriptors.
        wait_for(broker.log, "the first events in its log")
        before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (1, before[1]))
        with Wire(broker.port) as late:
            late.send(request_bytes(fetch_request("t", 0), 12))
            time.sleep(0.3)
            assert produce(early, "t", records(b"w")) == (0, 1)
            resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)
            assert late.receive()


def test_max_connections(own_broker: OwnBroker) -> None:
    broker = own_broker(settings={"max.connections": 2})
    with Wire(broker.port) as one, Wire(broker.port) as two, Wire(broker.port, timeout=0.3) as three:
        for wire in (one, two):
            wire.call(MetadataRequest(topics=None), 8)
        with pytest.raises(TimeoutError):
            three.call(MetadataRequest(topics=None), 8)
        one.close()
        three.socket.settimeout(60)
        assert three.receive()


def test_each_listener_advertises_its_own_address(tmp_path: Path) -> None:
    ports = [free_port(), free_port()]
    broker = BrokerProcess(
        tmp_path / "data",
        {
            "listeners": f"INSIDE://127.0.0.1:{ports[0]},OUTSIDE://127.0.0.1:{ports[1]}",
            "advertised.listeners": f"INSIDE://127.0.0.1:{ports[0]},OUTSIDE://out.example:{ports[1]}",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        },
    )
    sets = [part for key, value in broker.settings.items() for part in ("--set", f"{key}={value}")]
    command = [*broker.command[:3], "--data-dir", str(broker.folder), *sets]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert f"127.0.0.1:{ports[0]}" in line
            assert f"out.example:{ports[1]}" in line
            for port, host in zip(ports, ("127.0.0.1", "out.example"), strict=True):
                with Wire(port) as wire:
                    (found,) = wire.call(MetadataRequest(topics=None), 8).brokers
                    assert (found.host, found.port) == (host, port)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_port_0_is_advertised_as_the_real_port(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", port=0)
    with subprocess.Popen(broker.command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline().split("127.0.0.1:")[1].split()[0])
            assert port > 0
            with Wire(port) as wire:
                (found,) = wire.call(MetadataRequest(topics=None), 8).brokers
                assert (found.host, found.port) == ("127.0.0.1", port)
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()
