"""What is wrong with a command is said in a line, before anything is started: no Spark, and mostly no broker either."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from tests.support.processes import BrokerProcess

from ottla_cli import ClientOptions, Console
from ottla_client.errors import AuthenticationError
from ottla_pipeline.audit.dead import in_topic
from ottla_pipeline.commands import pipeline, spark
from ottla_pipeline.commands.common import failing
from ottla_pipeline.commands.types import Duration, Size, Trigger, columns
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.tables import open_table


def run(*args: str) -> Any:
    return CliRunner().invoke(pipeline, list(args), prog_name="ottla pipeline", catch_exceptions=False)


@pytest.mark.parametrize("command", ["land", "replay", "audit", "compact"])
def test_help_teaches_by_examples(command: str) -> None:
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"  ottla pipeline {command} " in done.output


def test_the_group_says_what_there_is() -> None:
    text = run("--help").output.partition("Commands:\n")[2]
    assert [line.split()[0] for line in text.splitlines()] == [
        "land",
        "replay",
        "audit",
        "compact",
        "rename-column",
    ]
    assert "..." not in text, "each fits on its line"


def test_help_imports_neither_spark_nor_arrow() -> None:
    program = (
        "import sys; from click.testing import CliRunner; from ottla_pipeline.commands import pipeline; "
        "[CliRunner().invoke(pipeline, [name, '--help']) for name in ('land', 'replay', 'audit', 'compact')]; "
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'deltalake', 'rich'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["land"], "Missing option '--table'"),
        (["land", "--table", "t"], "Name one or more topics, or give a --subscribe-pattern"),
        (["land", "a", "--subscribe-pattern", "b", "--table", "t"], "Name one or more topics"),
        (["land", "a", "--table", "t", "--format", "icebreg"], "did you mean iceberg?"),
        (["land", "a", "--table", "t", "--values", "jsn"], "did you mean json?"),
        (["land", "a", "--table", "t", "--compression", "zstf"], "did you mean zstd?"),
        (["land", "a", "--table", "t", "--segments", "allways"], "did you mean always?"),
        (["land", "a", "--table", "t", "--isolation-level", "committed"], "read_committed"),
        (["land", "a", "--table", "t", "--trigger", "availablenw"], "did you mean available-now?"),
        (["land", "a", "--table", "t", "--trigger", "soon"], "use available-now, or 30s, 5m, 1h"),
        (["land", "a", "--table", "t", "--starting-offsets", "foo"], "startingOffsets is 'foo'"),
        (["land", "a", "--table", "t", "--values", "json", "--schema", "no.sql"], "nor a file"),
        (["land", "a", "--table", "t", "--values", "json", "--schema", "a INTT"], "INTT"),
        (["land", "a", "--table", "t", "--target-file-size", "large"], "'large' is no size"),
        (["land", "a", "--table", "t", "--max-offsets-per-trigger", "0"], "0 is not in the range"),
        (["land", "a", "--table", "t", "--max-ofsets-per-trigger", "5"], "--max-offsets-per-trigger"),
        (["land", "a", "--table", "t", "--column", "ofset=o"], "did you mean offset?"),
        (["land", "a", "--table", "t", "--column", "offset"], "'offset' is not KIND=NAME"),
        (["land", "a", "--table", "t", "--dead-letters", "dead"], "is not topic:NAME or table:PLACE"),
        (["land", "a", "--table", "t", "--dead-letters", "topic:a"], "which is what is landed"),
        (["land", "a", "--table", "t", "--master", "lokal"], "did you mean local"),
        (["land", "a", "--table", "t", "--conf", "driver.memory=4g"], "their names begin with spark."),
        (["land", "a", "--table", "t", "--conf", "spark.driver.memory"], "is not KEY=VALUE"),
        (["land", "a", "--table", "t", "-X", "fetch.max.byte=1"], "did you mean kafka.fetch.max.bytes"),
        (["land", "a", "--table", "t", "-X", "sasl.login.class=x"], "of SASL the client has"),
        (
            ["land", "a", "--table", "t", "-X", "auto.offset.reset=latest"],
            "startingOffsets says where to start",
        ),
        (["land", "a", "--table", "t", "--catalog", "type=sql"], "for Iceberg tables"),
        (["land", "a", "--table", "t", "--schema", "a INT"], "raw values have no schema"),
        (["land", "a", "--table", "t", "--values", "avro"], "Avro values need an Avro schema"),
        (["land", "a", "--table", "t", "--delimiter", ";"], "delimiter is for CSV"),
        (["land", "a", "--table", "t", "--starting-offsets", "group"], "set group as well"),
        (["land", "a", "--table", "t", "--partition-by", "day(x)"], "a column, or date(column)"),
        (["replay", "--table", "t"], "Missing option '--dead-letters'"),
        (["replay", "--table", "t", "--dead-letters", "topic:"], "is not topic:NAME or table:PLACE"),
        (["compact", "--table", "t", "--older-than", "old"], "use 90s, 15m, 1h30m or 2d"),
        (["compact", "--table", "t", "--format", "orc"], "'orc' is not one of"),
        (["audit", "--table", "t", "--storage", "oops"], "'oops' is not KEY=VALUE"),
        (
            ["audit", "--table", "t", "--format", "parquet", "--storage", "a=b"],
            "storage options are for Delta",
        ),
        (["audit", "--table", "t", "-X", "security.protocl=SSL"], "did you mean kafka.security.protocol"),
    ],
)
def test_wrong_usage(args: list[str], said: str) -> None:
    done = run(*args)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("sasl.username=alice", "sasl.username and sasl.password"),
        ("sasl_plain_username=alice", "sasl_plain_username and sasl_plain_password"),
    ],
)
def test_a_failed_login_names_options_as_they_were_given(given: str, names: str) -> None:
    console = Console(ClientOptions("127.0.0.1:1", 1.0, [given]))
    with pytest.raises(click.ClickException) as caught, failing(console):
        raise AuthenticationError("the login failed; check sasl_plain_username and sasl_plain_password")
    assert caught.value.message == f"the login failed; check {names}"


def test_a_topic_of_any_name() -> None:
    assert Landing("127.0.0.1:1", "t", topics=("x",)).dead_letters is None


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    nowhere = str(tmp_path / "t")
    with pytest.raises(LandingError, match="doesn't exist"):
        in_topic("dead", open_table("delta", nowhere), "127.0.0.1:1", {})
    done = run("compact", "--table", nowhere)
    assert (done.exit_code, done.output) == (1, f"Error: the delta table {nowhere} doesn't exist\n")
    done = run("audit", "--table", nowhere)
    assert (done.exit_code, done.output) == (2, f"Error: the delta table {nowhere} doesn't exist\n")


def test_nobody_answers(tmp_path: Path) -> None:
    """Within seconds, in a line, and before Spark is started."""
    args = ["a", "--table", str(tmp_path / "t"), "-b", "127.0.0.1:9", "--timeout", "1"]
    done = run("land", *args)
    assert done.exit_code == 1
    (line,) = done.output.splitlines()
    assert line.startswith("Error: no bootstrap server answered as a broker in time")


def test_a_topic_that_is_not_there(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1, "departures")
    args = [topic[:-1] + "x", "--table", str(tmp_path / "t"), "-b", broker.bootstrap]
    done = run("land", *args)
    assert done.exit_code == 1
    assert done.output.startswith(f"Error: unknown topic {args[0]}; did you mean ")
    assert topic in done.output
    assert run("audit", *args).exit_code == 2


def test_a_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(util, "find_spec", lambda name: None if name == "pyspark" else object())
    done = run("land", "a", "--table", "t")
    assert done.exit_code == 1
    assert done.output == (
        "Error: `ottla pipeline land` needs pyspark, which isn't installed: pip install 'ottla[lakehouse]'\n"
    )


def test_java_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        click.ClickException, match="Spark needs Java 17 or later: install one, or set JAVA_HOME"
    ):
        spark.require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(click.ClickException, match="which has no Java"):
        spark.require_java()


def test_sparks_processes_take_pyspark_from_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not from the archives below its home, which each would compile; a Spark of the user's own is left alone."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    with spark.installed_spark(tmp_path, "local[2]"):
        home = Path(os.environ["SPARK_HOME"])
        assert os.access(home / "bin/spark-submit", os.X_OK)
        assert list(home.glob("jars/spark-core*.jar"))
        assert not (home / "python").exists()
    assert "SPARK_HOME" not in os.environ
    with spark.installed_spark(tmp_path, "spark://127.0.0.1:7077"):
        assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with spark.installed_spark(tmp_path, "local[2]"):
        assert os.environ["SPARK_HOME"] == "/opt/spark"


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64k", 65536), ("128m", 128 << 20), ("1g", 1 << 30), ("2 GiB", 2 << 30), ("3tb", 3 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert Size().convert(text, None, None) == size
    assert Size().convert(size, None, None) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5g", "m", "1x"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("available-now", "available-now"), ("availableNow", "available-now"), ("30s", 30.0), ("1h30m", 5400.0)],
)
def test_triggers(text: str, meant: object) -> None:
    assert Trigger().convert(text, None, None) == meant
    assert Trigger().convert(meant, None, None) == meant


def test_durations_and_columns() -> None:
    assert Duration().convert("1d", None, None) == 86400.0
    context = click.Context(click.Command("x"))
    named = columns(context, click.Option(["--column"]), ("offset=o", "key=k"))
    assert named == {"offset": "o", "key": "k"}


def test_the_reason_in_sparks_log_is_no_frame_of_a_stack() -> None:
    log = spark.SparkLog()
    log.file.write_text(
        "26/11/24 04:15:32 WARN StandaloneAppClient$ClientEndpoint: Failed to connect to master 127.0.0.1:1\n"
        "org.apache.spark.SparkException: Exception thrown in awaitResult: \n"
        "\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)\n"
        "Caused by: java.net.ConnectException: finishConnect(..) failed with error(-111): Connection refused\n"
        "\tat io.netty.channel.unix.Errors.newConnectException0(Errors.java:166)\n"
        "\tat io.netty.channel.unix.Errors.handleConnectErrno(Errors.java:131)\n"
        "26/11/24 04:15:52 WARN StandaloneSchedulerBackend: Application ID is not initialized yet.\n"
    )
    said = log.last_error()
    log.remove()
    assert said == "java.net.ConnectException: finishConnect(..) failed with error(-111): Connection refused"
