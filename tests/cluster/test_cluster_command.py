"""`ottla cluster` on three brokers and a ZooKeeper: what it shows, moves, drains and elects."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import struct
import subprocess
import termios
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from fcntl import ioctl
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.cli.ottla_command import OTTLA, Ottla
from tests.console.browsing import browsing
from tests.support.cluster import Cluster
from tests.support.waiting import readable, wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client import Admin, TopicPartition
from ottla_client.admin import ElectionType, NewTopic, PartialError
from ottla_client.errors import BrokerError
from ottla_client.sync import Admin as SyncAdmin
from ottla_protocol.errors import ErrorCode

T = TypeVar("T")
Replicas = tuple[int, ...]


@pytest.fixture(scope="module")
def shared(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three brokers in three racks, without automatic elections."""
    settings = {"auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": "8000"}
    folder = tmp_path_factory.mktemp("command")
    cluster = Cluster(folder, zookeeper, settings=settings, racks=("a", "b", "c"))
    yield cluster.start()
    cluster.kill()
    assert not cluster.complaints()


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    """The same cluster with all brokers alive, and without topics of earlier tests."""
    yield shared
    for number, broker in shared.brokers.items():
        if broker.running:
            shared.thaw(number)
        else:
            broker.start()
    shared.wait_complete()
    with SyncAdmin(shared.bootstrap) as admin:
        if topics := admin.list_topics():
            admin.delete_topics(topics)
        wait_for(lambda: not admin.list_topics(), "no topic to be left")


@pytest.fixture
def ottla(cluster: Cluster) -> Ottla:
    return Ottla(cluster.bootstrap)


@pytest.fixture
def frozen(cluster: Cluster) -> Cluster:
    """A cluster with a topic of two partitions on brokers 1 and 2, and a frozen broker 3."""
    create(cluster, "t", (1,), (2,))
    # The controller must not be the frozen broker.
    if cluster.controller() == 3:
        cluster.brokers[3].stop(30)
        cluster.brokers[3].start()
        cluster.wait_complete()
    cluster.freeze(3)
    return cluster


@pytest.fixture
def awake(frozen: Cluster) -> Ottla:
    """The command, with the brokers that respond."""
    return Ottla(f"{frozen.brokers[1].bootstrap},{frozen.brokers[2].bootstrap}")


def create(cluster: Cluster, name: str, *replicas: Replicas, **configs: str) -> None:
    with SyncAdmin(cluster.bootstrap) as admin:
        topic = NewTopic(name, assignment=dict(enumerate(replicas)), configs=configs)
        admin.create_topics([topic])
    cluster.wait_in_sync(name, len(replicas[0]))


def placed(cluster: Cluster, topic: str) -> list[Replicas]:
    with SyncAdmin(cluster.bootstrap) as admin:
        partitions = admin.describe_topics([topic])[topic].partitions
    return [partition.replicas for _, partition in sorted(partitions.items())]


def leaders(cluster: Cluster, topic: str) -> list[int | None]:
    with SyncAdmin(cluster.bootstrap) as admin:
        partitions = admin.describe_topics([topic])[topic].partitions
    return [partition.leader for _, partition in sorted(partitions.items())]


def produce(ottla: Ottla, folder: Path, *values: str) -> None:
    file = folder / "values"
    file.write_text("".join(f"{value}:{value}\n" for value in values))
    ottla("produce", "t", str(file), "--key-separator", ":")


def consume(ottla: Ottla) -> list[str]:
    """In a process of its own: it writes to the file behind standard output."""
    command = [OTTLA, "consume", "t", "--exit"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=ottla.environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def with_admin(cluster: Cluster, use: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        async with Admin(cluster.bootstrap) as admin:
            return await use(admin)

    return asyncio.run(main())


def test_the_cluster(cluster: Cluster, ottla: Ottla) -> None:
    create(cluster, "t", (1, 2, 3), (2, 3, 1))
    described = ottla.json("cluster", "describe")
    assert [
        (each["broker"], each["rack"], each["leads"], each["replicas"]) for each in described["brokers"]
    ] == [
        (1, "a", 1, 2),
        (2, "b", 1, 2),
        (3, "c", 0, 2),
    ]
    assert described["controller"] == cluster.controller()
    assert (described["under_replicated"], described["moving"], described["not_preferred"]) == (0, 0, 0)
    cluster.brokers[1].kill()
    wait_for(lambda: ottla.json("cluster")["under_replicated"] == 2, "two partitions to miss a replica")
    shown = ottla("cluster")
    assert "Brokers     2 (not running: 1)" in shown
    assert "Leaders     1 not the preferred replica" in shown
    assert "0 offline, 0 below-min-isr, 2 under-replicated" in shown


def test_a_broker_is_drained_and_gets_its_share_again(cluster: Cluster, ottla: Ottla, tmp_path: Path) -> None:
    replicas = [(1, 2), (2, 3), (3, 1)] * 2
    create(cluster, "t", *replicas)
    sent = [f"value-{number}" for number in range(500)]
    produce(ottla, tmp_path, *sent)

    plan = ottla.json("cluster", "drain", "3")
    assert plan["executed"] is False
    assert plan["copies"] == 4
    assert plan["bytes"] > 0
    assert [each["partition"] for each in plan["moves"]] == [1, 2, 4, 5]
    assert placed(cluster, "t") == replicas

    assert "4 partitions changed" in ottla.run("cluster", "drain", "3", "--execute").stderr
    assert all(3 not in each for each in placed(cluster, "t"))
    assert Counter(broker for each in placed(cluster, "t") for broker in each) == {1: 6, 2: 6}
    assert "nothing to move" in ottla.run("cluster", "drain", "3", "--execute").stderr
    assert sorted(consume(ottla)) == sorted(sent)

    plan = ottla.json("cluster", "reassign")
    assert plan["copies"] == 4
    ottla("cluster", "reassign", "--execute")
    assert Counter(broker for each in placed(cluster, "t") for broker in each) == {1: 4, 2: 4, 3: 4}
    assert ottla.json("cluster", "reassign")["moves"] == []
    assert ottla.run("cluster", "reassign", "--verify").stderr == "nothing moves\n"
    ottla("cluster", "elect")
    assert sorted(Counter(leaders(cluster, "t")).values()) == [2, 2, 2]
    assert sorted(consume(ottla)) == sorted(sent)


def test_plans_in_files_and_the_way_back(cluster: Cluster, ottla: Ottla, tmp_path: Path) -> None:
    create(cluster, "t", (1,), (1,), (1,))
    create(cluster, "u", (1,))
    plan, before = str(tmp_path / "plan.json"), str(tmp_path / "before.json")
    shown = ottla("cluster", "reassign", "--topic", "t:0-1", "--brokers", "2-3", "--save", plan)
    assert shown.splitlines()[0].split() == ["TOPIC", "PARTITION", "OLD", "NEW"]
    document = json.loads(Path(plan).read_text())
    assert document["version"] == 1
    assert [each["partition"] for each in document["partitions"]] == [0, 1]
    assert sorted(each["replicas"] for each in document["partitions"]) == [[2], [3]]
    assert "2 partitions of 2 not as planned" in ottla.fails(
        "cluster", "reassign", "--file", plan, "--verify"
    )

    ottla("cluster", "reassign", "--file", plan, "--save-current", before, "--execute")
    assert [row[-1] for row in ottla.rows("cluster", "reassign", "--file", plan, "--verify")] == ["done"] * 2
    assert placed(cluster, "t") == [*(tuple(each["replicas"]) for each in document["partitions"]), (1,)]
    ottla("cluster", "reassign", "--file", before, "--execute")
    assert placed(cluster, "t") == [(1,), (1,), (1,)]

    # Kafka's own generator says more, and other numbers of replicas are a plan as well.
    more = {"topic": "u", "partition": 0, "replicas": [3, 1, 2], "log_dirs": ["any", "any", "any"]}
    Path(plan).write_text(json.dumps({"version": 1, "partitions": [more]}))
    ottla("cluster", "reassign", "--file", plan, "--execute")
    assert placed(cluster, "u") == [(3, 1, 2)]


def test_moves_that_hang_are_seen_and_stopped(frozen: Cluster, awake: Ottla, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    partitions = [{"topic": "t", "partition": 0, "replicas": [3]}]
    plan.write_text(json.dumps({"partitions": partitions}))
    begun = awake.run("cluster", "reassign", "--file", str(plan), "--execute", "--no-wait")
    assert begun.exit_code == 0, begun.output
    assert "t:0 is still moving" in awake.fails("cluster", "reassign", "--verify")
    assert "1 partition of 1 not as planned" in awake.fails(
        "cluster", "reassign", "--file", str(plan), "--verify"
    )
    moving = awake.run("cluster", "reassign", "--verify", "--json")
    assert json.loads(moving.stdout) == [
        {"topic": "t", "partition": 0, "replicas": [3, 1], "adding": [3], "removing": [1]}
    ]
    assert "t:0 is already moving" in awake.fails("cluster", "reassign", "--file", str(plan), "--execute")
    assert awake.json("cluster", "reassign", "--cancel", "--topic", "t:1") == []
    (stopped,) = awake.json("cluster", "reassign", "--cancel")
    assert (stopped["plan"], stopped["replicas"]) == ([3], [1])
    assert "nothing moves" in awake.run("cluster", "reassign", "--cancel").stderr
    frozen.thaw(3)
    wait_for(lambda: placed(frozen, "t") == [(1,), (2,)], "the replicas of before")


def test_waiting_can_be_interrupted_and_the_moves_go_on(
    frozen: Cluster, awake: Ottla, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [3]}]}))
    command = [OTTLA, "cluster", "reassign", "--file", str(plan), "--execute"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=awake.environment
    ) as process:
        with SyncAdmin(frozen.brokers[1].bootstrap) as admin:
            wait_for(admin.list_partition_reassignments, "the move to begin")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the moves continue" in said
    frozen.thaw(3)
    wait_for(lambda: placed(frozen, "t") == [(3,), (2,)], "the replica to be where it should", 60)


def test_plans_that_can_not_be(cluster: Cluster, ottla: Ottla, tmp_path: Path) -> None:
    create(cluster, "t", (1, 2, 3))
    assert "t-0 has 3 replicas, but would have only 2 brokers" in ottla.fails("cluster", "drain", "3")
    assert "unknown broker 7" in ottla.fails("cluster", "drain", "7")
    assert "broker 9 isn't running; the cluster has 1, 2, 3" in ottla.fails(
        "cluster", "reassign", "--brokers", "1,9"
    )
    assert "unknown topic tt; did you mean t?" in ottla.fails("cluster", "reassign", "--topic", "tt")
    assert "not a list of brokers" in ottla.fails("cluster", "reassign", "--brokers", "x", code=2)
    ottla.fails("cluster", "reassign", "--verify", "--cancel", code=2)
    ottla.fails("cluster", "reassign", "--file", "-", "--topic", "t", code=2, stdin="{}")
    ottla.fails("cluster", "drain", "1", "--no-wait", code=2)
    there: dict[str, Any] = {"topic": "t", "partition": 0, "replicas": [1]}
    for document, reason in (
        ("{", "not JSON"),
        ([], "not a plan"),
        ({"partitions": []}, "without partitions"),
        ({"version": 2, "partitions": [there]}, "version 2"),
        ({"partitions": [3]}, "partition 1 of the list: not an object"),
        ({"partitions": [{**there, "topic": ""}]}, "no topic"),
        ({"partitions": [{**there, "partition": -1}]}, "is not a partition"),
        ({"partitions": [{**there, "replicas": []}]}, "replicas must be a list"),
        ({"partitions": [{**there, "replicas": [1, 1]}]}, "name a broker twice"),
        ({"partitions": [{**there, "log_dirs": ["/data"]}]}, "log_dirs"),
        ({"partitions": [there, there]}, "t-0 is named twice"),
        ({"partitions": [{**there, "partition": 5}]}, "topic t has 1 partition, no 5"),
        ({"partitions": [{**there, "replicas": [9]}]}, "broker 9 isn't running"),
    ):
        text = document if isinstance(document, str) else json.dumps(document)
        assert reason in ottla.fails("cluster", "reassign", "--file", "-", stdin=text)
    cluster.brokers[3].kill()
    wait_for(lambda: len(ottla.json("cluster")["brokers"][2]["address"] or "") == 0, "broker 3 to be gone")
    assert "broker 3 has replicas and isn't running" in ottla.fails("cluster", "reassign")


def test_preferred_replicas_lead_again(cluster: Cluster, ottla: Ottla) -> None:
    create(cluster, "t", (1, 2), (2, 1), (1, 2))
    cluster.brokers[1].stop(30)
    assert leaders(cluster, "t") == [2, 2, 2]
    failed = ottla.run("cluster", "elect", "--topic", "t:0")
    assert failed.exit_code == 1
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in failed.stdout
    cluster.brokers[1].start()
    cluster.wait_in_sync("t", 2)
    assert ottla.json("cluster", "elect", "--topic", "t:0") == [
        {"topic": "t", "partition": 0, "leader_before": 2, "leader": 1, "problem": None}
    ]
    assert ottla.rows("cluster", "elect") == [["t", "2", "2", "1"]]
    assert leaders(cluster, "t") == [1, 2, 1]
    assert "no partition needs another leader" in ottla.run("cluster", "elect").stderr


def test_an_unclean_election_is_asked_for_twice(cluster: Cluster, ottla: Ottla, tmp_path: Path) -> None:
    create(cluster, "t", (1, 2))
    cluster.brokers[2].stop(30)
    produce(ottla, tmp_path, "lost")
    cluster.brokers[1].stop(30)
    cluster.brokers[2].start()
    wait_for(lambda: ottla.json("cluster")["offline"] == 1, "the partition to have no leader")
    assert "PREFERRED_LEADER_NOT_AVAILABLE" in ottla.run("cluster", "elect").stdout
    assert "Can't ask for confirmation" in ottla.fails("cluster", "elect", "--unclean", code=2)
    code, shown = ottla.at_terminal("cluster", "elect", "--unclean", answer="n\n")
    assert code == 1
    assert "loses records" in shown
    assert leaders(cluster, "t") == [None]
    (elected,) = ottla.json("cluster", "elect", "--unclean", "--yes")
    assert (elected["leader_before"], elected["leader"]) == (None, 2)
    assert consume(ottla) == []
    assert ottla.json("cluster", "elect", "--unclean") == []


def test_admin_asks_the_controller(cluster: Cluster) -> None:
    create(cluster, "t", (1, 2), (2, 1))
    first, second, absent = (TopicPartition(*each) for each in (("t", 0), ("t", 1), ("u", 0)))

    async def use(admin: Admin) -> None:
        assert await admin.elect_leaders() == {}
        assert await admin.elect_leaders(ElectionType.PREFERRED, [first, second]) == {
            first: False,
            second: False,
        }
        assert await admin.list_partition_reassignments() == {}
        await admin.alter_partition_reassignments({first: [3, 1]})
        while await admin.list_partition_reassignments([first]):
            await asyncio.sleep(0.05)
        with pytest.raises(BrokerError) as caught:
            await admin.alter_partition_reassignments({first: None})
        assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        with pytest.raises(PartialError) as several:
            await admin.alter_partition_reassignments({first: [9], absent: [1]})
        assert {tp: error.code for tp, error in several.value.errors.items()} == {  # type: ignore[attr-defined]
            first: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            absent: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }

    with_admin(cluster, use)
    assert placed(cluster, "t")[0] == (3, 1)


def test_watching_a_broker_go(cluster: Cluster, ottla: Ottla) -> None:
    create(cluster, "t", (1, 2))
    command = [OTTLA, "cluster", "--watch", "--interval", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ottla.environment) as process:
        assert process.stdout is not None
        assert "3 brokers, controller" in process.stdout.readline()
        cluster.brokers[2].kill()
        assert any("1 under-replicated" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    command = [OTTLA, "cluster", "describe", "--watch", "--json", "--interval", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ottla.environment) as process:
        assert process.stdout is not None
        documents = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143
    assert [each["under_replicated"] for each in documents] == [1, 1]
    ottla.fails("cluster", "--watch", "--apis", code=2)


def test_a_page_goes_on_when_the_controller_dies(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_console.cached.SHARE", 0)  # however slow this machine is
    create(cluster, "t", (1, 2, 3))
    victim = cluster.controller()

    async def use() -> str:
        async with browsing(cluster.bootstrap, refresh=0.1) as browser:
            assert (
                f'/brokers/{victim}">{victim}</a> <span class="tag">controller</span>'
                in (await browser.get("/")).text
            )
            async with browser.events("/") as events, asyncio.timeout(60):
                assert (await anext(events))[0] == "live"
                await asyncio.to_thread(cluster.brokers[victim].kill)
                async for name, shown in events:
                    # Until there is an answer again, it says why not, and stays.
                    assert name in ("live", "failed"), shown
                    elected = '<span class="tag">controller</span>' in shown
                    if name == "live" and "critical" in shown and "not running" in shown and elected:
                        assert f"broker {victim}" in shown
                        return str(shown)
        raise AssertionError("the page ended")

    shown = asyncio.run(use())
    assert f'/brokers/{victim}">{victim}</a> <span class="tag">controller</span>' not in shown


def test_watching_at_a_terminal(cluster: Cluster, ottla: Ottla) -> None:
    pytest.importorskip("rich")
    create(cluster, "t", (1, 2))
    parent, child = pty.openpty()
    ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    command = [OTTLA, "cluster", "--watch", "--interval", "0.2"]
    with subprocess.Popen(command, stdin=child, stdout=child, stderr=child, env=ottla.environment) as process:
        os.close(child)
        shown, deadline = "", time.monotonic() + 60
        while shown.count("Cluster id") < 2 and time.monotonic() < deadline:
            if readable(parent, 0.1):
                shown += os.read(parent, 65536).decode(errors="replace")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    os.close(parent)
    assert "\x1b[?1049h" in shown, "the alternate screen"
    assert "all replicas in sync" in shown
    assert "Ctrl-C ends it" in shown
