"""Faults: each one begins, lasts a while and is reverted. All are random, from one seed."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.crash.damage import append_damage
from tests.faults.cluster import MOST_LAG_SECONDS, SESSION_SECONDS, FaultCluster, Member
from tests.faults.network import ZOOKEEPER
from tests.faults.stepped import HELD_SECONDS
from tests.faults.transformers import TARGET, TARGET_PARTITIONS
from tests.support.waiting import wait_for

from ottla_client import TopicPartition
from ottla_client.admin import ElectionType
from ottla_client.sync import Admin

OFFSETS = "__consumer_offsets"
TRANSACTIONS = "__transaction_state"
TRANSACTIONS_PARTITIONS = 3
_ROLES = ("leader", "follower", "controller", "coordinator")


class Nemesis:
    """``faults`` has the kinds of faults by name. Each call returns a description of what was done."""

    def __init__(
        self,
        cluster: FaultCluster,
        chance: random.Random,
        topic: str,
        partitions: int,
        without_store: float,
        *,
        transactions: bool = False,
        written: tuple[str, int] = (TARGET, TARGET_PARTITIONS),
    ) -> None:
        """``without_store``: how many seconds ZooKeeper stays stopped.

        ``transactions``: there are some to disturb; ``written``: the topic that they write to, and its partitions.
        """
        self.cluster = cluster
        self.chance = chance
        self.topic = topic
        self.partitions = partitions
        self._without_store = without_store
        self._written = written
        self.coordinating = 0
        """The partition of the offsets' topic that has the group."""
        self.faults: dict[str, Callable[[], str]] = {
            **{f"kill the {role}": lambda role=role: self._kill(role) for role in _ROLES},
            "kill everybody": self._kill_everybody,
            "stop": self._stop,
            "bounce": self._bounce,
            "freeze the leader": lambda: self._freeze("leader"),
            "freeze the controller": lambda: self._freeze("controller"),
            "freeze": lambda: self._freeze(self._role("freeze")),
            "freeze for a moment": self._freeze_for_a_moment,
            "hold a loop": self._hold,
            "stop ZooKeeper": self._stop_zookeeper,
            "kill one ZooKeeper": self._kill_one_zookeeper,
            "expire a session": self._expire,
            "wipe a follower": self._wipe,
            "tear a tail": self._tear,
            "nonsense at a tail": self._nonsense,
            "cut both ways": self._cut_both_ways,
            "cut one way": self._cut_one_way,
            "reset a link": self._sever,
            "cut off from the others": self._cut_off,
            "cut off from ZooKeeper": self._cut_from_zookeeper,
            "cut off from all": self._cut_from_all,
            "refuse connections": self._refuse,
            "kill the leader with a follower cut off": self._kill_and_cut_off,
            "kill the leader without ZooKeeper": self._kill_without_zookeeper,
            "step a clock": self._step_a_clock,
            "step all clocks": self._step_all_clocks,
        }
        if transactions:
            role = "transaction coordinator"
            self.faults[f"kill the {role}"] = lambda: self._kill(role)
            self.faults[f"freeze the {role}"] = lambda: self._freeze(role)
            self.faults["move what transactions write to"] = self._move
            self.faults["lead elsewhere"] = self._lead_elsewhere
        self._roles: dict[str, list[str]] = {}

    def order(self) -> Iterator[str]:
        """Endless kinds: all of them once in random order, then again in another order."""
        while True:
            names = list(self.faults)
            self.chance.shuffle(names)
            yield from names

    def _role(self, fault: str) -> str:
        """A random role, but each kind of fault hits every role before any role again."""
        left = self._roles.get(fault)
        if not left:
            left = self._roles[fault] = list(_ROLES)
            self.chance.shuffle(left)
        return left.pop()

    def _who(self, role: str) -> Member:
        cluster = self.cluster
        partition = self.chance.randrange(self.partitions)
        # Drawn for every role, so that the same seed continues the same way.
        other = self.chance.random()
        if role == "controller":
            number = cluster.controller(self.topic)
        elif role == "coordinator":
            number = cluster.leader(OFFSETS, self.coordinating)
        elif role == "transaction coordinator":
            number = cluster.leader(TRANSACTIONS, int(other * TRANSACTIONS_PARTITIONS))
        else:
            number = cluster.leader(self.topic, partition)
            if role == "follower":
                rest = [n for n in cluster.members if n != number]
                number = rest[int(other * len(rest))]
        return cluster.members[number]

    def _pause(self, least: float, most: float) -> None:
        time.sleep(self.chance.uniform(least, most))

    def _past_the_session(self) -> None:
        self._pause(SESSION_SECONDS + 1, SESSION_SECONDS + 3)

    def _kill(self, role: str) -> str:
        victim = self._who(role)
        victim.kill()
        self._pause(0.2, 3)
        victim.start()
        return f"broker {victim.number}, the {role}"

    def _move(self) -> str:
        """Leaders of records, offsets and the state of transactions lose their replicas, and copy them again."""
        cluster, chance = self.cluster, self.chance
        cluster.wait_whole()
        partitions = [
            TopicPartition(self._written[0], chance.randrange(self._written[1])),
            TopicPartition(OFFSETS, self.coordinating),
            TopicPartition(TRANSACTIONS, chance.randrange(TRANSACTIONS_PARTITIONS)),
        ]
        leaders = {each: cluster.leader(each.topic, each.partition) for each in partitions}
        rest = {
            each: chance.sample([number for number in cluster.members if number != leader], 2)
            for each, leader in leaders.items()
        }
        with Admin(cluster.bootstrap) as admin:
            admin.alter_partition_reassignments(rest, timeout=60)
            wait_for(lambda: not admin.list_partition_reassignments(), "the moves to end", 60, 0.05)
            self._pause(0, 2)
            admin.alter_partition_reassignments(
                {each: [*rest[each], leader] for each, leader in leaders.items()}, timeout=60
            )
        return ", ".join(f"{each.topic}-{each.partition} from {leader}" for each, leader in leaders.items())

    def _lead_elsewhere(self) -> str:
        """Other brokers become leaders and coordinators, while all of them are alive."""
        cluster, chance = self.cluster, self.chance
        cluster.wait_whole()
        topics = {self._written[0]: self._written[1], TRANSACTIONS: TRANSACTIONS_PARTITIONS}
        orders = {
            TopicPartition(topic, number): chance.sample(sorted(cluster.members), 3)
            for topic, partitions in {**topics, OFFSETS: self.coordinating + 1}.items()
            for number in range(partitions)
        }
        with Admin(cluster.bootstrap) as admin:
            admin.alter_partition_reassignments(orders, timeout=60)
            wait_for(lambda: not admin.list_partition_reassignments(), "the orders to change", 60, 0.05)
            admin.elect_leaders(ElectionType.PREFERRED, list(orders))
        return ", ".join(f"{each.topic}-{each.partition} to {order[0]}" for each, order in orders.items())

    def _kill_everybody(self) -> str:
        order = self.chance.sample(sorted(self.cluster.members), 3)
        for number in order:
            self.cluster.members[number].kill()
        self._pause(0, 1)
        again = self.chance.sample(order, 3)
        for number in again:
            self.cluster.members[number].start()
        return f"brokers {order}, started as {again}"

    def _stop(self) -> str:
        role = self._role("stop")
        victim = self._who(role)
        code = victim.stop()
        assert code == 0, f"broker {victim.number}, the {role}, was stopped and ended with {code}"
        self._pause(0, 2)
        victim.start()
        return f"broker {victim.number}, the {role}"

    def _bounce(self) -> str:
        role = self._role("bounce")
        victim = self._who(role)
        times = self.chance.randint(1, 3)
        for _ in range(times):
            victim.kill()
            victim.start()
            self._pause(0, 0.5)
        return f"broker {victim.number}, the {role}, {times} times"

    def _freeze(self, role: str) -> str:
        victim = self._who(role)
        victim.freeze()
        self._past_the_session()
        victim.thaw()
        return f"broker {victim.number}, the {role}"

    def _freeze_for_a_moment(self) -> str:
        role = self._role("freeze for a moment")
        victim = self._who(role)
        victim.freeze()
        self._pause(0.2, SESSION_SECONDS / 2)
        victim.thaw()
        return f"broker {victim.number}, the {role}"

    def _hold(self) -> str:
        role = self._role("hold a loop")
        victim = self._who(role)
        victim.send_signal(signal.SIGUSR1)
        time.sleep(HELD_SECONDS)
        return f"broker {victim.number}'s, the {role}"

    def _stop_zookeeper(self) -> str:
        ensemble = self.cluster.ensemble
        frozen = self.chance.random() < 0.3
        if frozen:
            ensemble.signal(signal.SIGSTOP)
        else:
            ensemble.kill()
        time.sleep(self._without_store)
        if frozen:
            ensemble.signal(signal.SIGCONT)
        ensemble.start()
        return f"{'frozen' if frozen else 'killed'}, for {self._without_store:g} s"

    def _kill_one_zookeeper(self) -> str:
        ensemble = self.cluster.ensemble
        leader = ensemble.leader()
        number = (
            leader if self.chance.random() < 0.5 and leader else self.chance.choice(list(ensemble.servers))
        )
        ensemble.kill(number)
        self._pause(2, 5)
        ensemble.start()
        return f"server {number}{', which led' if number == leader else ''}"

    def _expire(self) -> str:
        role = self._role("expire a session")
        victim = self._who(role)
        self.cluster.ensemble.expire(self.cluster.network.sessions[str(victim.number)])
        self._pause(0, 2)
        return f"broker {victim.number}'s, the {role}"

    def _wipe(self) -> str:
        victim = self._down("follower")
        victim.wipe()
        victim.start()
        return f"broker {victim.number}"

    def _tear(self) -> str:
        role = self._role("tear a tail")
        victim = self._down(role)
        cut = []
        for path in self._segments(victim):
            size = path.stat().st_size
            if size and self.chance.random() < 0.7:
                off = self.chance.randint(1, min(size, 3000))
                with path.open("r+b") as file:
                    file.truncate(size - off)
                cut.append(f"{path.parent.name} -{off}")
        victim.start()
        return f"broker {victim.number}, the {role}: {', '.join(cut)}"

    def _nonsense(self) -> str:
        role = self._role("nonsense at a tail")
        victim = self._who(role)
        victim.kill()
        damage = [
            f"{path.parent.name} {append_damage(path, self.chance)}"
            for path in self._segments(victim)
            if self.chance.random() < 0.7
        ]
        victim.start()
        return f"broker {victim.number}, the {role}: {', '.join(damage)}"

    def _down(self, role: str) -> Member:
        """Kill a broker, and wait until no acknowledged record depends on its disk."""
        self.cluster.wait_whole()
        victim = self._who(role)
        victim.kill()
        self.cluster.wait_out_of_sync(victim.number)
        return victim

    def _segments(self, victim: Member) -> list[Path]:
        """The last segment of each partition."""
        folders = sorted(victim.folder.glob(f"{self.topic}-[0-9]*"))
        for name in self.cluster.topics:
            if name != self.topic:
                folders += sorted(victim.folder.glob(f"{name}-[0-9]*"))
        return [
            max(folder.glob("*.log"))
            for folder in folders
            if folder.name.rpartition("-")[2].isdigit() and list(folder.glob("*.log"))
        ]

    def _two(self, fault: str) -> tuple[str, str]:
        """A broker with a role, and another one."""
        one = str(self._who(self._role(fault)).number)
        other = self.chance.choice([str(number) for number in self.cluster.members if str(number) != one])
        return one, other

    def _lasting(self) -> None:
        self._pause(1, max(SESSION_SECONDS, MOST_LAG_SECONDS) + 3)
        self.cluster.network.pass_all()

    def _cut_both_ways(self) -> str:
        one, other = self._two("cut both ways")
        self.cluster.network.block(one, other)
        self.cluster.network.block(other, one)
        self._lasting()
        return f"{one} and {other}"

    def _cut_one_way(self) -> str:
        one, other = self._two("cut one way")
        if self.chance.random() < 0.5:
            one, other = other, one
        self.cluster.network.block(one, other)
        self._lasting()
        return f"from {one} to {other}"

    def _sever(self) -> str:
        one, other = self._two("reset a link")
        self.cluster.network.sever(one, other)
        self._lasting()
        return f"{one} and {other}"

    def _cut_off(self) -> str:
        one, _ = self._two("cut off from the others")
        self._block_peers(one)
        self._lasting()
        return f"broker {one}, which has ZooKeeper"

    def _block_peers(self, one: str) -> None:
        for other in self.cluster.members:
            self.cluster.network.block(one, str(other))
            self.cluster.network.block(str(other), one)

    def _block_zookeeper(self, one: str) -> None:
        self.cluster.network.block(one, ZOOKEEPER)
        self.cluster.network.block(ZOOKEEPER, one)

    def _cut_from_zookeeper(self) -> str:
        one, _ = self._two("cut off from ZooKeeper")
        self._block_zookeeper(one)
        self._past_the_session()
        self.cluster.network.pass_all()
        return f"broker {one}"

    def _cut_from_all(self) -> str:
        one, _ = self._two("cut off from all")
        self._block_zookeeper(one)
        self._block_peers(one)
        self._past_the_session()
        self.cluster.network.pass_all()
        return f"broker {one}, but not from clients"

    def _refuse(self) -> str:
        """The others judge a live broker dead."""
        one, _ = self._two("refuse connections")
        network = self.cluster.network
        network.shut(one)
        for other in self.cluster.members:
            if str(other) != one:
                network.sever(one, str(other))
        self._pause(0.5, 4)
        network.open(one)
        network.pass_all()
        return f"broker {one} refuses its peers, and serves clients"

    def _kill_and_cut_off(self) -> str:
        """Only the third may lead then, and it can't acknowledge anything alone."""
        leader = self._who("leader")
        follower = self.chance.choice([n for n in self.cluster.members if n != leader.number])
        self._block_peers(str(follower))
        self._pause(0, MOST_LAG_SECONDS + 2)
        leader.kill()
        self._pause(0, 3)
        self.cluster.network.pass_all()
        leader.start()
        return f"broker {leader.number}, broker {follower} cut off from its peers"

    def _kill_without_zookeeper(self) -> str:
        """No controller can be elected before ZooKeeper is back."""
        ensemble = self.cluster.ensemble
        victim = self._who("leader")
        ensemble.kill()
        self._pause(0, SESSION_SECONDS + 1)
        victim.kill()
        self._pause(0, 2)
        ensemble.start()
        victim.start()
        return f"broker {victim.number}"

    def _off(self) -> float:
        """A step of a second to 20 hours, of either sign: less than a day, after which producers are forgotten."""
        return float(self.chance.choice((-1, 1)) * 10 ** self.chance.uniform(0, 4.857))

    def _step_a_clock(self) -> str:
        role = self._role("step a clock")
        victim = self._who(role)
        steps = self._step([victim])
        if self.chance.random() < 0.3:
            # A machine that starts with a wrong clock that is set later.
            victim.kill()
            victim.step_clock(off := self._off())
            victim.start()
            self._pause(0, 2)
            victim.step_clock(0)
            steps += f", started with {off:+.0f} s"
        return f"{steps}, the {role}"

    def _step_all_clocks(self) -> str:
        return self._step(list(self.cluster.members.values()))

    def _step(self, victims: list[Member]) -> str:
        """Each clock is stepped, perhaps twice, and set right."""
        steps = []
        for _ in range(self.chance.randint(1, 2)):
            for victim in victims:
                off = self._off()
                victim.step_clock(off)
                steps.append(f"broker {victim.number} {off:+.0f} s")
            self._pause(0.5, 3)
        for victim in victims:
            victim.step_clock(0)
        return ", ".join(steps)
