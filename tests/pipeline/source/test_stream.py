"""The stream reader as Spark calls it, without Spark: ends of batches, their ranges, and group commits."""

from __future__ import annotations

import json
import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from tests.pipeline.source.conftest import Put

from ottla_client.admin import NewPartitions, NewTopic
from ottla_client.errors import BrokerError, UnknownTopicError
from ottla_client.sync import Admin
from ottla_client.types import TopicPartition
from ottla_pipeline.reading import DataLoss
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.offsets import Offsets
from ottla_pipeline.source.options import resolve
from ottla_pipeline.source.stream import OttlaStreamReader
from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

EVERYTHING = ReadAllAvailable()
NewReader = Callable[..., OttlaStreamReader]


@pytest.fixture
def reader(options: Callable[..., dict[str, str]]) -> Iterator[NewReader]:
    """Makes readers; each is a run of the query."""
    made: list[OttlaStreamReader] = []

    def make(**given: str) -> OttlaStreamReader:
        resolved = resolve(options(**{"segments": "never", **given}), stream=True)
        made.append(OttlaStreamReader(resolved, resolved.columns))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def of(offsets: dict[str, Any]) -> dict[TopicPartition, int]:
    return dict(Offsets.of_json(offsets).of)


def ranges(
    reader: OttlaStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int, int]]:
    return [
        (each.partition, each.start, each.end)
        for task in reader.partitions(start, end)
        for each in task.value
    ]


def latest(reader: OttlaStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """As Spark asks for it, text for text."""
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(json.loads(json.dumps(start)), limit)
    return json.loads(json.dumps(end))  # type: ignore[no-any-return]


def test_from_the_beginning_batch_by_batch(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic(2)
    put(topic, 5)
    one = reader(subscribe=topic, startingOffsets="earliest")
    start = one.initialOffset()
    assert of(start) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}
    end = latest(one, start)
    assert ranges(one, start, end) == [(0, 0, 5)]
    put(topic, 3, partition=1)
    later = latest(one, end)
    assert ranges(one, end, later) == [(1, 0, 3)]
    reported = one.reportLatestOffset()
    assert reported is not None
    assert of(reported) == of(later)
    again = one.latestOffset(later, EVERYTHING)
    assert json.dumps(again) == json.dumps(later), "nothing new, so the text is the same"
    assert ranges(one, later, later) == []


def test_the_topic_id_travels_to_the_tasks(
    reader: NewReader, new_topic: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic = new_topic()
    put(topic, 1)
    one = reader(subscribe=topic, startingOffsets="earliest")
    start = one.initialOffset()
    (task,) = one.partitions(start, latest(one, start))
    id = admin.describe_topics([topic])[topic].id
    assert id is not None
    assert task.value[0].topic_uuid == id
    assert task.value[0].leader_epoch >= 0
    assert pickle.loads(pickle.dumps(task.value)) == task.value


def test_latest_loses_nothing_when_the_first_batch_is_done_again(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    """Spark keeps the end of the first batch before it runs it, and asks where the query began after a restart."""
    topic = new_topic()
    put(topic, 5)
    one = reader(subscribe=topic)
    start = one.initialOffset()
    put(topic, 3)
    assert one.initialOffset() == start
    end = latest(one, start)
    # The driver is killed here. Another begins, and finds the end in the checkpoint.
    put(topic, 4)
    two = reader(subscribe=topic)
    two.partitions(end, end)  # as Spark does to tell what it knows
    start = two.initialOffset()
    assert of(start) == {TopicPartition(topic, 0): 12}
    assert ranges(two, start, end) == [(0, 5, 8)]
    assert ranges(two, end, latest(two, end)) == [(0, 8, 12)]


def test_a_first_batch_without_records_says_where_it_began(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    one = reader(subscribe=topic)
    end = latest(one, one.initialOffset())
    put(topic, 4)
    two = reader(subscribe=topic)
    assert ranges(two, two.initialOffset(), end) == []
    assert ranges(two, end, latest(two, end)) == [(0, 0, 4)]


def test_a_batch_that_is_run_again_is_cut_into_the_same_tasks(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    """Whatever the log holds by then: here records that are much larger."""
    topic = new_topic(2)
    put(topic, 40, size=1000)
    split = {"subscribe": topic, "startingOffsets": "earliest", "maxBytesPerPartition": "10k"}
    one = reader(**split)
    start = one.initialOffset()
    end = latest(one, start)
    tasks = ranges(one, start, end)
    assert 3 <= len(tasks) <= 6
    put(topic, 40, size=100_000)
    put(topic, 1, partition=1)
    two = reader(**split)
    assert ranges(two, start, end) == tasks
    later = latest(two, end)
    assert Offsets.of_json(later).bytes != Offsets.of_json(end).bytes
    assert len(ranges(two, end, later)) > 40


def test_a_checkpoint_that_knows_no_sizes_goes_on_with_those_of_now(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 40, size=1000)
    one = reader(subscribe=topic, startingOffsets="earliest", maxBytesPerPartition="10k")
    start = one.initialOffset()
    end = {name: value for name, value in latest(one, start).items() if not name.startswith("#bytes ")}
    assert len(ranges(one, start, end)) > 2


def test_offsets_of_a_checkpoint_are_starting_offsets(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 5)
    one = reader(subscribe=topic, startingOffsets="earliest")
    end = latest(one, one.initialOffset())
    two = reader(subscribe=topic, startingOffsets=json.dumps(end))
    assert of(two.initialOffset()) == {TopicPartition(topic, 0): 5}


def test_a_checkpoint_of_sparks_connector_goes_on(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 5)
    one = reader(subscribe=topic)
    start = {topic: {"0": 2}}
    assert ranges(one, start, {topic: {"0": 4}}) == [(0, 2, 4)]
    assert ranges(one, {topic: {"0": 4}}, latest(one, {topic: {"0": 4}})) == [(0, 4, 5)]


def test_limits_in_offsets(reader: NewReader, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic(2)
    put(topic, 90)
    put(topic, 10, partition=1)
    one = reader(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    assert one.getDefaultReadLimit() == ReadMaxRows(20)
    start = one.initialOffset()
    end = latest(one, start)
    assert ranges(one, start, end) == [(0, 0, 18), (1, 0, 2)]
    assert of(one.latestOffset(start, EVERYTHING)) == {
        TopicPartition(topic, 0): 90,
        TopicPartition(topic, 1): 10,
    }


def test_limits_in_bytes(reader: NewReader, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic()
    put(topic, 200, size=1000)
    one = reader(subscribe=topic, startingOffsets="earliest", maxBytesPerTrigger="50k")
    assert one.getDefaultReadLimit() == ReadMaxBytes(50 * 1024)
    start = one.initialOffset()
    ((_, _, end),) = ranges(one, start, latest(one, start))
    assert 30 <= end <= 60


def test_the_lower_of_two_limits_counts(reader: NewReader, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic()
    put(topic, 200, size=1000)
    one = reader(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20", maxBytesPerTrigger="50k"
    )
    start = one.initialOffset()
    assert ranges(one, start, latest(one, start)) == [(0, 0, 20)]


def test_a_batch_waits_for_its_least_size(reader: NewReader, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic()
    put(topic, 2)
    one = reader(subscribe=topic, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    now = [1000.0]
    one._clock = lambda: now[0]
    assert one.getDefaultReadLimit() == ReadMinRows(10)
    start = one.initialOffset()
    first = latest(one, start)
    assert ranges(one, start, first) == [(0, 0, 2)], "the first isn't waited for"
    put(topic, 3)
    now[0] += 59
    assert latest(one, first) == first
    now[0] += 1
    second = latest(one, first)
    assert ranges(one, first, second) == [(0, 2, 5)], "the longest delay has passed"
    put(topic, 10)
    assert ranges(one, second, latest(one, second)) == [(0, 5, 15)], "there are enough"


def test_available_now_ends_with_what_there_was(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 5)
    one = reader(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2"
    )
    one.prepareForTriggerAvailableNow()
    put(topic, 7)
    at = one.initialOffset()
    ends = []
    while (end := latest(one, at)) != at:
        ends.append(ranges(one, at, end))
        at = end
    assert ends == [[(0, 0, 2)], [(0, 2, 4)], [(0, 4, 5)]]


def test_partitions_and_topics_that_are_made_later(
    reader: NewReader, new_name: Callable[..., str], put: Put, admin: Admin
) -> None:
    prefix = new_name("later")
    admin.create_topics([NewTopic(f"{prefix}-a", partitions=1)])
    one = reader(subscribePattern=f"^{prefix}-.*")
    start = one.initialOffset()
    admin.create_partitions({f"{prefix}-a": NewPartitions(2)})
    admin.create_topics([NewTopic(f"{prefix}-b", partitions=1)])
    put(f"{prefix}-a", 2, partition=1)
    put(f"{prefix}-b", 3)
    end = latest(one, start)
    (task,) = one.partitions(start, end)
    found = [(each.topic[-1], each.partition, each.end) for each in task.value]
    assert found == [("a", 1, 2), ("b", 0, 3)]


def test_a_topic_that_is_not_there(reader: NewReader, new_topic: Callable[..., str]) -> None:
    topic = new_topic(prefix="orders")
    with pytest.raises(SourceError, match=f"is it '{topic}'") as caught:
        reader(subscribe=f"{topic}s").initialOffset()
    assert isinstance(caught.value.__cause__, UnknownTopicError)
    with pytest.raises(SourceError, match=r"has 1 partition(?!s)"):
        reader(assign=json.dumps({topic: [0, 7]})).initialOffset()


# ---- loss


def test_retention_is_told(
    reader: NewReader,
    new_topic: Callable[..., str],
    put: Put,
    admin: Admin,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic()
    put(topic, 10)
    one = reader(subscribe=topic, startingOffsets="earliest")
    start = one.initialOffset()
    end = latest(one, start)
    admin.delete_records({TopicPartition(topic, 0): 4})
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 3 .retention: the log starts at 4"):
        one.partitions(start, end)
    lenient = reader(subscribe=topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        assert ranges(lenient, start, end) == [(0, 4, 10)]
    assert "offsets 0 to 3" in caplog.text


def test_limits_begin_where_the_log_does(
    reader: NewReader, new_topic: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic = new_topic()
    put(topic, 50)
    one = reader(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="5", failOnDataLoss="false"
    )
    start = one.initialOffset()
    admin.delete_records({TopicPartition(topic, 0): 40})
    assert ranges(one, start, latest(one, start)) == [(0, 40, 45)]


def test_deletion_is_told(
    reader: NewReader, new_topic: Callable[..., str], put: Put, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other = new_topic(), new_topic()
    put(topic, 5)
    one = reader(subscribe=f"{topic},{other}", startingOffsets="earliest")
    start = one.initialOffset()
    end = latest(one, start)
    admin.delete_topics([topic])
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 4 .deletion"):
        one.partitions(start, end)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets from 5 on .deletion"):
        latest(one, end)
    lenient = reader(subscribe=f"{topic},{other}", failOnDataLoss="false")
    put(other, 2)
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        later = latest(lenient, end)
        assert of(later) == {TopicPartition(other, 0): 2}
        (task,) = lenient.partitions(end, later)
        assert [each.topic for each in task.value] == [other]
    assert "deletion" in caplog.text


def test_a_topic_made_again_is_told(
    reader: NewReader, new_topic: Callable[..., str], put: Put, admin: Admin, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    put(topic, 5)
    one = reader(subscribe=topic, startingOffsets="earliest")
    start = one.initialOffset()
    end = latest(one, start)
    admin.delete_topics([topic])
    admin.create_topics([NewTopic(topic, partitions=1)])
    put(topic, 9)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 0 to 4 .recreated"):
        one.partitions(start, end)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets from 5 on .recreated"):
        latest(one, end)
    lenient = reader(subscribe=topic, failOnDataLoss="false", maxOffsetsPerTrigger="6")
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        assert ranges(lenient, start, end) == []
        later = latest(lenient, end)
        assert ranges(lenient, end, later) == [(0, 0, 6)], "the new topic is read from its beginning"
    assert "recreated" in caplog.text
    assert ranges(lenient, later, latest(lenient, later)) == [(0, 6, 9)]


def test_truncation_is_told(
    reader: NewReader, new_topic: Callable[..., str], put: Put, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic()
    put(topic, 5)
    start = {topic: {"0": 8}}
    given = {"subscribe": topic, "fetchOffset__retryIntervalMs": "1"}
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 5 to 7 .truncation: the log ends at 5"):
        latest(reader(**given), start)
    with pytest.raises(DataLoss, match=f"{topic}-0: offsets 8 to 9 .truncation"):
        reader(**given).partitions(start, {topic: {"0": 10}})
    lenient = reader(**given, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        end = latest(lenient, start)
        assert ranges(lenient, start, end) == []
    assert "truncation" in caplog.text
    put(topic, 2)
    assert ranges(lenient, end, latest(lenient, end)) == [(0, 5, 7)]


def test_a_broker_that_lags_behind_is_asked_again(
    reader: NewReader, new_topic: Callable[..., str], put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    put(topic, 5)
    one = reader(subscribe=topic, fetchOffset__retryIntervalMs="1", fetchOffset__numRetries="2")
    asked = one.cluster.ends

    def behind(*args: Any) -> Any:
        return {each: end.__class__(3) for each, end in asked(*args).items()}

    monkeypatch.setattr(one.cluster, "ends", behind)
    monkeypatch.setattr(one.cluster, "latest", lambda partitions, _: dict.fromkeys(partitions, 6))
    assert of(latest(one, {topic: {"0": 4}})) == {TopicPartition(topic, 0): 6}


def test_an_open_transaction_behind_what_was_read_is_no_loss(
    reader: NewReader, new_topic: Callable[..., str], put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of a query that read uncommitted records goes on with read_committed."""
    topic = new_topic()
    put(topic, 5)
    one = reader(subscribe=topic, kafka__isolation__level="read_committed")
    asked = one.cluster.ends

    def stable(partitions: Any, isolation: str = "read_uncommitted") -> Any:
        ends = asked(partitions, isolation)  # type: ignore[arg-type]
        return (
            {each: end.__class__(2) for each, end in ends.items()} if isolation == "read_committed" else ends
        )

    monkeypatch.setattr(one.cluster, "ends", stable)
    start = {topic: {"0": 4}}
    assert latest(one, start) == start


# ---- brokers that go


def test_a_broker_that_comes_back_is_waited_for(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", partitions=1)])
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "t", "startingOffsets": "earliest"}
    resolved = resolve(given, stream=True)
    one = OttlaStreamReader(resolved, resolved.columns)
    try:
        start = one.initialOffset()
        broker.kill()
        back = threading.Timer(0.5, broker.start)
        back.start()
        assert latest(one, start) == start
        back.join()
    finally:
        one.stop()


def test_a_broker_that_stays_away_is_a_line(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topics([NewTopic("t", partitions=1)])
    given = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": "t",
        "startingOffsets": "earliest",
        "kafka.request.timeout.ms": "500",
    }
    resolved = resolve(given, stream=True)
    one = OttlaStreamReader(resolved, resolved.columns)
    try:
        start = one.initialOffset()
        broker.kill()
        with pytest.raises(SourceError, match=broker.bootstrap) as caught:
            latest(one, start)
        assert "\n" not in str(caught.value)
    finally:
        one.stop()


# ---- groups


def test_what_is_done_is_committed_to_the_group(
    reader: NewReader, new_topic: Callable[..., str], new_name: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic, group = new_topic(), new_name("group")
    put(topic, 5)
    given = {"subscribe": topic, "startingOffsets": "earliest", "kafka__group__id": group}

    def committed() -> dict[TopicPartition, int]:
        return {each: at.offset for each, at in admin.list_group_offsets(group).items()}

    one = reader(**given, maxOffsetsPerTrigger="3")
    start = one.initialOffset()
    first = latest(one, start)
    one.partitions(start, first)
    assert committed() == {}, "nothing is done yet"
    second = latest(one, first)
    assert committed() == {TopicPartition(topic, 0): 3}, "Spark asks for another batch when one is done"
    one.partitions(first, second)
    # The query ends here. At the next start Spark tells of what it knows, which may not be done.
    two = reader(**given)
    two.partitions(second, second)
    assert committed() == {TopicPartition(topic, 0): 3}
    two.partitions(first, second)
    assert latest(two, second) == second
    assert committed() == {TopicPartition(topic, 0): 5}, "also of the last batch"
    lag = admin.group_lag(group)[TopicPartition(topic, 0)]
    assert (lag.records, lag.seconds) == (0, 0.0)


def test_nothing_is_committed_unless_it_is_wanted(
    reader: NewReader, new_topic: Callable[..., str], new_name: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic, group = new_topic(), new_name("group")
    one = reader(subscribe=topic, kafka__group__id=group, commitOffsets="false")
    one.commit(latest(one, {topic: {"0": 0}}))
    assert admin.list_group_offsets(group) == {}


def test_a_query_starts_at_what_its_group_has_committed(
    reader: NewReader, new_topic: Callable[..., str], new_name: Callable[..., str], put: Put, admin: Admin
) -> None:
    topic, group = new_topic(2), new_name("group")
    put(topic, 5)
    put(topic, 2, partition=1)
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 4})
    one = reader(subscribe=topic, kafka__group__id=group, startingOffsets="group")
    start = one.initialOffset()
    assert ranges(one, start, latest(one, start)) == [(0, 4, 5), (1, 0, 2)]


def test_a_refused_commit_stops_only_who_asked_for_it(
    reader: NewReader,
    new_topic: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = new_topic()

    def refuse(group: str, offsets: object) -> None:
        raise BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "this user may not use the group")

    start = {topic: {"0": 0}}
    wanted = reader(subscribe=topic, kafka__group__id="g", commitOffsets="true")
    monkeypatch.setattr(wanted.cluster, "commit", refuse)
    with pytest.raises(SourceError, match="can't be committed to group g: this user may not"):
        latest(wanted, start)
    implied = reader(subscribe=topic, kafka__group__id="g")
    monkeypatch.setattr(implied.cluster, "commit", refuse)
    with caplog.at_level(logging.WARNING, "ottla_pipeline"):
        assert latest(implied, start) == start
        assert latest(implied, start) == start
    assert caplog.text.count("were not committed to group g") == 1


# ---- in a task


def test_a_reader_travels_without_its_connections(
    reader: NewReader, new_topic: Callable[..., str], put: Put
) -> None:
    topic = new_topic()
    put(topic, 3)
    one = reader(subscribe=topic, startingOffsets="earliest", kafka__group__id="travels")
    start = one.initialOffset()
    (task,) = one.partitions(start, latest(one, start))
    other = pickle.loads(pickle.dumps(one))
    assert other._cluster is None
    (batch,) = other.read(task)
    assert batch.column("offset").to_pylist() == [0, 1, 2]
    assert batch.column("value").to_pylist() == [b"0:0", b"0:1", b"0:2"]
