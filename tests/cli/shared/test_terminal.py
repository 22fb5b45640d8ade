"""Output, options and errors of all commands."""

from __future__ import annotations

import asyncio
import ctypes
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

import click
import confluent_kafka as ck
import pytest
from click.testing import CliRunner
from tests.cli.ottla_command import Ottla

from ottla_cli.ottla import Commands, main
from ottla_cli.shared.client_options import ClientOptions
from ottla_cli.shared.ending import Ending
from ottla_cli.shared.progress import amount_of_bytes, rate_of
from ottla_cli.shared.tables import Column, plain_table
from ottla_cli.shared.terminal import Console, options, run, text_or_base64, unknown_topic
from ottla_cli.shared.timefmt import parse_duration, parse_time, show_time
from ottla_client.consumer.settings import ConsumerSettings
from ottla_client.errors import BootstrapError, ClientError
from ottla_client.option_names import kafka_names
from ottla_client.producer.settings import ProducerSettings
from ottla_client.settings import ConnectionSettings
from ottla_protocol.printable import printable


def options_of(*pairs: str, **own: Any) -> dict[str, Any]:
    return ClientOptions("b:1", 5, pairs).of(ProducerSettings, [ConsumerSettings], **own)


def test_options_are_turned_into_their_types() -> None:
    given = options_of(
        "linger.ms=2.5", "enable_idempotence=no", "compression-level=3", "acks=1", client_id="other"
    )
    assert given == {
        "bootstrap_servers": "b:1",
        "linger_ms": 2.5,
        "enable_idempotence": False,
        "compression_level": 3,
        "acks": 1,
        "client_id": "other",
    }
    assert options_of("client.id=me", "acks=all", client_id="other")["client_id"] == "me"
    assert options_of("bootstrap.servers=c:2")["bootstrap_servers"] == "c:2"


def test_options_of_the_command_s_other_client_are_left_out() -> None:
    assert options_of("fetch_max_bytes=1", "max.poll.records=1") == {"bootstrap_servers": "b:1"}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("linger", "'linger' is not KEY=VALUE"),
        ("lingerms=1", "no option lingerms; did you mean linger_ms"),
        ("linger.mss=1", "no option linger.mss; did you mean linger.ms"),
        ("ssl.ca.locatoin=x", "did you mean ssl.ca.location"),
        ("sasl.pasword=x", "no option sasl.pasword; did you mean sasl.password"),
        ("sasl_pasword=x", "no option sasl_pasword; did you mean sasl_plain_password"),
        ("sasl.login.class=x", "has sasl.mechanism, sasl.username and sasl.password"),
        ("linger_ms=soon", "linger_ms is a number"),
        ("batch.size=1.5", "batch.size is a whole number"),
        ("enable.idempotence=2", "enable.idempotence is true or false"),
        ("ssl_context=x", "no option ssl_context"),
        ("partitioner=x", "no option partitioner"),
        ("ssl.truststore.type=JKS", "PEM"),
        ("ssl.endpoint.identification.algorithm=dns", "no check"),
    ],
)
def test_errors_of_invalid_options_name_the_valid_ones(pair: str, message: str) -> None:
    with pytest.raises(click.BadParameter, match=message):
        options_of(pair)


def test_errors_name_options_as_the_user_does() -> None:
    said = "the login failed; check sasl_plain_username and ssl_cafile"
    dotted = "the login failed; check sasl.username and ssl.truststore.location"
    assert ClientOptions("b:1", 5, ["sasl_plain_username=a"]).as_given(said) == said
    assert ClientOptions("b:1", 5, ["sasl.username=a"]).as_given(said) == dotted


@pytest.mark.parametrize("dotted", [False, True])
def test_tls_options_in_either_spelling(dotted: bool) -> None:
    names = (
        ("ssl.truststore.location", "ssl.keystore.location", "ssl.key.location", "ssl.key.password")
        if dotted
        else ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password")
    )
    check = "ssl.endpoint.identification.algorithm=" if dotted else "ssl_check_hostname=false"
    assert options_of(*(f"{name}=x" for name in names), check) == {
        "bootstrap_servers": "b:1",
        "ssl_cafile": "x",
        "ssl_certfile": "x",
        "ssl_keyfile": "x",
        "ssl_password": "x",
        "ssl_check_hostname": False,
    }


def test_plain_tables_are_aligned_and_safe() -> None:
    columns = [Column("Topic"), Column("Lag"), Column("Members")]
    rows = [("a\x1b[31m", 5, []), ("bb", None, ["x", "y"])]
    assert plain_table(columns, rows) == (
        "TOPIC      LAG  MEMBERS\na\\x1b[31m    5  -\nbb           -  x,y\n"
    )


def test_tables_are_json_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(ClientOptions("b:1", 5), as_json=True)
    console.table(["Topic", Column("In sync", "isr"), "First offset"], [("a", {2, 1}, 3)])
    assert json.loads(capsys.readouterr().out) == [{"topic": "a", "isr": [1, 2], "first_offset": 3}]
    console.table(["Topic"], [], empty="no topics")
    assert json.loads(capsys.readouterr().out) == []
    console.details({"Cluster id": "x", "Nodes": 3})
    assert json.loads(capsys.readouterr().out) == {"cluster_id": "x", "nodes": 3}


def test_tables_are_drawn_at_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    console = Console(ClientOptions("b:1", 5))
    console.is_terminal = True
    console.table(["Topic", "Lag"], [("flights", 12)], title="Groups")
    drawn = capsys.readouterr().out
    assert "Groups" in drawn
    assert "flights" in drawn
    assert "─" in drawn


def test_plain_text_without_rich(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "ottla_cli.shared.rich_output", raising=False)
    monkeypatch.setitem(sys.modules, "rich", None)
    console = Console(ClientOptions("b:1", 5))
    console.is_terminal = console.talks = True
    console.table(["Topic", "Lag"], [("flights", 12)])
    assert capsys.readouterr().out == "TOPIC    LAG\nflights   12\n"
    with console.progress("sending", total=100, unit="bytes") as bar:
        monkeypatch.setattr(bar, "_shown", 0.0)
        bar.update(50, note="5 records")
    assert "sending  50% 50 B" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (BootstrapError("no broker\nthere"), 1, "Error: no broker there\n"),
        (FileNotFoundError(2, "No such file", "x.csv"), 1, "Error: x.csv: No such file\n"),
        (TimeoutError(), 1, "Error: TimeoutError\n"),
        (asyncio.CancelledError(), 143, ""),
        (KeyboardInterrupt(), 130, ""),
        (click.UsageError("not so"), 2, "Error: not so\n"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(raised: BaseException, code: int, line: str) -> None:
    async def fail() -> None:
        raise raised

    @click.command()
    @options
    def command(console: Console) -> None:
        run(fail())

    result = CliRunner().invoke(command)
    assert result.exit_code == code
    assert result.stderr.endswith(line)
    assert "Traceback" not in result.stderr


def test_a_confirmation_needs_a_terminal() -> None:
    @click.command()
    @options
    def command(console: Console) -> None:
        console.confirm("really?", yes=console.timeout == 1)
        console.print("done")

    assert CliRunner().invoke(command, ["--timeout", "1"]).stdout == "done\n"
    refused = CliRunner().invoke(command)
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_question_is_ended_by_a_signal(number: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        Console(ClientOptions("", 1.0, ())).confirm("really?", yes=False)

    monkeypatch.setattr("ottla_cli.shared.terminal._is_terminal", lambda stream: True)
    monkeypatch.setattr(click, "confirm", lambda *args, **options: signal.raise_signal(number))
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as ended:
        run(ask())
    assert ended.value.code == 128 + number
    assert signal.getsignal(number) == before


def test_ctrl_c_before_a_command_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never() -> None:
        raise AssertionError

    class Runner(asyncio.Runner):
        def __enter__(self) -> Runner:
            signal.raise_signal(signal.SIGINT)
            return super().__enter__()

    monkeypatch.setattr(asyncio, "Runner", Runner)
    monkeypatch.setattr(Ending, "_watch", lambda ending: None)
    with pytest.raises(SystemExit) as ended:
        run(never())
    assert ended.value.code == 130

    @click.group(cls=Commands)
    def ottla() -> None: ...

    @ottla.command()
    def starts() -> None:
        raise KeyboardInterrupt

    assert CliRunner().invoke(ottla, ["starts"]).exit_code == 130


def test_unknown_names_get_suggestions() -> None:
    assert (
        unknown_topic("flihgts", ["flights", "x"]).message == "unknown topic flihgts; did you mean flights?"
    )
    assert unknown_topic("\x1b", []).message == "unknown topic \\x1b"


def test_text_that_can_do_nothing_to_a_terminal() -> None:
    assert printable("é\x1b[2J\n\x9b\ud800") == "é\\x1b[2J\\n\\x9b\\ud800"
    assert text_or_base64("v", b"\xff") == {"v": "/w==", "v_encoding": "base64"}
    assert text_or_base64("v", None) == {"v": None}


def test_names_that_strangers_chose_do_nothing_to_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    name = "billing\x1b[2J\nforged\x9b\u202e"
    shown = "billing\\x1b[2J\\nforged\\x9b\\u202e"
    console = Console(ClientOptions("", 1))
    console.print(f"deleted group {name}")
    console.note(name)
    console.emit([name])
    out, err = capsys.readouterr()
    escaped = '"billing\\u001b[2J\\nforged\\u009b\\u202e"'
    assert out == f"deleted group {shown}\n[\n  {escaped}\n]\n"
    assert err == f"{shown}\n"
    assert unknown_topic("billing-forged", [name]).message.endswith(f"; did you mean {shown}?")

    @click.group(cls=Commands)
    def ottla() -> None: ...

    @ottla.command()
    def fails() -> None:
        raise click.ClickException(f"group {name}")

    assert CliRunner().invoke(ottla, ["fails"]).stderr == f"Error: group {shown}\n".replace("\\n", "\n")


def test_a_client_s_warnings_are_notes_and_its_failure_is_printed_once() -> None:
    log = logging.getLogger("ottla_client")

    @click.command()
    @options
    async def command(console: Console) -> None:
        log.warning("a\x1b[2J: check sasl_plain_username")
        log.error("the disk is on fire")
        log.error("group 'g': not allowed")
        raise ClientError("group 'g': not allowed")

    assert CliRunner().invoke(command).stderr.splitlines() == [
        "a\\x1b[2J: check sasl.username",
        "the disk is on fire",
        "Error: group 'g': not allowed",
    ]


def test_times_and_durations() -> None:
    assert parse_time("1970-01-01T00:00:01.5Z") == 1500
    assert parse_time("1970-01-01T01:00:00+01:00") == 0
    assert parse_time("1700000000000") == 1_700_000_000_000
    assert parse_time("12345678901234567.0") == 12_345_678_901_234_567  # no float holds it
    assert parse_duration("1h30m") == 5_400_000
    assert show_time(1500) == "1970-01-01T00:00:01.500Z"
    assert show_time(-1) == ""
    assert show_time(1 << 60) == str(1 << 60)
    for text in ("soon", ""):
        with pytest.raises(ValueError, match="is not a time"):
            parse_time(text)
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)
    for text in ("-1", "1969-12-31T23:59:59.999Z", str(1 << 62), "9" * 40):
        with pytest.raises(ValueError, match="timestamps are from 1970 on"):
            parse_time(text)
    assert [amount_of_bytes(n) for n in (0, 1023, 1536, 1 << 50)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "1024.0 TiB",
    ]
    assert [rate_of(*each) for each in ((0, 3.0), (1, 5.0), (3, 1.0), (5_000, 2.0))] == [
        "in 3.00 s",
        "in 5.00 s: 0.2 records/s",
        "in 1.00 s: 3 records/s",
        "in 2.00 s: 2,500 records/s",
    ]


def test_help_has_sections() -> None:
    shown = CliRunner().invoke(main, ["--help"])
    assert shown.exit_code == 0
    assert "Records:" in shown.output
    assert "Pipeline:\n  pipeline  " in shown.output
    assert "Others:" not in shown.output
    assert "produce " in shown.output


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("produse", "No such command 'produse'; did you mean produce"),
        ("groups reset", "No such command 'reset'; did you mean reset-offsets?"),
        ("configs client-metrics lst", "No such command 'lst'; did you mean list?"),
        ("log adoppt", "No such command 'adoppt'; did you mean adopt?"),
        ("pipeline lnd", "No such command 'lnd'; did you mean land?"),
        ("topics xyz", "No such command 'xyz'\n"),
        ("topics \x1b[1m", r"No such command '\x1b[1m'"),
    ],
)
def test_unknown_commands_get_suggestions(wrong: str, said: str) -> None:
    done = CliRunner().invoke(main, wrong.split(" "))
    assert done.exit_code == 2
    assert said in done.output


def test_an_address_on_the_command_line_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:2\n")
    given = ["topics", "list", "--timeout", "0.01", "--command-config", str(file)]
    assert "127.0.0.1:2:" in CliRunner().invoke(main, given).output
    assert "127.0.0.1:1:" in CliRunner().invoke(main, [*given, "-b", "127.0.0.1:1"]).output


def test_options_of_a_command_override_a_file(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("compression.type=none\nlinger.ms=7 \nacks=1\n")
    read = ClientOptions("b:1", 5)
    read.add_file(str(file), ["compression", "acks", "timeout"])
    found = read.of(ProducerSettings, acks="all", compression_type="gzip", linger_ms=5)
    assert (found["acks"], found["compression_type"], found["linger_ms"]) == ("all", "gzip", 7.0)


def test_what_a_command_decides_is_no_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "client.properties"
    file.write_text("group.id=w\n")
    read, decided = ClientOptions("b:1", 5), {"group.id": "give -g"}
    read.add_file(str(file))
    assert read.of(ConsumerSettings, decided=decided, group_id=None)["group_id"] is None
    assert (
        capsys.readouterr().err
        == "ottla: --command-config: ignored, because the command decides on group.id: give -g\n"
    )
    read.add(["group_id=x"])
    with pytest.raises(click.BadParameter, match=r"the command decides on group\.id: give -g"):
        read.of(ConsumerSettings, decided=decided)


def of_file(tmp_path: Path, text: bytes, *pairs: str) -> dict[str, Any]:
    file = tmp_path / "client.properties"
    file.write_bytes(text)
    read = ClientOptions("b:1", 5)
    read.add_file(str(file))
    read.add(pairs)
    return read.of(ProducerSettings, [ConsumerSettings])


@pytest.mark.parametrize(
    "text",
    [
        b"linger.ms=\\\n  20",
        b"linger.ms: 20",
        b"! a comment\nlinger.ms 20  ",
        b"\xef\xbb\xbflinger.ms=20\r\n",
        b"linger.ms=1\nlinger.ms = 20",
        b"\tlinger\\u002ems=2\\\r\n\t0",
        b"kafka.linger_ms=20",
    ],
)
def test_a_file_of_options_is_read_as_java_reads_it(tmp_path: Path, text: bytes) -> None:
    assert of_file(tmp_path, text)["linger_ms"] == 20.0
    assert of_file(tmp_path, text, "linger.ms=3")["linger_ms"] == 3.0


def test_options_of_other_clients_in_a_file_are_ignored_with_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    login = b'\nsasl.jaas.config=org.X required \\\n  username="u";\nssl.truststore.location=/x.jks'
    others = b"bootstrap.servers=h:1\nkey.serializer=org.X\nretries=3\nmy.own.key=1\nsasl.kerberos.service.name=k\n"
    tls = b"security.protocol=SSL\nssl.keymanager.algorithm=x\n"
    assert "acks" in of_file(tmp_path, others + b"acks=1" + login)
    assert capsys.readouterr().err == (
        "ottla: --command-config: ignored, because this client has no such options:"
        " key.serializer, my.own.key, retries\n"
        "ottla: --command-config: ignored, because security.protocol is PLAINTEXT:"
        " sasl.jaas.config, sasl.kerberos.service.name, ssl.truststore.location\n"
    )
    assert of_file(tmp_path, tls)["security_protocol"] == "SSL"
    assert capsys.readouterr().err.endswith("this client has no such options: ssl.keymanager.algorithm\n")


def _names_of_librdkafka() -> set[str]:
    """All options with a default in the version that confluent-kafka brings."""
    (path,) = (Path(ck.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    library = ctypes.CDLL(str(path))
    names = set()
    for kind in ("conf", "topic_conf"):
        make, dump = library[f"rd_kafka_{kind}_new"], library[f"rd_kafka_{kind}_dump"]
        make.restype, dump.restype = ctypes.c_void_p, ctypes.POINTER(ctypes.c_char_p)
        count = ctypes.c_size_t()
        pairs = dump(ctypes.c_void_p(make()), ctypes.byref(count))
        names.update((pairs[index] or b"").decode() for index in range(0, count.value, 2))
    return names


@pytest.mark.parametrize("settings", [ConnectionSettings, ConsumerSettings, ProducerSettings])
def test_a_file_for_librdkafka_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: type[ConnectionSettings]
) -> None:
    file = tmp_path / "client.properties"
    known = set(kafka_names(settings))
    others = sorted(_names_of_librdkafka() - known)
    assert len(others) > 80
    file.write_text("".join(f"{name}=1\n" for name in others))
    options = ClientOptions("h:1", 5)
    options.add_file(str(file))
    assert options.of(settings) == {"bootstrap_servers": "h:1"}
    assert "socket.max.fails" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"lingr.ms=20", r"no option lingr\.ms; did you mean linger\.ms"),
        (b"security.protocol=SSL\nssl.enabled.protocols=TLSv1.3", r"no option ssl\.enabled\.protocols"),
        (
            b"security.protocol=SSL\nenable.ssl.certificate.verification=false",
            r"no option enable\.ssl\.cert",
        ),
        (b"linger.ms=soon", r"linger\.ms is a number, not 'soon'"),
        (b"\nlinger.ms=\\u12", r"client\.properties: line 2: malformed"),
    ],
)
def test_a_file_of_options_with_a_mistake_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    with pytest.raises(click.BadParameter, match=said):
        of_file(tmp_path, text)


def test_a_folder_of_landing_jobs_that_is_missing(tmp_path: Path) -> None:
    there, missing = str(tmp_path), str(tmp_path / "nosuch")
    wrong = ("--oidc-client-id", "x")  # ends the command before it serves
    said = Ottla("127.0.0.1:1").fails("console", "--landing", there, "--landing", missing, *wrong, code=2)
    assert said.startswith(f"warning: --landing {missing}: there is no such folder yet\n")


def test_an_option_before_the_command_is_an_error_that_names_its_place() -> None:
    wrong = CliRunner().invoke(main, ["-b", "127.0.0.1:1", "topics", "list"])
    assert wrong.exit_code == 2
    assert "No such option '-b' here; give options after the command" in wrong.output
    assert "Did you mean '--help'?" in CliRunner().invoke(main, ["--helpp"]).output


@pytest.mark.parametrize("command", ["produce", "consume", "bench", "completion"])
def test_every_command_explains_itself(command: str) -> None:
    shown = CliRunner().invoke(main, [command, "--help"])
    assert shown.exit_code == 0
    assert f"ottla {command}" in shown.output
    assert "\b" not in shown.output
