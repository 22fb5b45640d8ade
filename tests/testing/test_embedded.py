"""``EmbeddedBroker``: its features and errors, and that it leaves nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.badinput.requests import fetch, produce, records
from tests.support.waiting import wait_for
from tests.support.wire import Wire

import ottla_broker
from ottla_broker import EmbeddedBroker, EmbeddedBrokerError
from ottla_broker.ephemeral import SETTINGS
from ottla_broker.testing.embedded import TopicMissingError
from ottla_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla_protocol.messages.metadata import MetadataRequest

AssertGone = Callable[[int, int], None]


def partitions(broker: EmbeddedBroker) -> dict[str, int]:
    with Wire(broker.port) as wire:
        topics = wire.call(MetadataRequest(topics=None), 8).topics
    return {topic.name: len(topic.partitions) for topic in topics}


def configs(broker: EmbeddedBroker, kind: int, name: str) -> dict[str, str | None]:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    with Wire(broker.port) as wire:
        (result,) = wire.call(DescribeConfigsRequest(resources=[asked]), 4).results
    return {config.name: config.value for config in result.configs}


# ---- what it gives


def test_a_broker_in_a_block(assert_gone: AssertGone) -> None:
    with EmbeddedBroker(topics={"orders": 3, "payments": 1}) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{broker.port}"
        assert partitions(broker) == {"orders": 3, "payments": 1}
        with Wire(broker.port) as wire:
            assert produce(wire, "orders", records(b"a desk")) == (0, 0)
            assert b"a desk" in fetch(wire, "orders", 0)[1]
        assert broker.running
        pid, port = broker.pid, broker.port
        assert pid != os.getpid()
    assert not broker.running
    assert_gone(pid, port)


def test_settings_override_those_for_tests_which_override_kafkas() -> None:
    given = {"group.min.session.timeout.ms": 700, "auto.create.topics.enable": False, "broker.id": 7}
    with EmbeddedBroker(given) as broker:
        found = configs(broker, 4, "7")
    assert found["group.min.session.timeout.ms"] == "700"
    assert found["auto.create.topics.enable"] == "false"
    assert found["group.initial.rebalance.delay.ms"] == SETTINGS["group.initial.rebalance.delay.ms"]
    assert found["num.partitions"] == "1"


def test_topics_come_and_go(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("ledger", 2, {"cleanup.policy": "compact", "preallocate": False})
    assert partitions(embedded) == {"ledger": 2}
    assert configs(embedded, 2, "ledger")["cleanup.policy"] == "compact"
    with pytest.raises(EmbeddedBrokerError, match=r"ledger was not created: TOPIC_ALREADY_EXISTS"):
        embedded.create_topic("ledger")
    with pytest.raises(EmbeddedBrokerError, match=r"INVALID_CONFIG.*cleanup\.policy"):
        embedded.create_topic("other", configs={"cleanup.policy": "shred"})
    embedded.delete_topic("ledger")
    assert partitions(embedded) == {}
    with pytest.raises(TopicMissingError, match="ledger"):
        embedded.delete_topic("ledger")


def test_a_given_port(embedded: EmbeddedBroker) -> None:
    port = embedded.port
    embedded.close()
    with EmbeddedBroker(port=port) as broker:
        assert broker.port == port


def test_a_given_folder_keeps_its_data(tmp_path: Path) -> None:
    with EmbeddedBroker(data_dir=tmp_path / "kept", topics={"t": 1}) as broker, Wire(broker.port) as wire:
        assert produce(wire, "t", records(b"v")) == (0, 0)
    assert (tmp_path / "kept" / ".kafka_cleanshutdown").exists()
    with EmbeddedBroker(data_dir=tmp_path / "kept", topics={"t": 5}) as broker:
        assert partitions(broker) == {"t": 1}, "a topic that is there is left alone"
        with Wire(broker.port) as wire:
            assert b"v" in fetch(wire, "t", 0)[1]


def test_without_a_block(assert_gone: AssertGone) -> None:
    broker = EmbeddedBroker()
    with pytest.raises(EmbeddedBrokerError, match="not started"):
        _ = broker.port
    assert broker.start() is broker
    pid, port = broker.pid, broker.port
    assert broker.start().pid == pid, "a second start() changes nothing"
    broker.close()
    broker.close()
    assert_gone(pid, port)
    with pytest.raises(EmbeddedBrokerError, match="closed"):
        broker.stop()
    broker.start()
    assert broker.running, "after close() it is a new one"
    broker.close()


def test_pythons_environment_variables_do_not_affect_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONWARNINGS", "error")
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("PYTHONINSPECT", "1")
    with EmbeddedBroker() as broker:
        assert partitions(broker) == {}


# ---- a life with failures


def test_a_killed_broker_restarts_with_its_data_and_port(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("t")
    with Wire(embedded.port) as wire:
        assert produce(wire, "t", records(b"v")) == (0, 0)
    port, pid = embedded.port, embedded.pid
    embedded.kill()
    embedded.kill()
    assert not embedded.running
    assert "down" in repr(embedded)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    with pytest.raises(EmbeddedBrokerError, match="not running"):
        _ = embedded.pid
    with pytest.raises(EmbeddedBrokerError, match="does not answer"):
        embedded.create_topic("u")
    embedded.start()
    assert embedded.port == port
    assert embedded.pid != pid
    with Wire(port) as wire:
        assert b"v" in fetch(wire, "t", 0)[1]


def test_a_restart_stops_cleanly(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("t")
    embedded.stop()
    assert (embedded.data_dir / ".kafka_cleanshutdown").exists()
    embedded.restart()
    assert partitions(embedded) == {"t": 1}


def test_the_port_of_a_broker_that_is_down_stays_reserved(embedded: EmbeddedBroker) -> None:
    embedded.kill()
    with socket.socket() as thief, pytest.raises(OSError, match="Address already in use"):
        thief.bind(("127.0.0.1", embedded.port))
    embedded.start()


def test_a_broker_that_ended_by_itself_restarts(embedded: EmbeddedBroker) -> None:
    os.kill(embedded.pid, signal.SIGKILL)
    wait_for(lambda: not embedded.running, "its end")
    assert partitions(embedded.start()) == {}


# ---- starts that fail


def test_a_failed_start_has_a_reason() -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"did not start \(exit code 1\)(.|\n)*num\.partitions"):
        EmbeddedBroker({"num.partitions": "many"}).__enter__()


def test_an_invalid_topic_fails_the_start() -> None:
    with pytest.raises(EmbeddedBrokerError, match="topic no good"):
        EmbeddedBroker(topics={"no good": 1}).__enter__()


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(EmbeddedBrokerError, match=f"{port}: .*in use"):
            EmbeddedBroker(port=port).start()


def test_a_start_that_takes_too_long() -> None:
    with pytest.raises(EmbeddedBrokerError, match=r"not ready within 0\.01 s"):
        EmbeddedBroker(start_timeout=0.01).__enter__()


def test_errors_contain_the_log(embedded: EmbeddedBroker) -> None:
    with Wire(embedded.port) as wire:
        wire.send(b"\xff" * 20)
        assert wire.is_closed()
    assert "socket.request.max.bytes" in wait_for(embedded.log, "the line")
    assert embedded.log(1).count("\n") == 0


# ---- nothing is left


def test_many_brokers_leave_nothing(assert_gone: AssertGone, temporary: Path) -> None:
    brokers = []
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(8):
        with EmbeddedBroker(topics={"t": 1}) as broker:
            brokers.append((broker.pid, broker.port))
        assert not list(temporary.iterdir())
    for pid, port in brokers:
        assert_gone(pid, port)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_a_forgotten_broker_ends(assert_gone: AssertGone) -> None:
    broker = EmbeddedBroker().start()
    pid, port = broker.pid, broker.port
    del broker
    gc.collect()
    assert_gone(pid, port)


PARENT = """
    import os, signal, sys, time
    from ottla_broker import EmbeddedBroker
    broker = EmbeddedBroker(topics={"t": 1}).start()
    print(broker.pid, broker.port, flush=True)
"""


@pytest.mark.parametrize(
    "end",
    [
        "pass",
        "raise RuntimeError",
        "os._exit(3)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os.kill(os.getpid(), signal.SIGTERM)",
        # A child that was forked off has what its parent had, and must not keep the broker alive.
        "os.fork() or time.sleep(60); os.kill(os.getpid(), signal.SIGKILL)",
    ],
)
def test_the_parent_ends(end: str, assert_gone: AssertGone, temporary: Path) -> None:
    program = textwrap.dedent(PARENT) + end.replace("; ", "\n")
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        pid, port = map(int, parent.stdout.readline().split())
        parent.wait()
    try:
        assert_gone(pid, port)
        wait_for(lambda: not list(temporary.iterdir()), "the folder to go")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_a_forked_child_leaves_it_alone(embedded: EmbeddedBroker) -> None:
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            embedded.close()
            gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert embedded.running
    assert partitions(embedded) == {}


def test_ctrl_c_does_not_reach_the_broker(embedded: EmbeddedBroker) -> None:
    assert os.getpgid(embedded.pid) != os.getpgid(0)


# ---- threads, event loops


def test_from_threads() -> None:
    found: list[dict[str, int]] = []

    def one(name: str) -> None:
        with EmbeddedBroker(topics={name: 1}) as broker:
            found.append(partitions(broker))

    threads = [threading.Thread(target=one, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, found)) == [str({f"t{i}": 1}) for i in range(4)]


async def test_from_a_loop(assert_gone: AssertGone) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    async with EmbeddedBroker(topics={"t": 1}) as one, EmbeddedBroker() as other:
        assert ticks > 5, "the loop was not blocked meanwhile"
        assert one.port != other.port
        gone = [(broker.pid, broker.port) for broker in (one, other)]
    ticking.cancel()
    for pid, port in gone:
        assert_gone(pid, port)


@pytest.mark.parametrize("after", [0.0, 0.02, 0.1, 0.15])
async def test_cancelled_while_it_starts(after: float) -> None:
    broker = EmbeddedBroker()

    async def start() -> None:
        async with broker:
            await asyncio.sleep(60)

    task = asyncio.create_task(start())
    await asyncio.sleep(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not broker.running


# ---- importing


def test_importing_is_cheap() -> None:
    program = """if True:
        import sys
        before = set(sys.modules)
        import ottla_broker.testing.plugin
        for name in sorted(set(sys.modules) - before):
            print(name)
    """
    done = subprocess.run(
        [sys.executable, "-c", f"import pytest\n{program}"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["ottla_broker", "ottla_broker.testing", "ottla_broker.testing.plugin"]


def test_names() -> None:
    assert {"EmbeddedBroker", "EmbeddedBrokerError"} <= set(dir(ottla_broker))
    with pytest.raises(AttributeError, match="Nothing"):
        _ = ottla_broker.Nothing
