"""A broker whose event loop stands still, though its process lives, stops leading."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

import pytest
from tests.faults import stepped
from tests.support.cluster import Cluster
from tests.support.processes import BrokerProcess
from tests.support.to_the_end import messages
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.cluster.loop_guard import LoopGuard
from ottla_client import NewTopic
from ottla_client.sync import Admin, Producer


class _Holdable(BrokerProcess):
    @property
    def command(self) -> list[str]:
        clock = self.folder.parent / f"{self.folder.name}.clock"
        stepped.step(clock, 0)
        return [sys.executable, stepped.__file__, str(clock), "-", *self.arguments]


def test_a_leader_whose_loop_stands_still_is_replaced(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, zookeeper, 3, {"min.insync.replicas": 2})
    for number, broker in cluster.brokers.items():
        cluster.brokers[number] = _Holdable(broker.folder, broker.settings, broker.port)
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("t", assignment={0: [2, 1, 3]})])
        with Producer(cluster.bootstrap) as producer:
            producer.send("t", b"0").result(60)
            cluster.brokers[2].send_signal(signal.SIGUSR1)
            sent = 1
            while cluster.leader("t", 0) == 2:
                producer.send("t", b"%d" % sent).result(60)
                sent += 1
            for number in range(sent, sent + 10):
                producer.send("t", b"%d" % number).result(60)
        wait_for(lambda: cluster.isr("t") == {1, 2, 3}, "the broker to follow", 60)
        values = [message.value() for message in messages(cluster.bootstrap, "t")]
        assert values == [b"%d" % number for number in range(sent + 10)]
        assert "the event loop stood still" in cluster.brokers[2].log()
    finally:
        cluster.kill()


@pytest.mark.parametrize("answers", [True, False])
def test_a_loop_that_answers_has_not_stood_still(answers: bool) -> None:
    stalled, asked = threading.Event(), threading.Event()
    asked_often = 0

    def call_soon(answer: object) -> None:
        nonlocal asked_often
        assert callable(answer)
        asked_often += 1
        if answers:
            answer()
        if asked_often == 3:
            asked.set()

    guard = LoopGuard(call_soon, 1.0, [stalled.set])
    guard.start()
    try:
        assert (asked if answers else stalled).wait(60)
        assert stalled.is_set() is not answers
    finally:
        guard.stop()
