"""Dead letters are kept with their batch, delivered once and replayed once, whatever happens between two steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.pipeline.landing.rounds import Run, offsets, produce, rows, run, sent_to_topic
from tests.support.processes import BrokerProcess

from ottla_client.sync import Producer
from ottla_client.types import TopicPartition
from ottla_pipeline.landing import replay
from ottla_pipeline.landing.compaction import compact
from ottla_pipeline.landing.dead_letter_sink import DeadLetterSink, TableSink, TopicSink, dead_table
from ottla_pipeline.landing.deadletters import SCHEMA, headers
from ottla_pipeline.landing.errors import BadSetting, Collision, LandingError
from ottla_pipeline.landing.job_plan import table_of
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.tables import FORMATS, Commit

NewTopic = Callable[..., str]
VALUES = [{"a": 1}, b"bad", {"a": "2"}, {"a": 3}]


@pytest.fixture
def topic(new_topic: NewTopic) -> str:
    return new_topic(prefix="flights")


@pytest.fixture(params=FORMATS)
def to_table(request: pytest.FixtureRequest, broker: BrokerProcess, topic: str, tmp_path: Path) -> Landing:
    lake = tmp_path / "lake"
    return Landing(
        broker.bootstrap,
        str(lake / "flights"),
        topics=(topic,),
        format=request.param,
        values="json",
        schema="a INT",
        dead_letters=f"table:{lake / 'dead'}",
    )


@pytest.fixture
def to_topic(broker: BrokerProcess, topic: str, new_topic: NewTopic, tmp_path: Path) -> Landing:
    dead = new_topic(2, prefix="dead")
    return Landing(
        broker.bootstrap,
        str(tmp_path / "lake" / "flights"),
        topics=(topic,),
        values="json",
        schema="a INT",
        dead_letters=f"topic:{dead}",
    )


def dead_in_topic(landing: Landing) -> list[tuple[int, bytes, str]]:
    return sorted((one["offset"], one["value"], one["error"]) for one in sent_to_topic(landing))


def dead_in_table(landing: Landing, *names: str) -> list[tuple[object, ...]]:
    return rows(dead_table(landing), *(names or ("offset", "value")))


def on_their_way(landing: Landing) -> list[str]:
    return [str(path) for path in Path(landing.table).parent.rglob("_dead/*.parquet")]


def test_into_a_table(to_table: Landing, topic: str) -> None:
    produce(to_table.bootstrap_servers, topic, VALUES)
    done = run(to_table)
    assert done is not None
    assert (done.rows, done.dead_letters) == (2, 2)
    assert rows(to_table, "_offset", "a") == [(0, 1), (3, 3)]
    (first, second) = dead_in_table(to_table, *SCHEMA.names)
    assert first[:4] == (topic, 0, 1, None)
    assert first[5:] == (None, b"bad", "the value is not a JSON object")
    assert second[2] == 2
    assert "the text '2' is no INT" in str(second[7])
    assert second[4] is not None
    assert on_their_way(to_table) == []
    assert table_of(to_table).state().ledger.landed[TopicPartition(topic, 0)][-1].dead == 2


def test_into_a_topic(to_topic: Landing, topic: str) -> None:
    produce(to_topic.bootstrap_servers, topic, VALUES)
    run(to_topic)
    assert [one[:2] for one in dead_in_topic(to_topic)] == [(1, b"bad"), (2, b'{"a": "2"}')]
    assert offsets(to_topic, topic) == [[0, 3]]
    assert on_their_way(to_topic) == []


def test_a_crash_before_they_are_brought_away(
    to_table: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(to_table.bootstrap_servers, topic, VALUES)
    with Run(to_table) as job:
        monkeypatch.setattr(DeadLetterSink, "deliver_pending", lambda self: None)
        job.batch()
    assert dead_in_table(to_table) == []
    assert compact(to_table.table, to_table.format, older_than=0).orphans == 0, "they are no orphans"
    monkeypatch.undo()
    assert run(to_table) is None
    assert [one[0] for one in dead_in_table(to_table)] == [1, 2]
    assert on_their_way(to_table) == []
    run(to_table)
    assert [one[0] for one in dead_in_table(to_table)] == [1, 2]


def test_a_crash_before_their_files_are_deleted(
    to_table: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(to_table.bootstrap_servers, topic, VALUES)
    with Run(to_table) as job:
        monkeypatch.setattr(DeadLetterSink, "discard", lambda self, files: None)
        job.batch()
    assert len(on_their_way(to_table)) == 1
    monkeypatch.undo()
    run(to_table)
    assert [one[0] for one in dead_in_table(to_table)] == [1, 2]
    assert on_their_way(to_table) == []


def test_a_crash_with_some_of_them_sent(
    to_topic: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(to_topic.bootstrap_servers, topic, VALUES)
    whole = TopicSink._rows

    def half(self: TopicSink, files: object) -> object:
        for some in whole(self, files):  # type: ignore[arg-type]
            yield some[:1]
        raise KeyboardInterrupt

    with Run(to_topic) as job:
        monkeypatch.setattr(TopicSink, "_rows", half)
        with pytest.raises(KeyboardInterrupt):
            job.batch()
    assert [one[0] for one in dead_in_topic(to_topic)] == [1]
    monkeypatch.undo()
    run(to_topic)
    assert [one[0] for one in dead_in_topic(to_topic)] == [1, 2]
    assert offsets(to_topic, topic) == [[0, 3]]


def test_forged_letters_suppress_no_others(
    to_topic: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anyone who may write to the topic can send the headers, also between a crash and the next run."""
    produce(to_topic.bootstrap_servers, topic, VALUES)
    with Run(to_topic) as job:
        monkeypatch.setattr(DeadLetterSink, "deliver_pending", lambda self: None)
        job.batch()
    monkeypatch.undo()
    row = {"topic": topic, "partition": 0, "offset": 1, "timestamp": None, "error": "x", "last_offset": None}
    with Producer(to_topic.bootstrap_servers) as attacker:
        for forged in (headers(row, "guess"), headers(row, "guess")[:-1]):
            dead = (to_topic.dead_letters or "").removeprefix("topic:")
            attacker.send(dead, b"forged", headers=forged).result()
    run(to_topic)
    assert [one[:2] for one in dead_in_topic(to_topic) if one[1] != b"forged"] == [
        (1, b"bad"),
        (2, b'{"a": "2"}'),
    ]


def test_one_bad_record_is_one_letter_however_often_the_job_runs(to_topic: Landing, topic: str) -> None:
    produce(to_topic.bootstrap_servers, topic, VALUES)
    for _ in range(3):
        run(to_topic)
    assert [one[0] for one in dead_in_topic(to_topic)] == [1, 2]


def test_a_batch_that_is_in_the_table_buries_nothing_again(to_table: Landing, topic: str) -> None:
    produce(to_table.bootstrap_servers, topic, VALUES)
    with Run(to_table) as first:
        ranges = first.plan()
        first.commit(first.read(ranges))
    with Run(to_table, "another run") as second, pytest.raises(Collision, match="another job lands in it"):
        second.commit(second.read(ranges))
    assert [one[0] for one in dead_in_table(to_table)] == [1, 2]
    assert on_their_way(to_table) == []


def test_a_topic_for_them_that_is_not_there(to_topic: Landing, topic: str) -> None:
    with pytest.raises(LandingError, match="dead letters can't go to topic nowhere"):
        run(replace(to_topic, dead_letters="topic:nowhere"))


def test_a_table_for_them_that_is_another(to_table: Landing, topic: str) -> None:
    produce(to_table.bootstrap_servers, topic, VALUES[:1])
    run(to_table)
    other = replace(to_table, table=to_table.table + "2", dead_letters=f"table:{to_table.table}")
    with pytest.raises(BadSetting, match="no table of dead letters"):
        run(other)


def test_replay_from_a_table(to_table: Landing, topic: str) -> None:
    produce(to_table.bootstrap_servers, topic, VALUES)
    run(to_table)
    corrected = replace(to_table, schema="a STRING", table=to_table.table)
    with pytest.raises(LandingError, match="has the column a as INT"):
        replay(corrected)
    assert replay(to_table).failed == 2, "nothing is better yet"
    assert [one[0] for one in dead_in_table(to_table)] == [1, 2]
    produce(to_table.bootstrap_servers, topic, [{"b": "x"}])
    wider = replace(to_table, schema="a INT, b STRING NOT NULL")
    with Run(wider) as job:
        job.batch()
    done = replay(wider)
    assert (done.landed, done.failed) == (0, 2)
    # The records can't be changed, so the schema is: text for the column that was a number.
    text = replace(to_table, table=to_table.table + "-text", schema="a STRING")
    run(text)
    assert sorted(one[0] for one in dead_in_table(text)) == [0, 1, 1, 2, 3]


def test_replay_lands_what_fits_now_once(
    to_table: Landing, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column was required that records lack; then it is not."""
    strict = replace(to_table, schema="a INT NOT NULL, b STRING")
    produce(strict.bootstrap_servers, topic, [{"a": 1}, {"b": "x"}, b"bad", {"b": "y"}])
    run(strict)
    assert [one[0] for one in dead_in_table(strict)] == [1, 2, 3]
    loose = replace(to_table, schema="a INT, b STRING")
    monkeypatch.setattr(TableSink, "finish_replay", lambda self, name: None)
    assert (replay(loose).landed, len(dead_in_table(loose))) == (2, 3), (
        "a crash before the dead letters are delivered"
    )
    monkeypatch.undo()
    assert compact(loose.table, loose.format, older_than=0).orphans == 0
    done = replay(loose)
    assert (done.landed, done.failed) == (0, 1)
    assert rows(loose, "_offset", "a", "b") == [(0, 1, None), (1, None, "x"), (3, None, "y")]
    assert dead_in_table(loose) == [(2, b"bad")]
    assert on_their_way(loose) == []
    assert run(loose) is None, "the job goes on where it was"


def test_two_replays_at_once(to_table: Landing, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strict = replace(to_table, schema="a INT NOT NULL")
    produce(strict.bootstrap_servers, topic, [{"b": "x"}])
    run(strict)
    commit = type(table_of(to_table)).commit

    def race(self: object, change: Commit) -> object:
        if change.expects:
            monkeypatch.undo()
            assert replay(to_table).landed == 1
        return commit(self, change)  # type: ignore[arg-type]

    monkeypatch.setattr(type(table_of(to_table)), "commit", race)
    with pytest.raises(Collision, match="another job has done the same meanwhile"):
        replay(to_table)
    assert offsets(to_table, topic) == [[0]]
    assert dead_in_table(to_table) == []


def test_replay_from_a_topic(to_topic: Landing, topic: str) -> None:
    strict = replace(to_topic, schema="a INT NOT NULL, b STRING")
    produce(strict.bootstrap_servers, topic, [{"a": 1}, {"b": "x"}, b"bad"])
    run(strict)
    assert [one[0] for one in dead_in_topic(strict)] == [1, 2]
    loose = replace(to_topic, schema="a INT, b STRING")
    done = replay(loose)
    assert (done.landed, done.failed) == (1, 1)
    assert rows(loose, "_topic", "_offset", "b") == [(topic, 0, None), (topic, 1, "x")]
    assert [one[0] for one in dead_in_topic(loose)] == [1, 2, 2], "what still fails is sent again"
    done = replay(loose)
    assert (done.landed, done.failed) == (0, 1)
    assert offsets(loose, topic) == [[0, 1]]


def test_replay_from_a_topic_takes_the_tables_own(
    to_topic: Landing, topic: str, new_topic: NewTopic, tmp_path: Path
) -> None:
    other = replace(to_topic, topics=(new_topic(),), table=str(tmp_path / "lake" / "other"))
    strict, theirs = (replace(one, schema="a INT NOT NULL, b STRING") for one in (to_topic, other))
    for job in (strict, theirs):
        produce(job.bootstrap_servers, job.topics[0], [{"b": "x"}, b"bad"])
        run(job)
    assert len(dead_in_topic(strict)) == 4
    for job in (to_topic, other):
        done = replay(replace(job, schema="a INT, b STRING"))
        assert (done.landed, done.failed) == (1, 1)
        assert rows(job, "_topic", "_offset", "b") == [(job.topics[0], 0, "x")]


def test_replay_adds_fields_that_are_new(to_table: Landing, topic: str) -> None:
    job = replace(to_table, schema="a INT NOT NULL")
    produce(job.bootstrap_servers, topic, [{"b": {"c": 1}}])
    run(job)
    done = replay(replace(job, schema=None))
    assert done.landed == 1
    assert rows(job, "a", "b") == [(None, {"c": 1})]


def test_replay_of_nothing(to_table: Landing, topic: str) -> None:
    with pytest.raises(LandingError, match="to land dead letters in doesn't exist"):
        replay(to_table)
    produce(to_table.bootstrap_servers, topic, VALUES[:1])
    run(to_table)
    assert replay(to_table).landed == 0
    with pytest.raises(BadSetting, match="dead_letters doesn't say"):
        replay(replace(to_table, dead_letters=None))


def damaged(own_broker: Callable[..., BrokerProcess], values: list[bytes]) -> BrokerProcess:
    """A broker whose topic ``flights`` has a batch for each value, the second of them with a byte that is wrong."""
    from tests.support.topics import create_topic

    broker = own_broker()
    create_topic(broker, "flights")
    for value in values:
        produce(broker.bootstrap, "flights", [value])
    (segment,) = broker.folder.glob("flights-0/*.log")
    data = bytearray(segment.read_bytes())
    at = data.index(values[1])
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"X")
    return broker


@pytest.mark.parametrize("segments", ["never", "always"])
def test_a_batch_that_cannot_be_decoded(
    own_broker: Callable[..., BrokerProcess], tmp_path: Path, segments: str
) -> None:
    broker = damaged(own_broker, [b"first", b"second", b"third"])
    landing = Landing(
        broker.bootstrap,
        str(tmp_path / "flights"),
        topics=("flights",),
        dead_letters=f"table:{tmp_path / 'dead'}",
        segments=segments,  # type: ignore[arg-type]
    )
    with pytest.raises(
        LandingError, match=r"flights-0: the record batch at offset 1 can't be read: .*onCorrupt"
    ):
        run(landing)
    done = run(replace(landing, on_corrupt="deadletter"))
    assert done is not None
    assert (done.rows, done.dead_letters) == (2, 1)
    assert rows(landing, "_offset", "value") == [(0, b"first"), (2, b"third")]
    ((offset, last, value, error),) = dead_in_table(landing, "offset", "last_offset", "value", "error")
    assert (offset, last) == (1, 1)
    assert b"Xecond" in value  # type: ignore[operator]
    assert "can't be read" in str(error)
    done_again = replay(replace(landing, on_corrupt="deadletter"))
    assert (done_again.landed, done_again.failed) == (0, 1), "nothing can be done with it, and it is kept"
    assert len(dead_in_table(landing)) == 1
