"""``kill -9`` under load, repeatedly: acknowledged records exist once, in order, at their offsets."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka as ck
import pytest
from tests.clients.kits import ConfluentKit, Got
from tests.clients.members import ConfluentMember
from tests.crash.damage import active_segments, append_damage
from tests.crash.load import EAGER, Load, check, kill_under_load
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.messages.init_producer_id import InitProducerIdRequest

TOPIC = "acknowledged"
PARTITIONS = 3
OwnBroker = Callable[..., BrokerProcess]


def read_all(broker: BrokerProcess, topic: str, partitions: int) -> list[Got]:
    """Everything in the topic, partition by partition."""
    got: list[Got] = []
    consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
    try:
        for partition in range(partitions):
            low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, partition), timeout=60)
            if high > low:
                got += read_to(broker, topic, partition, low, high)
    finally:
        consumer.close()
    return got


def read_to(broker: BrokerProcess, topic: str, partition: int, low: int, high: int) -> list[Got]:
    def enough(seen: list[Got]) -> bool:
        # The last value may have been compacted away, but then a later one exists.
        return bool(seen) and seen[-1].offset >= high - 1

    return ConfluentKit().read(broker, topic, enough, partitions=[partition], offset=low)


def producer_id(broker: BrokerProcess) -> int:
    with Wire(broker.port) as wire:
        answer = wire.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0), 4)
        assert answer.error_code == 0
        return int(answer.producer_id)


def verify(broker: BrokerProcess) -> None:
    """``ottla log verify`` has no findings in the folder of a stopped broker."""
    command = [str(Path(sys.executable).with_name("ottla")), "log", "verify", str(broker.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("settings", [{}, {"log.flush.interval.messages": 1}], ids=["page-cache", "fsync"])
def test_nothing_acknowledged_is_lost_doubled_or_moved(
    own_broker: OwnBroker, rounds: int, chance: random.Random, settings: dict[str, object]
) -> None:
    broker = own_broker(settings=settings)
    # Small segments: a kill may hit a roll, and indexes must be rebuilt.
    create_topic(
        broker, TOPIC, PARTITIONS, segment_bytes=50_000, segment_index_bytes=4096, index_interval_bytes=500
    )
    loads = [Load(broker.bootstrap, TOPIC, PARTITIONS, f"{kind}{n}", kind == "idempotent")
             for n in range(2) for kind in ("idempotent", "plain")]  # fmt: skip
    ids = [producer_id(broker)]
    for _ in range(rounds):
        kill_under_load(broker, loads, chance)
        for path in active_segments(broker.folder, TOPIC):
            if chance.random() < 0.6:
                append_damage(path, chance)
        broker.start()
        ids.append(producer_id(broker))
    for load in loads:
        load.stop()
    assert ids == sorted(set(ids)), "a producer id was given twice"
    got = read_all(broker, TOPIC, PARTITIONS)
    check(loads, got)
    assert broker.stop() == 0
    verify(broker)
    broker.start()
    assert read_all(broker, TOPIC, PARTITIONS) == got, "a clean restart has changed the log"


def test_committed_offsets_survive_and_the_group_goes_on(
    own_broker: OwnBroker, rounds: int, chance: random.Random
) -> None:
    broker = own_broker(settings={"offsets.topic.num.partitions": 3})
    create_topic(broker, TOPIC, PARTITIONS)
    load = Load(broker.bootstrap, TOPIC, PARTITIONS, "idempotent", True)
    partitions = [(TOPIC, partition) for partition in range(PARTITIONS)]
    members = [
        ConfluentMember(broker.bootstrap, "group", [TOPIC], session_ms=6000, **EAGER) for _ in range(2)
    ]
    committed = dict.fromkeys(partitions, 0)
    try:
        for _ in range(rounds):
            deadline = time.monotonic() + chance.uniform(0.2, 0.8)
            while time.monotonic() < deadline:
                for member in members:
                    commit(member, committed)
            broker.kill()
            for path in active_segments(broker.folder, "__consumer_offsets"):
                if chance.random() < 0.6:
                    append_damage(path, chance)
            broker.start()
            found = members[0].committed(partitions)
            for at, offset in committed.items():
                assert (found[at] or 0) >= offset, f"{at}: {offset} was committed, {found[at]} is there"
            before = dict(committed)

            def goes_on(before: dict[tuple[str, int], int] = before) -> bool:
                for member in members:
                    commit(member, committed)
                return all(committed[at] > before[at] for at in partitions)

            wait_for(goes_on, "the group to commit in every partition again", timeout=60)
        load.stop()
        wanted = {(a.partition, a.offset) for a in load.acked}
        wait_for(
            lambda: (
                wanted <= {(got.partition, got.offset) for member in members for _, got in member.records}
            ),
            "the group to read everything that was acknowledged",
            timeout=60,
            every=0.2,
        )
    finally:
        for member in members:
            member.leave()


def commit(member: ConfluentMember, committed: dict[tuple[str, int], int]) -> None:
    """Commit what the member has polled; only answered commits count."""
    try:
        done = member.call(lambda consumer: consumer.commit(asynchronous=False))
    except ck.KafkaException:
        return  # nothing to commit, or the broker was away
    for one in done:
        if one.error is None:
            committed[one.topic, one.partition] = max(committed[one.topic, one.partition], one.offset)


def test_compaction_keeps_the_last_acknowledged_value(
    own_broker: OwnBroker, rounds: int, chance: random.Random
) -> None:
    """Killed while the cleaner runs, at any step of its swap of segments."""
    broker = own_broker(settings={"log.cleaner.backoff.ms": 15})
    create_topic(
        broker,
        TOPIC,
        1,
        cleanup_policy="compact",
        segment_bytes=30_000,
        segment_ms=300,
        min_cleanable_dirty_ratio="0.01",
        file_delete_delay_ms=50,
    )
    load = Load(broker.bootstrap, TOPIC, 1, "idempotent", True)
    for _ in range(rounds):
        kill_under_load(broker, [load], chance)
        broker.start()
        got = read_all(broker, TOPIC, 1)
        assert [one.offset for one in got] == sorted({one.offset for one in got})
    load.stop()
    got = read_all(broker, TOPIC, 1)
    last_acked = {a.key: a for a in sorted(load.acked, key=lambda a: a.offset)}
    last_found = {one.key: one for one in got}
    for key, acked in last_acked.items():
        found = last_found.get(key)
        assert found is not None, f"{key!r} is gone, {acked} was acknowledged"
        assert (found.offset, found.value) == (acked.offset, b"%d" % acked.number)
    assert len(got) < len(load.acked), "nothing was compacted"
    assert broker.stop() == 0
    left = [path.name for path in broker.folder.glob(f"{TOPIC}-0/*") if path.suffix in (".cleaned", ".swap")]
    assert not left
    verify(broker)
