"""Batches are landed exactly once whatever happens between two steps, in every format."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.pipeline.landing.rounds import Run, offsets, produce, rows, run
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic

from ottla_client.sync import Admin, Producer
from ottla_client.types import TopicPartition
from ottla_pipeline.landing import compact
from ottla_pipeline.landing.errors import Collision, LandingError, NotLanded, SchemaRefused
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.tables import FORMATS, Commit, Stale
from ottla_pipeline.reading import Checksum
from ottla_pipeline.source.cluster_queries import ClusterQueries

NewTopic = Callable[..., str]
OwnBroker = Callable[..., BrokerProcess]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(2, prefix="flights")


@pytest.fixture(params=FORMATS)
def landing(request: pytest.FixtureRequest, broker: BrokerProcess, topic: str, tmp_path: Path) -> Landing:
    """Raw values into a table of each format."""
    return Landing(
        broker.bootstrap, str(tmp_path / "lake" / "flights"), topics=(topic,), format=request.param
    )


@pytest.fixture
def one(broker: BrokerProcess, topic: str, tmp_path: Path) -> Landing:
    """For tests that don't depend on the format."""
    return Landing(broker.bootstrap, str(tmp_path / "lake" / "flights"), topics=(topic,))


def landed_files(landing: Landing) -> set[str]:
    """All Parquet files, committed or not."""
    root = Path(landing.table).parent
    return {str(path) for path in root.rglob("*.parquet") if "_delta_log" not in path.parts}


def test_the_lag_after_a_batch_is_in_records(one: Landing, topic: str) -> None:
    """Neither a marker nor an aborted record is left to land."""
    produce(one.bootstrap_servers, topic, [b"a"])
    with Run(one) as job:
        reports = job.read(job.plan())
        with Producer(one.bootstrap_servers, transactional_id=topic) as producer:
            for commit in (False, True):
                producer.begin_transaction()
                producer.send_batch(topic, [b"b", b"c"], partition=1).result()
                (producer.commit_transaction if commit else producer.abort_transaction)()
        done = job.commit(reports)
    assert done is not None
    assert done.latest[topic] == {0: 1, 1: 6}
    assert done.lag == 2


def test_runs_go_on_where_the_table_ends(landing: Landing, topic: str) -> None:
    produce(landing.bootstrap_servers, topic, [b"a", None, b""])
    produce(landing.bootstrap_servers, topic, [b"b"], 1)
    done = run(landing)
    assert done is not None
    assert (done.rows, done.bytes, done.dead_letters) == (4, 2, 0)
    assert done.start == {topic: {0: 0, 1: 0}}
    assert done.end == done.latest == {topic: {0: 3, 1: 1}}
    assert run(landing) is None
    produce(landing.bootstrap_servers, topic, [b"c"], 1)
    assert run(landing) is not None
    assert rows(landing, "_topic_partition", "_offset", "value") == [
        (0, 0, b"a"), (0, 1, None), (0, 2, b""), (1, 0, b"b"), (1, 1, b"c"),
    ]  # fmt: skip


def test_the_commit_has_the_logs_checksums(landing: Landing, topic: str) -> None:
    import pyarrow as pa

    produce(landing.bootstrap_servers, topic, [b"a", b"b"])
    run(landing)
    spans = table_of(landing).state().ledger.landed[TopicPartition(topic, 0)]
    wanted = Checksum.of(pa.table({"key": pa.nulls(2, pa.binary()), "value": [b"a", b"b"], "offset": [0, 1]}))
    assert Checksum(spans[-1].count, spans[-1].total) == wanted
    state = table_of(landing).state()
    assert (state.batch_id, state.run_id) == (0, "run")


def test_a_batch_that_is_in_the_table_is_refused(landing: Landing, topic: str) -> None:
    """A batch that another run has landed before this one looked at the table."""
    produce(landing.bootstrap_servers, topic, [b"a", b"b"])
    with Run(landing) as first:
        ranges = first.plan()
        first.commit(first.read(ranges), 7)
    files = landed_files(landing)
    with Run(landing, "another run") as second, pytest.raises(Collision, match="another job lands in it"):
        second.commit(second.read(ranges), 7)
    assert landed_files(landing) == files, "what the tasks wrote the second time is gone"
    assert offsets(landing, topic) == [[0, 1]]


def test_a_task_that_is_run_twice_leaves_an_orphan_at_most(landing: Landing, topic: str) -> None:
    produce(landing.bootstrap_servers, topic, [b"a"])
    with Run(landing) as job:
        job.read(job.plan())
        job.batch()
    assert offsets(landing, topic) == [[0]]
    assert len(landed_files(landing)) == 2


def test_the_ranges_of_a_task_share_a_file(landing: Landing, topic: str) -> None:
    for partition in (0, 1):
        produce(landing.bootstrap_servers, topic, [b"x", b"y"], partition)
    with Run(landing) as job:
        done = job.commit(job.read_together(job.plan()))
    assert done is not None
    assert (done.rows, done.files) == (4, 1)
    assert offsets(landing, topic) == [[0, 1], [0, 1]]


def test_two_jobs_on_one_table(landing: Landing, topic: str) -> None:
    produce(landing.bootstrap_servers, topic, [b"a"] * 5)
    with Run(landing, "one") as one, Run(landing, "two") as two:
        slow = two.read(two.plan())
        one.batch()
        with pytest.raises(Collision, match="another job lands in it; stop one of the two"):
            two.commit(slow)
        produce(landing.bootstrap_servers, topic, [b"b"] * 5)
        one.batch()
        with pytest.raises(Collision, match=f"has {topic}-0 up to offset 10 now"):
            two.batch()
    assert offsets(landing, topic) == [list(range(10))]
    assert len(landed_files(landing)) == 2, "the loser's files are gone"


def test_who_loses_at_the_very_commit(landing: Landing, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other job's commit comes between this one's look at the table and its own."""
    produce(landing.bootstrap_servers, topic, [b"a"] * 5)
    with Run(landing, "one") as one, Run(landing, "two") as two:
        reports = two.read(two.plan())
        write = two.job_plan.table._write

        def slowly(*args: Any) -> None:
            monkeypatch.undo()
            one.batch()
            write(*args)

        monkeypatch.setattr(two.job_plan.table, "_write", slowly)
        with pytest.raises(Collision, match="another job lands in it"):
            two.commit(reports)
    assert offsets(landing, topic) == [list(range(5))]


def test_a_commit_whose_answer_is_lost_counts(
    one: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(one.bootstrap_servers, topic, [b"a"] * 5)
    with Run(one) as job:
        write = job.job_plan.table._write

        def lost(*args: Any) -> None:
            monkeypatch.undo()
            write(*args)
            raise Stale("no answer")

        monkeypatch.setattr(job.job_plan.table, "_write", lost)
        assert job.batch() is not None
    assert offsets(one, topic) == [list(range(5))]


def test_a_commit_whose_answer_is_lost_and_another_jobs_behind_it(
    landing: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(landing.bootstrap_servers, topic, [b"a"] * 5)
    with Run(landing) as job:
        table = job.job_plan.table
        write = table._write

        def lost(commit: Commit, state: Any) -> None:
            monkeypatch.undo()
            write(commit, state)
            table.refresh()
            landed = {TopicPartition(topic, 1): [LandedRange(0, 1)]}
            table.commit(Commit(landed=landed, topic_ids=commit.topic_ids, batch_id=0, run_id="another"))
            raise Stale("no answer")

        monkeypatch.setattr(table, "_write", lost)
        assert job.batch() is not None
    assert offsets(landing, topic) == [list(range(5))]


def test_a_commit_whose_answer_is_lost_before_its_files_are_replaced_and_another_jobs_comes(
    landing: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(landing.bootstrap_servers, topic, [b"a"] * 5)
    run(landing)
    produce(landing.bootstrap_servers, topic, [b"b"] * 5)
    with Run(landing, "mine") as job:
        table = job.job_plan.table
        write = table._write

        def lost(commit: Commit, state: Any) -> None:
            monkeypatch.undo()
            write(commit, state)
            assert compact(landing.table, landing.format).rewritten == 1
            table.refresh()
            landed = {TopicPartition(topic, 1): [LandedRange(0, 1)]}
            table.commit(Commit(landed=landed, topic_ids=commit.topic_ids, batch_id=0, run_id="another"))
            raise Stale("no answer")

        monkeypatch.setattr(table, "_write", lost)
        assert job.batch() is not None
    assert offsets(landing, topic) == [list(range(10))]


def test_files_stay_where_it_is_not_known_whether_they_were_committed(
    one: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(one.bootstrap_servers, topic, [b"a"] * 5)
    with Run(one) as job:
        write = job.job_plan.table._write

        def broken(*args: Any) -> None:
            write(*args)
            raise OSError("the network is gone")

        monkeypatch.setattr(job.job_plan.table, "_write", broken)
        with pytest.raises(OSError, match="network"):
            job.batch()
    assert run(one) is None
    assert offsets(one, topic) == [list(range(5))]


def test_a_start_at_the_end_is_kept_before_the_first_batch(one: Landing, topic: str) -> None:
    produce(one.bootstrap_servers, topic, [b"old"] * 3)
    landing = replace(one, starting_offsets="latest")
    with Run(landing) as job:
        assert job.batch() is None
    produce(one.bootstrap_servers, topic, [b"new"])
    run(landing)
    assert rows(landing, "_offset", "value") == [(3, b"new")]


def test_a_start_at_given_offsets_and_at_the_groups(
    one: Landing, topic: str, new_name: Callable[..., str]
) -> None:
    produce(one.bootstrap_servers, topic, [b"x"] * 5)
    at = replace(one, table=one.table + "-at", starting_offsets=f'{{"{topic}":{{"0":2,"1":-2}}}}')
    run(at)
    assert offsets(at, topic) == [[2, 3, 4]]
    group = new_name("group")
    with ClusterQueries(one.bootstrap_servers) as broker:
        broker.commit(group, {TopicPartition(topic, 0): 4})
    by_group = replace(one, table=one.table + "-group", starting_offsets="group", group=group)
    run(by_group)
    assert offsets(by_group, topic) == [[4]]
    with ClusterQueries(one.bootstrap_servers) as broker:
        found = broker.group_offsets(group)
    assert found == {TopicPartition(topic, 0): 5, TopicPartition(topic, 1): 0}


def test_the_group_is_told_at_the_start_what_a_killed_run_did_not_tell(
    one: Landing, topic: str, new_name: Callable[..., str]
) -> None:
    produce(one.bootstrap_servers, topic, [b"x"] * 5)
    run(one)
    group = new_name("group")
    assert run(replace(one, group=group)) is None
    with ClusterQueries(one.bootstrap_servers) as broker:
        assert broker.group_offsets(group)[TopicPartition(topic, 0)] == 5


def test_a_new_partition_and_a_new_topic(
    one: Landing, topic: str, broker: BrokerProcess, new_name: Callable[..., str]
) -> None:
    prefix = new_name("many")
    create_topic(broker, f"{prefix}-a")
    landing = replace(one, topics=(), pattern=f"(?i){prefix.upper()}-[ab]")
    produce(one.bootstrap_servers, f"{prefix}-a", [b"1"])
    run(landing)
    create_topic(broker, f"{prefix}-b")
    # Whole names match.
    create_topic(broker, f"{prefix}-bc")
    create_topic(broker, f"not-{prefix}-b")
    produce(one.bootstrap_servers, f"{prefix}-b", [b"2"])
    run(landing)
    assert rows(landing, "_topic", "value") == [(f"{prefix}-a", b"1"), (f"{prefix}-b", b"2")]
    assert table_of(landing).offsets().keys() == {f"{prefix}-a", f"{prefix}-b"}


def test_a_topic_made_again_is_refused(own_broker: OwnBroker, tmp_path: Path) -> None:
    from ottla_client.sync import Admin

    broker = own_broker()
    create_topic(broker, "flights")
    landing = Landing(broker.bootstrap, str(tmp_path / "flights"), topics=("flights",))
    produce(broker.bootstrap, "flights", [b"x"] * 3)
    run(landing)
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics(["flights"])
    create_topic(broker, "flights")
    produce(broker.bootstrap, "flights", [b"y"] * 5)
    with pytest.raises(Collision, match="deleted and made again since"):
        run(landing)


def test_a_topic_that_is_not_there(one: Landing, topic: str) -> None:
    from ottla_client.errors import UnknownTopicError

    with pytest.raises(UnknownTopicError, match=f"is it .*{topic}"):
        run(replace(one, topics=(topic + "x",)))


def test_partitions_by_day_and_column(landing: Landing, topic: str) -> None:
    values = [{"carrier": carrier, "delay": i} for i, carrier in enumerate(["UA", "AA", "UA", None])]
    produce(landing.bootstrap_servers, topic, values)
    job = replace(
        landing,
        values="json",
        schema="carrier STRING, delay INT",
        partition_by=("date(_timestamp)", "carrier"),
    )
    done = run(job)
    assert done is not None
    assert done.files == 3
    found = rows(job, "carrier", "delay", "_date", "_timestamp")
    assert [one[:2] for one in found] == [("UA", 0), ("AA", 1), ("UA", 2), (None, 3)]
    assert all(one[2] == one[3].date() for one in found)
    with pytest.raises(SchemaRefused, match="partitioned by _date, carrier, not by nothing"):
        run(replace(job, partition_by=()))
    produce(landing.bootstrap_servers, topic, [{"carrier": "日本航空" * 10, "delay": 5}])
    with pytest.raises(
        NotLanded, match="is too long for a folder's name: partition by a column with shorter"
    ):
        run(job)


def test_names_of_columns_and_keys(one: Landing, topic: str) -> None:
    from ottla_client.sync import Producer
    from ottla_pipeline.landing.tables import Names

    with Producer(one.bootstrap_servers) as producer:
        producer.send(topic, b"v", key=b"k", partition=0).result()
    job = replace(one, names=Names("t", "p", "o", "ts", "k"))
    run(job)
    assert rows(job, "value", "t", "p", "o", "k") == [(b"v", topic, 0, 0, b"k")]
    with pytest.raises(SchemaRefused, match="two columns named 'VALUE'"):
        run(replace(job, table=one.table + "-2", names=Names(topic="VALUE")))


def test_a_record_that_does_not_parse_ends_a_job_without_dead_letters(one: Landing, topic: str) -> None:
    produce(one.bootstrap_servers, topic, [{"a": 1}, b"?"])
    job = replace(one, values="json", schema="a INT")
    with pytest.raises(
        NotLanded, match=rf"{topic}-0 offset 1: the value is not a JSON object; say where dead letters"
    ):
        run(job)
    assert landed_files(job) == set()
    assert table_of(job).offsets() == {topic: {0: 0, 1: 0}}


def test_partitions_that_appear_later_start_at_their_beginning(
    landing: Landing, broker: BrokerProcess, topic: str
) -> None:
    """``latest`` is for the first run alone: later it would skip what a partition got before it was found."""
    job = replace(landing, starting_offsets="latest")
    skipping = replace(job, table=f"{landing.table}_skipping", new_partitions="latest")
    produce(job.bootstrap_servers, topic, [b"before the first run"])
    for one in (job, skipping):
        run(one)
    with Admin(broker.bootstrap) as admin:
        partitions = len(admin.describe_topics([topic])[topic].partitions)
        admin.create_partitions({topic: partitions + 1})
    produce(job.bootstrap_servers, topic, [b"known"])
    produce(job.bootstrap_servers, topic, [b"new"], partitions)
    for one in (job, skipping):
        run(one)
    assert sorted(rows(job, "value")) == [(b"known",), (b"new",)]
    assert rows(skipping, "value") == [(b"known",)]


def test_no_new_field_stops_a_job(landing: Landing, topic: str) -> None:
    """A name that no column can have, and a value of another type than most, make dead letters of their records."""
    job = replace(landing, values="json", dead_letters=f"table:{landing.table}-dead")
    produce(job.bootstrap_servers, topic, [{"a": 1, "p": {"q": 1}}])
    run(job)
    names = ["", "A", "_offset", "x" * 65_536, "nul\0"]
    new: list[Any] = [{"a": 2, name: 7} for name in names]
    new += [{"a": 3, "n": "text"}, {"a": 4, "n": 1}, {"a": 5, "n": 2}, {"a": 6, "p": {"Q": 1}}]
    new += [
        {"a": 7, "p": {"r": 2**64}},
        {"a": 8, "p": {"r": 1.5}},
        {"a": 9, "N": 1},
        {"a": 10, "p": {"r": 5}},
    ]
    produce(job.bootstrap_servers, topic, new)
    done = run(job)
    assert done is not None
    assert (done.rows, done.dead_letters) == (5, 8)
    assert rows(job, "a", "n", "p") == [
        (1, None, {"q": 1, "r": None}),
        (4, 1, None),
        (5, 2, None),
        (7, None, {"q": None, "r": 2.0**64}),
        (8, None, {"q": None, "r": 1.5}),
        (10, None, {"q": None, "r": 5.0}),
    ]
    assert run(job) is None


def test_new_fields_become_columns_where_the_schema_is_inferred(landing: Landing, topic: str) -> None:
    job = replace(landing, values="json")
    produce(job.bootstrap_servers, topic, [{"a": 1}, {"a": 2, "b": "x"}])
    run(job)
    produce(job.bootstrap_servers, topic, [{"a": 3, "c": {"d": 1.5}}])
    produce(job.bootstrap_servers, topic, [{"a": 4, "e": None}], 1)
    run(job)
    assert rows(job, "a", "b", "c") == [
        (1, None, None),
        (2, "x", None),
        (3, None, {"d": 1.5}),
        (4, None, None),
    ]
    assert "e" not in table_of(job).schema().names, "its type is unknown"


def test_columns_of_a_new_schema_are_added_and_others_refused(landing: Landing, topic: str) -> None:
    job = replace(landing, values="json", schema="a INT")
    produce(job.bootstrap_servers, topic, [{"a": 1, "b": 1}])
    run(job)
    wider = replace(job, schema="a INT, b DOUBLE")
    produce(job.bootstrap_servers, topic, [{"a": 2, "b": 2.5}])
    run(wider)
    produce(job.bootstrap_servers, topic, [{"a": 3, "b": 3.5}])
    run(job)
    assert rows(job, "a", "b") == [(1, None), (2, 2.5), (3, None)]
    with pytest.raises(SchemaRefused, match="has the column a as INT, the schema as STRING"):
        run(replace(job, schema="a STRING"))


def test_a_table_of_somebody_else(one: Landing, topic: str, tmp_path: Path) -> None:
    import deltalake
    import pyarrow as pa

    produce(one.bootstrap_servers, topic, [{"a": 1}])
    deltalake.write_deltalake(one.table, pa.table({"a": ["text"]}))
    with pytest.raises(SchemaRefused, match="has the column a as STRING, the schema as INT"):
        run(replace(one, values="json", schema="a INT"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "data.parquet").write_bytes(b"")
    with pytest.raises(LandingError, match="has files, but no Ottla log"):
        run(replace(one, table=str(tmp_path / "own"), format="parquet"))


def test_a_schema_from_an_empty_topic(one: Landing, topic: str) -> None:
    with pytest.raises(LandingError, match=f"no records in {topic} to infer a schema from"):
        run(replace(one, values="json"))


def test_records_that_are_gone_before_they_are_landed(
    one: Landing, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    from ottla_client.sync import Admin
    from ottla_pipeline.reading import DataLoss

    produce(one.bootstrap_servers, topic, [b"a"] * 3)
    run(one)
    produce(one.bootstrap_servers, topic, [b"b"] * 5)
    with Admin(one.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 6})
    with pytest.raises(DataLoss, match=r"offsets 3 to 5"):
        run(one)
    with caplog.at_level(logging.ERROR, "ottla_pipeline"):
        run(replace(one, fail_on_data_loss=False))
    assert offsets(one, topic) == [[0, 1, 2, 6, 7]]
    assert [
        (span.start, span.end) for span in table_of(one).state().ledger.landed[TopicPartition(topic, 0)]
    ] == [(0, 0), (0, 3), (6, 8)]


def test_records_that_go_between_planning_and_reading(one: Landing, topic: str) -> None:
    from ottla_client.sync import Admin

    produce(one.bootstrap_servers, topic, [b"a"] * 8)
    # Segment files have them for as long as they aren't deleted.
    with Run(replace(one, segments="never")) as job:
        ranges = job.plan()
        with Admin(one.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition(topic, 0): 5})
        with pytest.raises(NotLanded, match=rf"{topic}-0: offsets 0 to 4 are lost \(retention\)"):
            job.commit(job.read(ranges))
    assert table_of(one).offsets() == {topic: {0: 0, 1: 0}}


def test_brokers_that_nobody_reaches(one: Landing) -> None:
    from ottla_pipeline.landing import land

    gone = replace(one, bootstrap_servers="127.0.0.1:1", client={"request.timeout.ms": "300"})
    with pytest.raises(LandingError, match=r"127\.0\.0\.1:1") as caught:
        land(gone)
    assert len(str(caught.value).splitlines()) == 1


def test_values_of_every_type(landing: Landing, topic: str) -> None:
    import datetime as dt
    from decimal import Decimal

    schema = (
        "t BOOLEAN, b TINYINT, s SMALLINT, i INT, l BIGINT, f FLOAT, d DOUBLE, c DECIMAL(10,2), x STRING, "
        "day DATE, at TIMESTAMP, local TIMESTAMP_NTZ, many ARRAY<INT>, deep STRUCT<a: INT, b: ARRAY<STRUCT<c: DATE>>>"
    )
    value = {
        "t": True, "b": -1, "s": 2, "i": 3, "l": 4, "f": 0.5, "d": 0.25, "c": "1.25", "x": "é", "day": "2013-01-01",
        "at": "2013-01-01T05:00:00Z", "local": "2013-01-01T05:00:00", "many": [1, None],
        "deep": {"a": 1, "b": [{"c": "2013-01-02"}]},
    }  # fmt: skip
    produce(landing.bootstrap_servers, topic, [value, None, {"deep": None, "many": []}])
    job = replace(landing, values="json", schema=schema)
    run(job)
    run(job)
    day = dt.datetime(2013, 1, 1, 5)
    wanted = {
        **value, "c": Decimal("1.25"), "day": day.date(), "at": day.replace(tzinfo=dt.UTC), "local": day,
        "deep": {"a": 1, "b": [{"c": dt.date(2013, 1, 2)}]},
    }  # fmt: skip
    first, second, third = rows(job, *value)
    assert dict(zip(value, first, strict=True)) == wanted
    assert second == (None,) * len(value)
    assert third[-2:] == ([], None)
