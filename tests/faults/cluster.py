"""Three brokers whose network to each other and to ZooKeeper tests can cut."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.faults.ensemble import Ensemble
from tests.faults.network import ZOOKEEPER, Network
from tests.faults.stepped import step
from tests.support.cluster import QUICK
from tests.support.late_frames import LateFrames
from tests.support.processes import BrokerProcess, free_port
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

SESSION_SECONDS = 4.0
MOST_LAG_SECONDS = 4.0
_METADATA_VERSION = 12
_RECOVERY_SECONDS = 60.0
_PROGRAM = Path(__file__).with_name("stepped.py")

_SETTINGS: Mapping[str, object] = {
    **QUICK,
    "zookeeper.session.timeout.ms": int(SESSION_SECONDS * 1000),
    "replica.lag.time.max.ms": int(MOST_LAG_SECONDS * 1000),
    "replica.socket.timeout.ms": 5000,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 3,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 1000,
    "auto.create.topics.enable": "false",
    "leader.imbalance.check.interval.seconds": 10,
    "controlled.shutdown.max.retries": 2,
    "listener.security.protocol.map": "EXTERNAL:PLAINTEXT,INTERNAL:PLAINTEXT,LATE:PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
}


class Member(BrokerProcess):
    """A broker whose peers reach it through a door, and which reaches ZooKeeper through doors of its own.

    ``late``: a network that holds requests back; clients that come through it stay with it.
    """

    def __init__(
        self, folder: Path, number: int, network: Network, ensemble: Ensemble, defect: str, late: LateFrames
    ) -> None:
        super().__init__(folder)
        self.number = number
        self.frozen = False
        self._defect = defect
        self._clock = folder.parent / f"{folder.name}.clock"
        self.step_clock(0)
        self._network = network
        inner = free_port()
        late.target = free_port()
        door = network.door(str(number), inner)
        stores = [
            f"127.0.0.1:{network.door(ZOOKEEPER, server.port, str(number))}"
            for server in ensemble.servers.values()
        ]
        self.settings = {
            **_SETTINGS,
            "broker.id": number,
            "zookeeper.connect": ",".join(stores),
            "listeners": f"EXTERNAL://{self.bootstrap},INTERNAL://127.0.0.1:{inner},LATE://127.0.0.1:{late.target}",
            "advertised.listeners": (
                f"EXTERNAL://{self.bootstrap},INTERNAL://127.0.0.1:{door},LATE://{late.address}"
            ),
        }

    @property
    def command(self) -> list[str]:
        sets = [part for key, value in self.settings.items() for part in ("--set", f"{key}={value}")]
        program = [sys.executable, str(_PROGRAM), str(self._clock), self._defect]
        return [*program, "--data-dir", str(self.folder), *sets]

    def start(self, timeout: float = 60.0) -> BrokerProcess:
        self._network.open(str(self.number))
        return super().start(timeout)

    def kill(self) -> None:
        self.thaw()
        # A door without a broker would still accept connections.
        self._network.shut(str(self.number))
        super().kill()

    def stop(self, timeout: float = 30.0, sign: signal.Signals = signal.SIGTERM) -> int:
        code = super().stop(timeout, sign)
        self._network.shut(str(self.number))
        return code

    def freeze(self) -> None:
        self.send_signal(signal.SIGSTOP)
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen and self.running:
            self.send_signal(signal.SIGCONT)
        self.frozen = False

    def wipe(self) -> None:
        """Delete all its data, including its id."""
        shutil.rmtree(self.folder)

    def step_clock(self, seconds: float) -> None:
        """Set its machine's clock ahead of the real time by some seconds, or behind it (negative)."""
        step(self._clock, seconds)

    def metadata(self, topic: str | None = None) -> MetadataResponse:
        wanted = [] if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        with Wire(self.port) as connection:
            answer: MetadataResponse = connection.call(request, _METADATA_VERSION)
            return answer


class FaultCluster:
    """See above. ``topics`` must be in sync before the cluster counts as whole.

    ``defect``: the name of a defect in ``planted.py`` for the brokers.
    """

    def __init__(
        self, folder: Path, network: Network, topics: tuple[str, ...], defect: str | None = None
    ) -> None:
        self.network = network
        self.ensemble = Ensemble(folder)
        self.folder = folder
        self.late = {n: LateFrames() for n in (1, 2, 3)}
        self.members = {
            n: Member(folder / f"broker-{n}", n, network, self.ensemble, defect or "-", late)
            for n, late in self.late.items()
        }
        self.topics = topics

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members.values())

    def start(self) -> None:
        """Start everything, and wait until all brokers know each other."""
        for late in self.late.values():
            late.start()
        self.ensemble.start()
        for member in self.members.values():
            member.start()
        wait_for(
            lambda: all(
                len(member.metadata().brokers) == len(self.members) for member in self.members.values()
            ),
            "the brokers to know each other",
            _RECOVERY_SECONDS,
            0.1,
        )

    def awake(self) -> list[Member]:
        return [each for each in self.members.values() if each.running and not each.frozen]

    def leader(self, topic: str, partition: int) -> int:
        """Wait for a leader; returns its id."""

        def found() -> int:
            for member in self.awake():
                for each in member.metadata(topic).topics[0].partitions:
                    if each.partition_index == partition and each.leader_id in self.members:
                        return int(each.leader_id)
            return 0

        return wait_for(found, f"a leader of {topic}-{partition}", _RECOVERY_SECONDS, 0.05)

    def follower(self, topic: str, partition: int, chance: random.Random) -> int:
        leader = self.leader(topic, partition)
        return chance.choice([number for number in self.members if number != leader])

    def controller(self, topic: str) -> int:
        """Wait for a controller; returns its id."""

        def found() -> int:
            known = [member.metadata(topic).controller_id for member in self.awake()]
            return next((int(number) for number in known if number in self.members), 0)

        return wait_for(found, "a controller", _RECOVERY_SECONDS, 0.05)

    def state(self) -> str:
        """What is wrong; empty when all brokers know each other and all replicas are in sync."""
        everybody = sorted(self.members)
        for number, member in self.members.items():
            for name in self.topics:
                answer = member.metadata(name)
                if sorted(broker.node_id for broker in answer.brokers) != everybody:
                    return f"broker {number} knows {[broker.node_id for broker in answer.brokers]}"
                if answer.controller_id not in everybody:
                    return f"broker {number} knows of no controller"
                topic = answer.topics[0]
                if topic.error_code:
                    return f"broker {number} says error {topic.error_code} of {name}"
                for each in topic.partitions:
                    if sorted(each.isr_nodes) != everybody or each.leader_id not in everybody:
                        return (
                            f"broker {number} says of {name}-{each.partition_index}: leader {each.leader_id},"
                            f" in sync {each.isr_nodes}"
                        )
        return ""

    def wait_whole(self, timeout: float = _RECOVERY_SECONDS) -> None:
        """Wait until nothing is wrong."""
        last = ""

        def whole() -> bool:
            nonlocal last
            try:
                last = self.state()
            except OSError as error:
                last = f"a broker doesn't answer: {error}"
            return not last

        try:
            wait_for(whole, "the cluster to be whole", timeout, 0.1)
        except AssertionError:
            raise AssertionError(f"the cluster is not whole after {timeout:g} s: {last}") from None

    def wait_out_of_sync(self, number: int, timeout: float = _RECOVERY_SECONDS) -> None:
        """Wait until no partition has a dead broker among its in-sync replicas."""

        def out() -> bool:
            return all(
                number not in each.isr_nodes
                for member in self.awake()
                for name in self.topics
                for each in member.metadata(name).topics[0].partitions
            )

        wait_for(out, f"broker {number} to be out of sync", timeout, 0.05)

    def heal(self) -> None:
        """Everything runs and is connected."""
        self.network.pass_all()
        self.ensemble.signal(signal.SIGCONT)
        self.ensemble.start()
        for member in self.members.values():
            member.thaw()
            member.step_clock(0)
            if not member.running:
                member.start()

    def close(self) -> None:
        self.network.pass_all()
        for member in self.members.values():
            member.kill()
        self.ensemble.signal(signal.SIGCONT)
        self.ensemble.kill()
        for late in self.late.values():
            late.close()
