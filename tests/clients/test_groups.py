"""Groups of unmodified clients, alone and mixed: members that join, leave or die, static and cooperative."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.clients.kits import Kit, Sent
from tests.clients.members import MEMBERS, Member, MemberProcess, shared_out
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

Topic = Callable[..., str]
Join = Callable[..., Member]


@pytest.fixture
def join(broker: BrokerProcess) -> Iterator[Join]:
    """Starts members, which are stopped after the test."""
    with ExitStack() as stack:

        def start(client: str, group: str, *topics: str, **options: object) -> Member:
            return stack.enter_context(MEMBERS[client](broker.bootstrap, group, topics, **options))

        yield start


def keys(*members: Member) -> Counter[bytes]:
    return Counter(got.key or b"" for member in members for _, got in member.records)


def everything(members: list[Member], sent: list[Sent], what: str) -> None:
    """Wait until the members have every record exactly once."""
    wanted = Counter(one.key or b"" for one in sent)

    def check() -> bool:
        found = keys(*members)
        assert not found - wanted, f"{what}: doubled: {sorted(found - wanted)[:10]}"
        return found == wanted

    wait_for(check, f"{len(sent)} records to {what}")


def batch(start: int, count: int, partitions: int) -> list[Sent]:
    return [Sent(b"%d" % i, b"v", partition=i % partitions) for i in range(start, start + count)]


def test_join_leave_and_carry_on(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(4), new_name("group")
    first = join(kit.name, group, topic)
    shared_out([first], topic, 4)
    sent = batch(0, 100, 4)
    kit.produce(broker, topic, sent)
    everything([first], sent, "the only member")
    first.commit_position()

    second = join(kit.name, group, topic)
    shared_out([first, second], topic, 4)
    assert len(first.assigned) == len(second.assigned) == 2
    sent += batch(100, 100, 4)
    kit.produce(broker, topic, sent[100:])
    everything([first, second], sent, "two members")
    assert second.records
    second.commit_position()

    second.leave()
    shared_out([first], topic, 4)
    sent += batch(200, 100, 4)
    kit.produce(broker, topic, sent[200:])
    wait_for(
        lambda: set(keys(first, second)) == {one.key for one in sent}, "the one that is left to get the rest"
    )


def test_a_killed_member_is_replaced(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(4), new_name("group")
    with MemberProcess(kit.name, broker, group, topic, session_ms=3000) as doomed:
        shared_out([doomed], topic, 4)
        survivor = join(kit.name, group, topic)
        shared_out([doomed, survivor], topic, 4)
        doomed.kill()
        began = time.monotonic()
        shared_out([survivor], topic, 4)
        assert time.monotonic() - began > 0.5, "the group did not wait for the session timeout"


@pytest.mark.parametrize(
    "pair", [("confluent", "kafka-python"), ("kafka-python", "aiokafka"), ("aiokafka", "confluent")]
)
def test_different_clients_in_one_group(
    pair: tuple[str, str],
    broker: BrokerProcess,
    new_topic: Topic,
    new_name: Topic,
    join: Join,
    kit_by_name: dict[str, Kit],
) -> None:
    topic, group = new_topic(4), new_name("group")
    members = [join(client, group, topic) for client in pair]
    shared_out(members, topic, 4)
    sent = batch(0, 200, 4)
    kit_by_name[pair[0]].produce(broker, topic, sent)
    everything(members, sent, "a mixed group")
    members[0].commit_position()
    members[0].leave()
    shared_out(members[1:], topic, 4)


def test_offsets_committed_by_one_client_are_read_by_the_others(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(2), new_name("group")
    kit.produce(broker, topic, batch(0, 100, 2))
    member = join(kit.name, group, topic)
    shared_out([member], topic, 2)
    member.commit({(topic, 0): (30, "as far as thirty"), (topic, 1): (0, "")})
    assert member.committed([(topic, 0), (topic, 1)]) == {(topic, 0): 30, (topic, 1): 0}
    member.leave()
    for client in MEMBERS:
        reader = join(client, group, topic)
        shared_out([reader], topic, 2)
        assert reader.committed([(topic, 0), (topic, 1)]) == {(topic, 0): 30, (topic, 1): 0}
        wait_for(lambda reader=reader: len(reader.records) == 70, "the records after the committed offsets")
        assert min(got.offset for _, got in reader.records if got.partition == 0) == 30
        reader.leave()


def test_automatic_commits(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(), new_name("group")
    kit.produce(broker, topic, batch(0, 50, 1))
    member = join(kit.name, group, topic, auto_commit_ms=100)
    wait_for(lambda: len(member.records) == 50, "50 records")
    wait_for(lambda: member.committed([(topic, 0)]) == {(topic, 0): 50}, "an automatic commit")
    member.leave()
    kit.produce(broker, topic, batch(50, 10, 1))
    second = join(kit.name, group, topic, auto_commit_ms=100)
    wait_for(lambda: len(second.records) == 10, "the ten new records")
    assert [got.offset for _, got in second.records] == list(range(50, 60))


def test_a_static_member_comes_back_to_its_partitions_without_a_rebalance(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(4), new_name("group")
    stays = join(kit.name, group, topic, instance_id="stays", session_ms=20_000)
    shared_out([stays], topic, 4)
    goes = join(kit.name, group, topic, instance_id="goes", session_ms=20_000)
    shared_out([stays, goes], topic, 4)
    had, events = goes.assigned, len(stays.events)
    goes.leave()
    back = join(kit.name, group, topic, instance_id="goes", session_ms=20_000)
    wait_for(lambda: back.assigned == had, "the returned member to have its partitions again")
    if kit.name != "aiokafka":  # which leaves the group for good on close, static or not
        time.sleep(0.5)
        assert len(stays.events) == events


def test_an_instance_id_in_use_fences_the_older_member(
    broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(2), new_name("group")
    older = join("confluent", group, topic, instance_id="one")
    shared_out([older], topic, 2)
    newer = join("confluent", group, topic, instance_id="one")
    wait_for(lambda: older.error is not None, "the older member to get an error")
    assert "fenced" in repr(older.error).lower()
    shared_out([newer], topic, 2)


def test_cooperative_members_keep_their_partitions(
    broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join, kit_by_name: dict[str, Kit]
) -> None:
    topic, group = new_topic(6), new_name("group")
    strategy = {"partition.assignment.strategy": "cooperative-sticky"}
    members = [join("confluent", group, topic, **strategy)]
    shared_out(members, topic, 6)
    for size in (3, 2):
        members.append(join("confluent", group, topic, **strategy))
        shared_out(members, topic, 6)
        assert sorted(len(member.assigned) for member in members) == [6 // len(members)] * len(members), size
    first = members[0]
    revoked = [what for kind, what in first.events if kind != "assigned"]
    assert all(revoked), first.events
    assert sum(map(len, revoked)) == 4, "the first member gave up its partitions one rebalance at a time"
    members.pop().leave()
    shared_out(members, topic, 6)
    sent = batch(0, 120, 6)
    kit_by_name["confluent"].produce(broker, topic, sent)
    everything(members, sent, "cooperative members")
    settled = len(first.events)
    time.sleep(0.5)
    assert len(first.events) == settled, "the group goes on rebalancing"


def test_a_pattern_takes_up_new_topics(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    prefix = new_name("pattern")
    one = new_topic(1, prefix)
    new_topic(1, "other")
    member = join(kit.name, new_name("group"), pattern=f"^{prefix}-.*")
    wait_for(lambda: member.assigned == {(one, 0)}, "the topic that matches")
    if kit.name == "kafka-python":
        return  # it does not see new topics with Kafka either
    two = new_topic(2, prefix)
    wait_for(lambda: member.assigned == {(one, 0), (two, 0), (two, 1)}, "the topic made afterwards")
    kit.produce(broker, two, [Sent(b"k", b"v", partition=1)])
    wait_for(lambda: member.records, "a record of the new topic")
    assert member.records[0][0] == two


def test_new_partitions_are_taken_up(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    import confluent_kafka.admin as ca

    topic = new_topic(1)
    member = join(kit.name, new_name("group"), topic)
    shared_out([member], topic, 1)
    admin = ca.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_partitions([ca.NewPartitions(topic, 3)])[topic].result(60)
    shared_out([member], topic, 3)


def test_pause_and_resume(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    import aiokafka
    import confluent_kafka as ck
    import kafka

    topic = new_topic(2)
    member = join(kit.name, new_name("group"), topic)
    shared_out([member], topic, 2)
    if kit.name == "confluent":
        member.call(lambda consumer: consumer.pause([ck.TopicPartition(topic, 0)]))
    else:
        one = (kafka if kit.name == "kafka-python" else aiokafka).TopicPartition(topic, 0)
        member.call(lambda consumer: consumer.pause(one))
    kit.produce(broker, topic, batch(0, 20, 2))

    def offsets(partition: int) -> list[int]:
        return [got.offset for _, got in member.records if got.partition == partition]

    wait_for(lambda: offsets(1) == list(range(10)), "the partition that is not paused")
    assert not offsets(0)
    if kit.name == "confluent":
        member.call(lambda consumer: consumer.resume([ck.TopicPartition(topic, 0)]))
    else:
        member.call(lambda consumer: consumer.resume(one))
    wait_for(lambda: offsets(0) == list(range(10)), "the partition that was paused")


def test_many_members_come_and_go(
    broker: BrokerProcess, new_topic: Topic, new_name: Topic, join: Join
) -> None:
    topic, group = new_topic(8), new_name("group")
    clients = ["confluent", "kafka-python", "aiokafka", "confluent"]
    members = [join(client, group, topic) for client in clients]
    shared_out(members, topic, 8, timeout=90)
    members.pop(0).leave()
    members.append(join("confluent", group, topic))
    members.pop(0).leave()
    shared_out(members, topic, 8, timeout=90)
