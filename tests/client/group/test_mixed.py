"""Our member in one group with members of aiokafka, kafka-python and confluent-kafka (librdkafka).

The leader divides for all, so each client's assignor has to understand the others' members; the orders in
which they come have each of them lead.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AiokafkaRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AiokafkaSticky
from tests.client.group.conftest import NewMember, TestMember, partitions
from tests.clients.members import AiokafkaMember, ConfluentMember, KafkaPythonMember, Member, MemberProcess

from ottla_client.types import TopicPartition

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python loads schemas as Python 3.11 would not
    from kafka.coordinator.assignors.range import RangePartitionAssignor as PythonRange
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as PythonRoundRobin
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as PythonSticky

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

COUNT = 6
Make = Callable[..., Member]

# kafka-python drops a socket unclosed when it is closed while it connects, as where a broker has just died.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True, scope="module")
def _collect_what_they_left() -> Iterator[None]:
    """Collect garbage here, where warnings are ignored, and not during another test."""
    yield
    gc.collect()


def aiokafka(*assignors: Any) -> Make:
    return lambda *where: AiokafkaMember(*where, partition_assignment_strategy=assignors)


def kafka_python(*assignors: Any) -> Make:
    return lambda *where: KafkaPythonMember(*where, poll_ms=2000, partition_assignment_strategy=assignors)


def confluent(strategies: str) -> Make:
    return lambda *where: ConfluentMember(*where, **{"partition.assignment.strategy": strategies})


THEIRS: dict[str, dict[str, Make]] = {
    "range": {
        "aiokafka": aiokafka(AiokafkaRange),
        "kafka-python": kafka_python(PythonRange),
        "confluent": confluent("range"),
    },
    "roundrobin": {
        "aiokafka": aiokafka(AiokafkaRoundRobin),
        "kafka-python": kafka_python(PythonRoundRobin),
        "confluent": confluent("roundrobin"),
    },
    "sticky": {"aiokafka": aiokafka(AiokafkaSticky), "kafka-python": kafka_python(PythonSticky)},
    "cooperative-sticky": {"confluent": confluent("cooperative-sticky")},
}
ORDERS = [
    pytest.param(strategy, order, id=f"{strategy}: {', '.join(order)}")
    for strategy, clients in THEIRS.items()
    for order in (("ours", *clients), *((client, "ours") for client in clients))
]


async def shared_out(members: Iterable[Any], topic: str, timeout: float = 60.0) -> None:
    """Wait until each of the members has some partitions, and all have them all, each once."""
    members = list(members)
    wanted = sorted(partitions(topic, COUNT))

    def parts() -> list[list[TopicPartition]]:
        return [
            sorted(member.assignment)
            if isinstance(member, TestMember)
            else sorted(TopicPartition(*each) for each in member.assigned)
            for member in members
        ]

    try:
        async with asyncio.timeout(timeout):
            while not (all(parts()) and sorted(one for part in parts() for one in part) == wanted):
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not shared out within {timeout:g} s: {parts()}") from None


@pytest.mark.parametrize(("strategy", "order"), ORDERS)
async def test_members_of_several_clients(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    new_member: NewMember,
    strategy: str,
    order: tuple[str, ...],
) -> None:
    topic, group = new_topic(COUNT), new_name("group")
    members: list[Any] = []
    ours: list[TestMember] = []
    theirs: list[Member] = []

    async def add_ours() -> None:
        ours.append(await new_member(broker.bootstrap, group, [topic], [strategy], session_timeout_ms=1_000))
        members.append(ours[-1])

    try:
        for client in order:
            if client == "ours":
                await add_ours()
            else:
                make = THEIRS[strategy][client]
                theirs.append(await asyncio.to_thread(make, broker.bootstrap, group, [topic]))
                members.append(theirs[-1])
            await shared_out(members, topic)
        if len(order) > 2:
            await add_ours()
            await shared_out(members, topic)
            first = ours.pop(0)
            members.remove(first)
            await first.vanish()
            await shared_out(members, topic)
        gone = theirs.pop(0)
        members.remove(gone)
        await asyncio.to_thread(gone.leave)
        await shared_out(members, topic)
        assert all(member.failure is None for member in ours)
        assert all(member.notes.held == member.assignment for member in ours)
    finally:
        await asyncio.gather(*(asyncio.to_thread(member.leave) for member in theirs))


@pytest.mark.parametrize("client", ["aiokafka", "kafka-python", "confluent"])
async def test_partitions_of_killed_members_move_here(
    broker: BrokerProcess,
    new_topic: Callable[..., str],
    new_name: Callable[..., str],
    new_member: NewMember,
    client: str,
) -> None:
    topic, group = new_topic(COUNT), new_name("group")
    with MemberProcess(client, broker, group, topic, 1_500) as other:
        ours = await new_member(broker.bootstrap, group, [topic])
        await shared_out([other, ours], topic)
        other.kill()
        await shared_out([ours], topic)


async def test_from_eager_to_cooperative_beside_librdkafka(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str], new_member: NewMember
) -> None:
    topic, group = new_topic(COUNT), new_name("group")
    both = ["range", "cooperative-sticky"]
    ours = await new_member(broker.bootstrap, group, [topic], both)
    # librdkafka won't have eager and cooperative strategies together; it is the one that has moved on already.
    other = await asyncio.to_thread(confluent("cooperative-sticky"), broker.bootstrap, group, [topic])
    try:
        await shared_out([ours, other], topic)
        await ours.leave()
        ours = await new_member(broker.bootstrap, group, [topic], ["cooperative-sticky"])
        await shared_out([ours, other], topic)
    finally:
        await asyncio.to_thread(other.leave)
