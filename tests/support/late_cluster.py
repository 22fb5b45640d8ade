"""Three brokers behind networks that hold requests back, and what may happen to them while a request is held."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from harness.ports import free_port
from tests.support import late_scenarios as late_scenarios  # fills the table
from tests.support import late_scene as late
from tests.support.cluster import Cluster
from tests.support.late_drivers import MakeDriver
from tests.support.late_frames import Holds, LateFrames
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client import NewTopic, TopicPartition
from ottla_client.admin import ElectionType
from ottla_client.sync import Admin

FIRST, SECOND = 1, 2
_BROKERS = (1, 2, 3)
_SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "min.insync.replicas": 2,
    "transaction.state.log.min.isr": 2,
    "inter.broker.listener.name": "INNER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LATE:PLAINTEXT,INNER:PLAINTEXT",
}


class LateCluster:
    """FIRST leads partition 0 of each topic and coordinates everything; the other brokers lead the other partitions.

    Clients and brokers reach the brokers through networks, tests directly.
    """

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess) -> None:
        self.holds = Holds()
        self._outer = {number: LateFrames(self.holds) for number in _BROKERS}
        self._inner = {number: LateFrames(self.holds) for number in _BROKERS}
        waiting = list(_BROKERS)

        def listeners(port: int) -> Mapping[str, object]:
            number = waiting.pop(0)
            names = {"LATE": self._outer[number], "INNER": self._inner[number]}
            for network in names.values():
                network.target = free_port()
            own = f"PLAINTEXT://127.0.0.1:{port}"
            listens = [f"{name}://127.0.0.1:{network.target}" for name, network in names.items()]
            says = [f"{name}://{network.address}" for name, network in names.items()]
            return {"listeners": ",".join([own, *listens]), "advertised.listeners": ",".join([own, *says])}

        settings = {**late.SETTINGS, "transaction.state.log.replication.factor": 3, **_SETTINGS}
        self.cluster = Cluster(folder, zookeeper, len(_BROKERS), settings, listeners=listeners)

    @property
    def address(self) -> str:
        """For clients whose requests may be held back."""
        return ",".join(network.address for network in self._outer.values())

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def start(self) -> None:
        for network in (*self._outer.values(), *self._inner.values()):
            network.start()
        self.cluster.start()
        for name in (late.TRANSACTIONS, late.OFFSETS):
            self._create(name, 1, {"cleanup.policy": "compact"})

    def __enter__(self) -> LateCluster:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
        assert not self.cluster.complaints()

    def close(self) -> None:
        self.cluster.kill()
        for network in (*self._outer.values(), *self._inner.values()):
            network.close()

    def create(self, topic: str) -> None:
        self._create(topic, late.PARTITIONS, {})

    def _create(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        assignment = {number: _order(number + 1) for number in range(partitions)}
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, assignment=assignment, configs=configs)])
        self.cluster.wait_in_sync(topic, len(_BROKERS))

    def lead(self, broker: int, *topics: str) -> None:
        """Have a broker lead partition 0 of topics: as its first replica, by a preferred election."""
        places = [TopicPartition(topic, 0) for topic in topics]
        for topic in topics:
            self.cluster.wait_in_sync(topic, len(_BROKERS))
        with Admin(self.bootstrap) as admin:
            admin.alter_partition_reassignments(dict.fromkeys(places, _order(broker)))
            wait_for(lambda: not admin.list_partition_reassignments(), "the order of the replicas")
            admin.elect_leaders(ElectionType.PREFERRED, places)
        self.wait_leader({broker}, *topics)

    def wait_leader(self, brokers: set[int], *topics: str) -> None:
        """Wait until all brokers that work know that one of these leads partition 0 of topics."""
        working = [number for number in _BROKERS if number not in self.cluster.frozen]

        def leads() -> bool:
            answers = [self.cluster.metadata(number, list(topics)) for number in working]
            leaders = {
                each.leader_id
                for answer in answers
                for topic in answer.topics
                for each in topic.partitions
                if each.partition_index == 0
            }
            return len(leaders) > 0 and leaders <= brokers

        wait_for(leads, f"{brokers} to lead {topics}")

    def kill(self, broker: int) -> None:
        """Kill a broker and start it again: another leads then."""
        self.cluster.brokers[broker].kill()
        self.cluster.brokers[broker].start()
        self.cluster.wait_complete()

    def freeze(self, broker: int, *topics: str) -> None:
        """Freeze a broker until others lead these topics."""
        self.cluster.freeze(broker)
        self.wait_leader(set(_BROKERS) - {broker}, *topics)
        self.cluster.thaw(broker)
        # Until it hears of the others' election, it names itself and all replicas in sync, which lead() would believe.
        self.wait_leader(set(_BROKERS) - {broker}, *topics)
        self.cluster.wait_complete()


def _order(first: int) -> list[int]:
    return [first, *(number for number in _BROKERS if number != first)]


class Moved(late.Move):
    """The coordinator or leader that the scenario is about has moved to SECOND before."""

    def __init__(self, place: LateCluster, topics: list[str]) -> None:
        self._place, self._topics = place, topics

    def begin(self) -> None:
        self._place.lead(FIRST, *self._topics)

    def ready(self) -> None:
        self._place.lead(SECOND, *self._topics)


class Killed(Moved):
    """It was killed before, and leads again."""

    def ready(self) -> None:
        self._place.kill(FIRST)
        self._place.lead(SECOND, *self._topics)


class Within(Moved):
    """It moves while the transaction whose request is held is open."""

    def ready(self) -> None:
        pass

    def written(self) -> None:
        self._place.lead(SECOND, *self._topics)


class Refused(Within):
    """The same, and of the requests to the new one the second is held: the first may have been refused."""

    skip = 1


class Back(Moved):
    """It moves away and back while the request is held."""

    def ready(self) -> None:
        pass

    def held(self) -> None:
        self._place.lead(SECOND, *self._topics)
        self._place.lead(FIRST, *self._topics)


class Frozen(Back):
    """It is frozen until others have taken over, and leads again while the request is held."""

    def held(self) -> None:
        self._place.freeze(FIRST, *self._topics)
        self._place.lead(FIRST, *self._topics)


class After(Back):
    """It moves after the request has come."""

    def held(self) -> None:
        pass

    def delivered(self) -> None:
        self._place.lead(SECOND, *self._topics)


MOVES: dict[str, type[Moved]] = {
    "moved": Moved,
    "killed": Killed,
    "within": Within,
    "refused": Refused,
    "back": Back,
    "frozen": Frozen,
    "after": After,
}

CASES = [(name, move) for name, each in late.SCENARIOS.items() for move in ("still", *each.moves)]
"""All scenarios, each with all that may happen meanwhile."""
QUICKEST = {
    ("commit", "moved"),
    ("commit", "within"),
    ("commit", "refused"),
    ("commit", "frozen"),
    ("abort", "killed"),
    ("abort", "back"),
    ("commits_on_two_connections", "moved"),
    ("record", "back"),
    ("record_amid", "moved"),
    ("committed_record", "back"),
    ("lost_answer_before_an_abort", "still"),
    ("offsets", "moved"),
    ("offsets", "refused"),
    ("offsets_after_an_abort", "back"),
    ("init_of_a_known_id", "back"),
    ("zombie_writes", "moved"),
    ("commit_marker", "still"),
    ("abort_marker", "still"),
}
"""Those of them that `make test` has time for."""


def play(name: str, move: str, cluster: LateCluster, make: MakeDriver, topic: str = "") -> None:
    """Run a scenario. Raises AssertionError or StepFailed for an anomaly."""
    topic = topic or f"{name}-{move}"
    topics = [topic if each == late.RECORDS else each for each in late.SCENARIOS[name].topics]
    kind = MOVES.get(move)
    late.play(name, cluster, make, topic, None if kind is None else kind(cluster, topics))
