"""What a batch reads, without Spark: start and end by words, offsets, times and groups, and splits into tasks."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tests.pipeline.source.conftest import Put

from ottla_client.errors import BrokerError, UnknownTopicError
from ottla_client.sync import Admin
from ottla_client.types import TopicPartition
from ottla_pipeline.reading import DataLoss, OffsetRange
from ottla_pipeline.source.batch import OttlaReader, planned
from ottla_pipeline.source.cluster_queries import ClusterQueries, LogEnd, LogSize
from ottla_pipeline.source.errors import OptionError, SourceError
from ottla_pipeline.source.options import resolve
from ottla_pipeline.source.tasks import RangePartition
from ottla_protocol.errors import ErrorCode

Planned = Callable[..., list[tuple[int, int, int]]]
NOON = 1_700_000_000_000


@pytest.fixture
def plan(options: Callable[..., dict[str, str]]) -> Planned:
    """The ranges that a batch of these options reads: partition, start, end."""

    def make(**given: str) -> list[tuple[int, int, int]]:
        made = planned(resolve(options(**given), stream=False))
        return [(each.partition, each.start, each.end) for each in made.ranges]

    return make


def test_all_there_is(plan: Planned, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic(3, prefix="found-by-a-pattern")
    put(topic, 5)
    put(topic, 2, partition=2)
    assert plan(subscribe=topic) == [(0, 0, 5), (2, 0, 2)]
    assert plan(subscribePattern=f"(?i){topic[:-1].upper()}.") == [(0, 0, 5), (2, 0, 2)]
    # Found, not matched from end to end: so it is with Spark's connector.
    assert plan(subscribePattern=topic[1:-1]) == [(0, 0, 5), (2, 0, 2)]
    assert plan(subscribePattern=f"^{topic[1:]}") == []
    assert plan(assign=json.dumps({topic: [2, 1]})) == [(2, 0, 2)]
    assert plan(subscribePattern="no-topic-has-this-name") == []


def test_offsets(plan: Planned, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic(2)
    put(topic, 5)
    put(topic, 5, partition=1)
    start = json.dumps({topic: {"0": 2, "1": -2}})
    end = json.dumps({topic: {"0": -1, "1": 3}})
    assert plan(subscribe=topic, startingOffsets=start, endingOffsets=end) == [(0, 2, 5), (1, 0, 3)]
    for part in ("starting", "ending"):
        with pytest.raises(SourceError, match=f"{part}Offsets says nothing of {topic}-1"):
            plan(subscribe=topic, **{f"{part}Offsets": json.dumps({topic: {"0": 2}})})
        with pytest.raises(SourceError, match=f"{part}Offsets names {topic}-2"):
            plan(subscribe=topic, **{f"{part}Offsets": json.dumps({topic: {"0": 2, "1": 2, "2": 2}})})


def test_offsets_that_the_log_does_not_have(
    plan: Planned, new_topic: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic = new_topic()
    put(topic, 10)
    admin.delete_records({TopicPartition(topic, 0): 3})
    early, late, later = (json.dumps({topic: {"0": offset}}) for offset in (1, 20, 12))
    with pytest.raises(DataLoss, match=r"offsets 1 to 2 .retention"):
        plan(subscribe=topic, startingOffsets=early)
    assert plan(subscribe=topic, startingOffsets=early, failOnDataLoss="false") == [(0, 3, 10)]
    with pytest.raises(DataLoss, match="the log ends at 10"):
        plan(subscribe=topic, endingOffsets=late)
    assert plan(subscribe=topic, endingOffsets=late, failOnDataLoss="false") == [(0, 3, 10)]
    with pytest.raises(DataLoss, match="the log ends at 10"):
        plan(subscribe=topic, startingOffsets=later)
    assert plan(subscribe=topic, startingOffsets=later, failOnDataLoss="false") == []


def test_times(plan: Planned, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic(2, retention_ms=-1)
    put(topic, 10, at=NOON)
    put(topic, 10, partition=1, at=NOON + 5000)
    four, twelve = str(NOON + 4000), str(NOON + 12000)
    assert plan(subscribe=topic, startingTimestamp=four) == [(0, 4, 10), (1, 0, 10)]
    assert plan(subscribe=topic, endingTimestamp=four) == [(0, 0, 4)]
    # No record of the first partition is as late: that is an error at the start, and the end of the log at the end.
    assert plan(subscribe=topic, endingTimestamp=twelve) == [(0, 0, 10), (1, 0, 7)]
    with pytest.raises(OptionError, match=f"no record of {topic}-0 is as late as {twelve}"):
        plan(subscribe=topic, startingTimestamp=twelve)
    lenient = plan(subscribe=topic, startingTimestamp=twelve, startingOffsetsByTimestampStrategy="latest")
    assert lenient == [(1, 7, 10)]
    each = json.dumps({topic: {"0": NOON + 1000, "1": NOON + 7000}})
    assert plan(subscribe=topic, startingOffsetsByTimestamp=each) == [(0, 1, 10), (1, 2, 10)]
    assert plan(subscribe=topic, endingOffsetsByTimestamp=each) == [(0, 0, 1), (1, 0, 2)]
    with pytest.raises(
        OptionError, match=f"startingTimestamp is at offset 4 of {topic}-0, behind endingOffsets at 2"
    ):
        plan(
            subscribe=topic,
            startingTimestamp=four,
            endingOffsets=json.dumps({topic: {"0": 2, "1": 2}}),
        )


def test_the_groups_offsets(
    plan: Planned, new_topic: Callable[..., str], new_name: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic, group = new_topic(2), new_name("group")
    put(topic, 5)
    put(topic, 5, partition=1)
    admin.alter_group_offsets(group, {TopicPartition(topic, 1): 3})
    assert plan(subscribe=topic, startingOffsets="group", kafka__group__id=group) == [(0, 0, 5), (1, 3, 5)]


def test_splits(plan: Planned, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic(2)
    put(topic, 100, size=1000)
    put(topic, 4, partition=1)
    assert plan(subscribe=topic) == [(0, 0, 100), (1, 0, 4)]
    assert plan(subscribe=topic, minPartitions="3") == [(0, 0, 50), (0, 50, 100), (1, 0, 4)]
    assert plan(subscribe=topic, maxRecordsPerPartition="50") == [(0, 0, 50), (0, 50, 100), (1, 0, 4)]
    by_bytes = plan(subscribe=topic, maxBytesPerPartition="30k")
    assert by_bytes[-1] == (1, 0, 4)
    assert [start for _, start, _ in by_bytes[:-1]] == [0, 25, 50, 75]


def test_a_topic_that_is_not_there(plan: Planned, new_topic: Callable[..., str]) -> None:
    topic = new_topic(prefix="flights")
    with pytest.raises(SourceError, match=f"topic '{topic}x' does not exist .is it '{topic}'"):
        plan(subscribe=f"{topic},{topic}x")
    with pytest.raises(SourceError, match="does not exist"):
        plan(assign=json.dumps({f"{topic}x": [0]}))
    with pytest.raises(SourceError, match="INVALID_TOPIC"):
        plan(subscribe="no/name")


def test_nobody_to_ask(options: Callable[..., dict[str, str]]) -> None:
    given = {
        **options(subscribe="t", kafka__request__timeout__ms="300"),
        "kafka.bootstrap.servers": "127.0.0.1:1",
    }
    with pytest.raises(SourceError, match=r"127.0.0.1:1: connection refused") as caught:
        OttlaReader(resolve(given, stream=False), ("offset",)).partitions()
    assert "\n" not in str(caught.value)


def test_somebody_who_does_not_answer(options: Callable[..., dict[str, str]]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        servers = f"127.0.0.1:{server.getsockname()[1]}"
        given = options(subscribe="t", kafka__request__timeout__ms="300")
        with pytest.raises(SourceError, match=f"no bootstrap server answered as a broker in time: {servers}"):
            planned(resolve({**given, "kafka.bootstrap.servers": servers}, stream=False))


def test_a_table_without_partitions_has_no_rows(options: Callable[..., dict[str, str]]) -> None:
    reader = OttlaReader(
        resolve(options(subscribePattern="no-topic-has-this-name"), stream=False), ("offset",)
    )
    (nothing,) = reader.partitions()
    assert nothing.value == ()
    assert list(reader.read(nothing)) == []


def test_places_of_segments(
    options: Callable[..., dict[str, str]], new_topic: Callable[..., str], put: Put, broker: Any
) -> None:
    topic = new_topic()
    put(topic, 3)
    (range,) = planned(resolve(options(subscribe=topic), stream=False)).ranges
    assert range.segments is not None
    assert range.segments.folder == str(broker.folder)
    assert range.segments.cluster_id
    (range,) = planned(resolve(options(subscribe=topic, segments="never"), stream=False)).ranges
    assert range.segments is None


def test_questions(
    asked: ClusterQueries, new_topic: Callable[..., str], new_name: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic, group = new_topic(2, retention_ms=-1), new_name("group")
    put(topic, 5, size=100, at=NOON)
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    assert asked.partitions([topic]) == both
    assert asked.earliest(both) == dict.fromkeys(both, 0)
    assert asked.latest(both) == asked.latest(both, "read_committed") == {both[0]: 5, both[1]: 0}
    assert asked.ends(both)[both[0]] == LogEnd(5, 0)
    assert asked.by_time({both[0]: NOON + 2000, both[1]: NOON}) == {both[0]: 2, both[1]: None}
    assert asked.group_offsets(group) == {}
    asked.commit(group, {both[0]: 4})
    assert asked.group_offsets(group) == asked.group_offsets(group, both) == {both[0]: 4}
    id = admin.describe_topics([topic])[topic].id
    assert id is not None
    assert asked.topic_ids([topic]) == {topic: id.hex()}
    assert asked.log_sizes(both)[both[0]].size >= 500
    assert asked.cluster_id()
    with pytest.raises(UnknownTopicError, match="create it, or correct its name"):
        asked.partitions([f"{topic}-not"])
    assert asked.earliest([]) == asked.latest([]) == asked.by_time({}) == {}
    asked.close()
    assert asked.partitions([topic]) == both, "a question opens new connections"


def test_logs_on_disk_are_looked_at_again_after_a_while(
    broker: Any, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    now = [0.0]
    (partition,) = [TopicPartition(topic, 0)]
    with ClusterQueries(broker.bootstrap, clock=lambda: now[0]) as asked:
        asked.partitions([topic])
        first = asked.log_sizes([partition])[partition]
        put(topic, 5, size=100)
        assert asked.log_sizes([partition])[partition] == first
        now[0] += 31
        assert asked.log_sizes([partition])[partition].size > first.size


def refused(*_: object) -> dict[TopicPartition, LogSize]:
    raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "this user may not do that to the cluster")


def test_brokers_that_do_not_tell_of_their_disks(
    plan: Planned, new_topic: Callable[..., str], put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    put(topic, 5)
    monkeypatch.setattr(ClusterQueries, "log_sizes", refused)
    assert plan(subscribe=topic) == [(0, 0, 5)], "what was not asked for is left out"
    with pytest.raises(OptionError, match="the brokers don't report: this user may not"):
        plan(subscribe=topic, maxBytesPerPartition="1k")
    with pytest.raises(SourceError, match="segments is always"):
        plan(subscribe=topic, segments="always")


def test_an_end_that_an_open_transaction_holds_back(
    plan: Planned, new_topic: Callable[..., str], put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(retention_ms=-1)
    put(topic, 10, at=NOON)
    asked = ClusterQueries.ends

    def held(self: ClusterQueries, partitions: Any, isolation: Any = "read_uncommitted") -> Any:
        ends = asked(self, partitions, isolation)
        return {each: LogEnd(6) for each in ends} if isolation == "read_committed" else ends

    monkeypatch.setattr(ClusterQueries, "ends", held)
    committed = {"subscribe": topic, "kafka__isolation__level": "read_committed"}
    assert plan(**committed) == [(0, 0, 6)]
    assert plan(**committed, endingTimestamp=str(NOON + 8000)) == [(0, 0, 6)]
    assert plan(**committed, endingTimestamp=str(NOON + 3000)) == [(0, 0, 3)]
    with pytest.raises(SourceError, match="a transaction is open from offset 6 on"):
        plan(**committed, endingOffsets=json.dumps({topic: {"0": 8}}))
    with pytest.raises(DataLoss, match="the log ends at 10"):
        plan(**committed, endingOffsets=json.dumps({topic: {"0": 80}}))


def test_ranges_travel() -> None:
    import pickle

    partition = RangePartition((OffsetRange("t", "", 0, 1, 2),))
    assert pickle.loads(pickle.dumps(partition)).value == partition.value
