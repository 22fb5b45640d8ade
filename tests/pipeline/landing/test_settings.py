"""Settings of a job: every invalid one raises before any broker is asked."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from ottla_pipeline.landing import Landing, failures
from ottla_pipeline.landing.errors import BadSetting
from ottla_pipeline.landing.failures import Crashed, JavaGone, spark_errors
from ottla_pipeline.landing.tables import Names

GOOD: dict[str, Any] = {
    "bootstrap_servers": "127.0.0.1:9092",
    "table": "lake/flights",
    "topics": ("flights",),
}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"bootstrap_servers": " "}, "bootstrap_servers is empty"),
        ({"table": ""}, "table is empty"),
        ({"topics": ()}, "topics or pattern"),
        ({"pattern": "f.*"}, "either topics or pattern"),
        ({"topics": (), "pattern": "f["}, r"pattern is 'f\[', which is no regular expression"),
        ({"format": "delt"}, "format is 'delt': is it delta?"),
        ({"values": "xml"}, "values is 'xml': it can be raw, json, csv, avro"),
        ({"compression": "zst"}, "is it zstd?"),
        ({"segments": "alway"}, "is it always?"),
        ({"isolation": "committed"}, "is it read_committed?"),
        ({"on_corrupt": "x"}, "it can be fail, deadletter"),
        ({"on_corrupt": "deadletter"}, "dead_letters does not say where they go"),
        ({"catalog": {}}, "a catalog is for Iceberg"),
        ({"storage": {"a": "b"}, "format": "parquet"}, "storage is for Delta"),
        ({"confluent": True}, "confluent is for Avro"),
        ({"schema": "a INT"}, "raw values have no schema"),
        ({"values": "avro"}, "Avro values need an Avro schema"),
        ({"delimiter": ";"}, "delimiter is for CSV"),
        ({"delimiter": ";;", "values": "csv"}, "one character"),
        ({"target_file_size": 0}, "target_file_size is 0"),
        ({"max_records": -1}, "max_records is -1"),
        ({"restarts": -1}, "restarts is -1"),
        ({"trigger": "often"}, "trigger is 'often': available-now, or seconds"),
        ({"trigger": -1}, "trigger is -1"),
        ({"trigger": float("nan")}, "trigger is nan"),
        ({"partition_by": ("day(x)",)}, "a column, or date"),
        ({"partition_by": ("a", "a")}, "names a twice"),
        ({"partition_by": ("date(_timestamp)", "_date")}, "names _date twice"),
        ({"dead_letters": "flights-dead"}, "topic:NAME or table:PATH"),
        ({"dead_letters": "topic:"}, "topic:NAME or table:PATH"),
        ({"dead_letters": "topic:flights"}, "name another"),
        ({"dead_letters": "table:lake/flights"}, "name another"),
        ({"starting_offsets": "group"}, "set group as well"),
        ({"metrics_listener": "lake:metrics"}, "metrics_listener is .lake:metrics.: HOST:PORT, or a port"),
        ({"names": Names(key="value")}, "can't be called value"),
    ],
)
def test_what_cannot_be_right(change: dict[str, Any], what: str) -> None:
    with pytest.raises(BadSetting, match=what) as caught:
        Landing(**{**GOOD, **change})
    assert len(str(caught.value).splitlines()) == 1


def test_columns_of_days() -> None:
    landing = Landing(**{**GOOD, "partition_by": ("date(_timestamp)", "date(time_hour)", "carrier")})
    assert landing.partition_columns == ("_date", "time_hour_date", "carrier")
    assert landing.dates == {"_date": "_timestamp", "time_hour_date": "time_hour"}


def test_one_topic_may_be_a_text() -> None:
    assert Landing(**{**GOOD, "topics": "flights"}).topics == ("flights",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            "Job aborted.\nCaused by: java.io.EOFException: gone\n\tat x",
            "Spark's job failed: java.io.EOFException: gone",
        ),
        ("", "without giving a reason"),
    ],
)
def test_how_a_job_of_sparks_failed(text: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "java_is_gone", lambda: False)
    with pytest.raises(Crashed, match=what), spark_errors():
        raise Py4JError(text)


@pytest.mark.parametrize(
    "gone", [ConnectionRefusedError(), Py4JNetworkError("Answer from Java side is empty")]
)
def test_a_session_without_java_is_not_tried_again(gone: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "java_is_gone", lambda: True)
    with pytest.raises(JavaGone), spark_errors():
        raise gone
    assert issubclass(JavaGone, Crashed), "Spark's log is of use"


def test_our_own_errors_are_raised_as_they_are() -> None:
    with pytest.raises(ValueError, match="of a callback"), spark_errors():
        raise ValueError("of a callback")
