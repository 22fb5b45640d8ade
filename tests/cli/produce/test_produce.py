"""``ottla produce`` against a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from harness.ports import free_port
from tests.cli.ottla_command import OTTLA
from tests.support.commands import Shell, finish, ottla, spawn
from tests.support.processes import BrokerProcess
from tests.support.transactions import wait_until_settled
from tests.support.waiting import wait_for

from ottla_cli.ottla import main
from ottla_cli.shared.timefmt import now_ms, show_time

NewTopic = Callable[..., str]


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker.bootstrap)


def test_lines_from_standard_input(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic()
    done = shell("produce", topic, data=b"\xef\xbb\xbfone\r\ntwo\n\nb\0d \xff\nlast")
    assert done.code == 0, done.err
    assert done.out.startswith(f"5 records (15 B) to {topic}, partition 0, offsets 0 to 4, in ".encode())
    assert done.err == ""
    raw = shell("consume", topic, "-e", "-F", "raw", "--delimiter", "|")
    assert raw.out == b"one|two||b\0d \xff|last|"


def test_nothing_to_send_is_fine(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic()
    done = shell("produce", topic, "--json")
    assert done.code == 0
    summary = json.loads(done.out)
    assert summary["records"] == 0
    assert summary["partitions"] == []


def test_csv_by_key_with_headers_and_times(shell: Shell, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(partitions=3)
    file = tmp_path / "flights.csv"
    now = now_ms()
    rows = ["tail,at,origin", f"N1,{show_time(now - 2)},EWR", f"N2,{now - 1},", f"N1,{now},JFK", ""]
    file.write_bytes("\r\n".join(rows).encode())
    options = [
        "-F",
        "csv",
        "--key",
        "tail",
        "--timestamp",
        "at",
        "-H",
        "source=test",
        "--header-field",
        "from=origin",
    ]
    done = shell("produce", topic, file, *options, "--null-value", "", "-z", "zstd", "--json")
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert (summary["records"], summary["broken"], summary["failed"]) == (3, 0, 0)
    assert sum(part["records"] for part in summary["partitions"]) == 3
    found = sorted(shell.records(topic), key=lambda record: record["timestamp"])
    assert [record["key"] for record in found] == ["N1", "N2", "N1"]
    assert found[0]["partition"] == found[2]["partition"]
    assert [record["timestamp"] for record in found] == [now - 2, now - 1, now]
    assert json.loads(found[1]["value"]) == {"tail": "N2", "at": str(now - 1), "origin": None}
    assert found[0]["headers"] == [{"name": "source", "value": "test"}, {"name": "from", "value": "EWR"}]


def test_keys_tombstones_and_a_partition(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    done = shell("produce", topic, "-K", "\\t", "--null-value", "", "-p", "1", data=b"a\t1\nb\t\n")
    assert done.code == 0, done.err
    assert [(r["partition"], r["key"], r["value"]) for r in shell.records(topic)] == [
        (1, "a", "1"),
        (1, "b", None),
    ]


def test_files_are_records(shell: Shell, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(name.encode() * 1_000_000)
    done = shell("produce", topic, tmp_path / "a", tmp_path / "b", "-F", "raw")
    assert done.code == 0, done.err
    assert [len(value or "") for value in shell.values(topic)] == [1_000_000, 1_000_000]


LINES = b'{"id": 1}\n{"id": 2\n{"id": 3}\n{"no": 4}\n{"id": 5}\n'


def test_an_invalid_line_stops_it_and_is_named(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic()
    done = shell("produce", topic, "-F", "json", "-k", "id", data=LINES)
    assert done.code == 1
    assert done.err.splitlines() == [
        "<stdin>:2: not JSON: Expecting ',' delimiter (column 9)",
        "1 invalid line",
    ]
    assert shell.values(topic) == ['{"id": 1}']


def test_invalid_lines_can_be_skipped(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic()
    done = shell("produce", topic, "-F", "json", "-k", "id", "--on-error", "skip", data=LINES)
    assert done.code == 0
    assert [line.split(":")[1] for line in done.err.splitlines()[:2]] == ["2", "4"]
    assert done.err.splitlines()[2] == "2 invalid lines"
    assert [record["key"] for record in shell.records(topic)] == ["1", "3", "5"]


def test_invalid_lines_go_to_a_file_with_the_reason(
    shell: Shell, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic, rejects = new_topic(), tmp_path / "rejects.jsonl"
    large = b"x" * (1 << 20)
    data = b"k:1\nno key\nk:\xff\xfe\nk:" + large + b"\nk:2\n"
    done = shell("produce", topic, "-K", ":", "--on-error", "file", "--errors", rejects, data=data)
    assert done.code == 0, done.err
    assert done.err == f"2 invalid lines, written to {rejects}\n"
    found = [json.loads(line) for line in rejects.read_text().splitlines()]
    assert [(line["line"], line["reason"][:20]) for line in found] == [
        (2, "no ':' after a key"),
        (4, "a record of 1048672 "[:20]),
    ]
    assert found[0]["text"] == "no key"
    assert len(shell.values(topic)) == 3


def test_input_files_are_not_overwritten_by_rejected_lines(
    shell: Shell, new_topic: NewTopic, tmp_path: Path
) -> None:
    """A user may fix the rejected lines of a run and send that file with the same --errors."""
    rejects = tmp_path / "rejects.jsonl"
    rejects.write_text('{"text": "corrected"}\n')
    again = tmp_path / "." / ".." / tmp_path.name / "rejects.jsonl"
    options = ["-F", "json", "--value", "text", "--on-error", "file", "--errors", again]
    done = shell("produce", new_topic(), rejects, *options)
    assert done.code == 2
    assert "would be overwritten" in done.err
    assert rejects.read_text() == '{"text": "corrected"}\n'


@pytest.mark.parametrize(("closed", "reported"), [("<&-", "input"), (">&-", "output")])
def test_closed_streams_are_reported(shell: Shell, new_topic: NewTopic, closed: str, reported: str) -> None:
    script = f'exec "$0" produce "$1" -b "$2" {closed}'
    arguments = ["sh", "-c", script, OTTLA, new_topic(), shell.bootstrap]
    done = subprocess.run(arguments, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.rstrip().count("\n") == 0
    assert f"standard {reported} is closed" in done.stderr


def test_refused_records_are_counted(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic(max_message_bytes=1000)
    done = shell(
        "produce",
        topic,
        "--on-error",
        "skip",
        "--linger",
        "0",
        "--json",
        data=b"a\n" + b"x" * 3000 + b"\nb\n",
    )
    assert done.code == 1
    assert json.loads(done.out)["failed"] == 1
    assert done.err.startswith("<stdin>:2: not delivered: ")
    assert shell.values(topic) == ["a", "b"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["-", "--key", "a"], "has no fields"),
        (["-", "-F", "csv", "-K", ":"], "--key-separator"),
        (["-", "--on-error", "file"], "go together"),
        (["-", "-H", "x"], "NAME=VALUE"),
        (["-", "-X", "lingerms=3"], "did you mean linger_ms?"),
        (["-", "-X", "compression_level=99", "-z", "zstd"], "compression_level"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_sent(args: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["produce", "-b", "127.0.0.1:1", "topic", *args])
    assert done.exit_code == 2
    assert message in done.stderr


def test_a_topic_that_does_not_exist(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic(prefix="flights")
    done = shell("produce", topic + "x", data=b"1\n")
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith(f"Error: unknown topic {topic}x; did you mean {topic}")
    done = shell("produce", "qqqqqqqqqqqq", data=b"1\n")
    assert done.err == "Error: unknown topic qqqqqqqqqqqq; --create-topic makes one\n"
    done = shell("produce", topic, "-p", "7", data=b"1\n")
    assert done.code == 1
    assert done.err == f"Error: topic {topic} has no partition 7: it has 1, counted from 0\n"


def test_a_topic_is_made_on_demand(shell: Shell, new_name: Callable[..., str]) -> None:
    topic = new_name("made")
    done = shell("produce", topic, "--create-topic", data=b"1\n")
    assert done.code == 0, done.err
    assert shell.values(topic) == ["1"]


def test_no_broker_there() -> None:
    done = ottla(f"127.0.0.1:{free_port()}", "produce", "topic", "--timeout", "1", data=b"1\n")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("Error: no bootstrap server answered")


def test_ctrl_c_sends_records_that_were_read(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic()
    process = spawn(shell.bootstrap, "produce", topic)
    assert process.stdin is not None
    process.stdin.write(b"one\ntwo\nthr")
    process.stdin.flush()
    wait_for(lambda: len(shell.values(topic)) == 2, "the lines that are whole")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    done = finish(process)
    assert done.out.startswith(b"2 records ")
    assert "Interrupted after <stdin>:2; nothing behind it was sent." in done.err
    assert shell.values(topic) == ["one", "two"]


def test_the_broker_goes_away_in_the_middle(
    own_broker: Callable[..., BrokerProcess], new_name: Callable[..., str]
) -> None:
    broker, topic = own_broker(), new_name("t")
    shell = Shell(broker.bootstrap)
    process = spawn(broker.bootstrap, "produce", topic, "--create-topic", "--timeout", "3")
    assert process.stdin is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    wait_for(lambda: shell("consume", topic, "-e").out == b"one\n", "the first line")
    broker.kill()
    process.stdin.write(b"two\nthree\n")
    process.stdin.flush()
    done = finish(process)
    assert done.code == 1
    assert "<stdin>:2: not acknowledged: " in done.err
    assert "2 records not acknowledged, but may have arrived" in done.err
    assert done.out.startswith(b"1 record ")


def committed(shell: Shell, topic: str) -> list[bytes]:
    wait_until_settled(shell.bootstrap, topic)
    return shell("consume", topic, "-e", "--isolation", "read_committed", "-F", "raw").out.splitlines()


@pytest.mark.usefixtures("transactions")
def test_one_transaction(shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]) -> None:
    topic, name = new_topic(), new_name("txn")
    done = shell("produce", topic, "--transactional-id", name, data=b"a\nb\nc\n")
    assert done.code == 0, done.err
    assert done.out.startswith(f"3 records (3 B) to {topic}, partition 0, offsets 0 to 2, in ".encode())
    assert done.err == "1 transaction committed\n"
    assert committed(shell, topic) == [b"a", b"b", b"c"]
    done = shell("produce", topic, "--transactional-id", name, "-F", "json", data=b'"d"\n{oops\n')
    assert done.code == 1
    assert (
        "0 transactions committed\nThe last transaction was not committed: none of its 1 record counts.\n"
        in done.err
    )
    assert done.out.startswith(b"0 records")
    assert committed(shell, topic) == [b"a", b"b", b"c"]
    assert shell("produce", topic, "--transactional-id", name, "--json").code == 0


@pytest.mark.usefixtures("transactions")
def test_several_transactions(shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]) -> None:
    topic, name = new_topic(), new_name("txn")
    lines = b"".join(b"%d\n" % number for number in range(10))
    done = shell(
        "produce", topic, "--transactional-id", name, "--transaction-size", "4", "--json", data=lines
    )
    assert done.code == 0, done.err
    summary = json.loads(done.out)
    assert (summary["records"], summary["transactions"], summary["aborted"]) == (10, 3, 0)
    assert summary["partitions"] == [{"partition": 0, "records": 10, "first_offset": 0, "last_offset": 11}], (
        "two markers lie between"
    )
    assert committed(shell, topic) == lines.split()
    lines = b'"a"\n"b"\n"c"\noops\n"d"\n'
    options = ["--transactional-id", name, "--transaction-size", "2", "-F", "json"]
    done = shell("produce", topic, *options, "--json", data=lines)
    summary = json.loads(done.out)
    assert done.code == 1
    assert (summary["records"], summary["transactions"], summary["aborted"]) == (2, 1, 1)
    assert committed(shell, topic)[10:] == [b'"a"', b'"b"']


@pytest.mark.usefixtures("transactions")
def test_a_record_that_the_broker_refuses_aborts(
    shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]
) -> None:
    topic = new_topic(**{"cleanup.policy": "compact"})
    done = shell("produce", topic, "--transactional-id", new_name("txn"), data=b"no key\n")
    assert done.code == 1
    assert "not delivered" in done.err
    assert "The last transaction was not committed: none of its 1 record counts." in done.err
    assert committed(shell, topic) == []


@pytest.mark.usefixtures("transactions")
def test_a_transaction_is_aborted_by_ctrl_c_and_committed_in_time(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]
) -> None:
    topic, name = new_topic(), new_name("txn")
    options = ["--transactional-id", name, "-X", "transaction_timeout_ms=4000"]
    for more, seen in (([], []), (["--transaction-size", "5"], [b"line"])):
        process = spawn(broker.bootstrap, "produce", topic, *options, *more)
        assert process.stdin is not None
        process.stdin.write(b"line\n")
        process.stdin.flush()
        if more:
            wait_for(lambda: committed(shell, topic), "the commit after half of the timeout")
        else:
            wait_for(lambda: shell("consume", topic, "-e").out, "the record")
        process.send_signal(signal.SIGINT)
        done = finish(process)
        assert done.code == 130
        assert ("Interrupted; the last transaction was not committed" in done.err) is not bool(more), done.err
        assert committed(shell, topic) == seen
    done = shell("produce", topic, "--transaction-size", "5")
    assert done.code == 2
    done = shell("produce", topic, "--transactional-id", "x", "--acks", "1")
    assert done.code == 2
