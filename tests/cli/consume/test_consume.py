"""``ottla consume`` against a real broker."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, call

import pytest
from click.testing import CliRunner
from harness.ports import free_port
from tests.cli.ottla_command import Ottla
from tests.support.commands import Shell, finish, ottla, spawn
from tests.support.processes import BrokerProcess
from tests.support.transactions import wait_until_settled

from ottla_cli.consume.formatters import Style, make_formatter
from ottla_cli.consume.log_positions import BEGINNING, LogPosition
from ottla_cli.consume.print_run import ConsumeOptions
from ottla_cli.consume.records import ConsumeRun
from ottla_cli.ottla import main
from ottla_cli.shared.timefmt import show_time
from ottla_client.admin import AlterConfig, ConfigResource, ResourceType
from ottla_client.consumer import Consumer
from ottla_client.consumer.rows import Rows
from ottla_client.sync import Admin
from ottla_client.types import OffsetAndMetadata, TimestampType, TopicPartition

NewTopic = Callable[..., str]


@pytest.fixture
def shell(broker: BrokerProcess) -> Shell:
    return Shell(broker.bootstrap)


def filled(shell: Shell, topic: str, *lines: bytes) -> str:
    done = shell(
        "produce", topic, "-K", "=", "--null-value", "NULL", data=b"".join(line + b"\n" for line in lines)
    )
    assert done.code == 0, done.err
    return topic


def numbered(shell: Shell, topic: str, count: int) -> str:
    """Values 0, 1, …"""
    done = shell("produce", topic, data=b"".join(b"%d\n" % number for number in range(count)))
    assert done.code == 0, done.err
    return topic


def read_lines(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The next lines of a command's output."""
    assert process.stdout is not None
    return [process.stdout.readline().rstrip(b"\n") for _ in range(count)]


def test_formats(shell: Shell, new_topic: NewTopic) -> None:
    topic = filled(shell, new_topic(), b'k=a,"b"', b"l=NULL", b"\xfe=\xff\xc3\xa4\0")
    assert shell("consume", topic, "-e").out == 'a,"b"\nnull\n\\xffä\0\n'.encode()
    assert shell("consume", topic, "-e", "-F", "raw").out == b'a,"b"\n\n\xff\xc3\xa4\0\n'
    assert shell("consume", topic, "-e", "--show", "offset,key,value", "--null-value", "").out == (
        '0\tk\ta,"b"\n1\tl\t\n2\t\\xfe\t\\xffä\0\n'.encode()
    )
    rows = list(csv.reader(io.StringIO(shell("consume", topic, "-e", "-F", "csv").out.decode())))
    assert rows[0] == ["topic", "partition", "offset", "timestamp", "key", "value"]
    assert [row[4:] for row in rows[1:]] == [["k", 'a,"b"'], ["l", ""], ["\\xfe", "\\xffä\0"]]
    returns = filled(shell, new_topic(), b"\r=a\rb")
    shown = shell("consume", returns, "-e", "-F", "csv", "--show", "key,value").out
    assert shown == b'key,value\n"\r","a\rb"\n'
    found = [json.loads(line) for line in shell("consume", topic, "-e", "--json").lines]
    assert [(record["key"], record["value"]) for record in found] == [
        ("k", 'a,"b"'),
        ("l", None),
        ("/g==", "/8OkAA=="),
    ]
    assert found[2]["key_encoding"] == found[2]["value_encoding"] == "base64"
    assert "value_encoding" not in found[0]
    template = shell("consume", topic, "-n", "1", "-t", "{partition}:{offset:>3}\\t{time} {key}{{{value}}}")
    assert template.out.decode() == f'0:  0\t{show_time(found[0]["timestamp"])} k{{a,"b"}}\n'


PLACES: list[tuple[list[str], range]] = [
    (["--exit"], range(10)),
    (["--until", "end"], range(10)),
    (["--from", "7", "-e"], range(7, 10)),
    (["--from", "700", "-e"], range(0)),
    (["--from", "-3", "-e"], range(7, 10)),
    (["--from", "-300", "-e"], range(10)),
    (["--from", "end", "-e"], range(0)),
    (["--from", "-1h", "-e"], range(10)),
    (["--from", "2100-01-01", "-e"], range(0)),
    (["--from", "1700000000000", "-e"], range(10)),
    (["--until", "4"], range(4)),
    (["--from", "2", "--until", "4"], range(2, 4)),
    (["--from", "4", "--until", "4"], range(0)),
    (["--until", "2001-09-09T01:46:40Z"], range(0)),
    (["-n", "3"], range(3)),
    (["--from", "8", "-n", "30", "-e"], range(8, 10)),
]


def test_where_to_begin_and_where_to_stop(shell: Shell, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, file = numbered(shell, new_topic(), 10), tmp_path / "out"
    for args, expected in PLACES:
        done = CliRunner().invoke(main, ["consume", "-b", shell.bootstrap, topic, "-o", str(file), *args])
        past = f"offset 700 is past the end, so reading from the end: {topic}-0 ends at 10\n"
        said = (past if "700" in args else "") + ("" if expected else f"no records to read from {topic}\n")
        assert (done.exit_code, done.stderr) == (0, said), args
        assert file.read_text().split() == [str(number) for number in expected], args


def test_a_time_in_the_middle(shell: Shell, new_topic: NewTopic) -> None:
    topic = numbered(shell, new_topic(), 2)
    numbered(shell, topic, 1)
    at = [record["timestamp"] for record in shell.records(topic)]
    assert at[1] < at[2]
    assert shell("consume", topic, "-e", "--from", show_time(at[2])).lines == [b"0"]
    assert shell("consume", topic, "--until", f"@{at[2]}").lines == [b"0", b"1"]


def test_several_topics_partitions_and_patterns(shell: Shell, new_topic: NewTopic) -> None:
    first, second = new_topic(partitions=2, prefix="pat"), new_topic(prefix="pat")
    for topic, partition in ((first, "0"), (first, "1"), (second, "0")):
        assert shell("produce", topic, "-p", partition, data=f"{topic}/{partition}\n".encode()).code == 0
    everything = sorted([f"{first}/0", f"{first}/1", f"{second}/0"])
    assert sorted(shell("consume", first, second, "-e").out.decode().split()) == everything
    assert shell("consume", first, "-p", "1", "-e").out.decode().split() == [f"{first}/1"]
    assert sorted(shell("consume", "--pattern", f"{first}|{second}", "-e").out.decode().split()) == everything


def test_a_file_gets_all_of_it(shell: Shell, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(partitions=3)
    lines = [b"%06d" % number + b"x" * 94 for number in range(30_000)]
    assert shell("produce", topic, data=b"\n".join(lines)).code == 0
    done = shell("consume", topic, "-e", "-o", tmp_path / "out")
    assert (done.code, done.out, done.err) == (0, b"", "")
    assert sorted((tmp_path / "out").read_bytes().splitlines()) == lines
    done = shell("consume", topic, "-e", "-o", tmp_path / "nowhere" / "out")
    assert done.code == 1
    assert done.err == f"Error: {tmp_path}/nowhere/out: No such file or directory\n"


def test_a_closed_pipe_ends_it_quietly(broker: BrokerProcess, shell: Shell, new_topic: NewTopic) -> None:
    """While there is something to write, and while there is nothing."""
    for count in (50_000, 1):
        topic = numbered(shell, new_topic(), count)
        process = spawn(broker.bootstrap, "consume", topic)
        assert read_lines(process, 1) == [b"0"]
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.stdin is not None
        process.stdin.close()


def test_ctrl_c_commits_and_the_next_run_continues(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]
) -> None:
    topic, group = numbered(shell, new_topic(), 20_000), new_name("group")
    for sign, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        process = spawn(broker.bootstrap, "consume", topic, "-g", group)
        first = read_lines(process, 1)
        process.send_signal(sign)
        done = finish(process)
        assert done.code == code
        seen = first + done.out.splitlines()
        following = shell("consume", topic, "-g", group, "-n", "1").lines if int(seen[-1]) < 19_999 else []
        if following:
            assert following == [b"%d" % (int(seen[-1]) + 1)]
        numbered(shell, topic, 20_000)
        if not following:
            assert shell("consume", topic, "-g", group, "-n", "1").lines == [b"0"]


def test_a_group_continues_at_its_offsets(
    shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]
) -> None:
    topic, group = numbered(shell, new_topic(), 10), new_name("group")
    assert shell("consume", topic, "-g", group, "-n", "4").lines == [b"0", b"1", b"2", b"3"]
    assert shell("consume", topic, "-g", group, "-e").lines == [b"%d" % number for number in range(4, 10)]
    assert shell("consume", topic, "-g", group, "-e").lines == []
    # Where it begins is committed too, so that what comes between two runs is read by the second.
    group = new_name("group")
    assert shell("consume", topic, "-g", group, "--from", "end", "-e").lines == []
    filled(shell, topic, b"k=between")
    assert shell("consume", topic, "-g", group, "--from", "end", "-e").lines == [b"between"]


def test_a_group_has_an_offset_in_each_partition_however_few_records_it_reads(
    shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]
) -> None:
    topic, group = new_topic(30), new_name("group")
    filled(shell, topic, *(b"%d=v" % number for number in range(300)))
    done = shell("consume", topic, "-g", group, "-n", "5")
    assert (done.code, len(done.lines), done.err) == (0, 5, "")
    rows = json.loads(shell("groups", "describe", group, "--json").out)["partitions"]
    assert len(rows) == 30
    assert sum(row["committed"] for row in rows) == 5


def test_a_reader_that_stops_loses_only_unread_output(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic, new_name: Callable[..., str]
) -> None:
    topic, group = new_topic(), new_name("group")
    lines = [b"%06d" % number + b"x" * 1000 for number in range(5_000)]
    assert shell("produce", topic, data=b"\n".join(lines)).code == 0
    process = spawn(broker.bootstrap, "consume", topic, "-g", group)
    assert read_lines(process, 1) == [lines[0]]
    process.send_signal(signal.SIGINT)
    time.sleep(1.5)  # longer than it waits for its reader
    done = finish(process)
    assert done.code == 130
    # It may repeat what was on its way, but leaves nothing out.
    following = shell("consume", topic, "-g", group, "-n", "1").lines[0]
    assert int(following[:6]) <= 1 + len(done.lines)


@pytest.fixture
def share_group(broker: BrokerProcess, new_name: Callable[..., str]) -> str:
    """A share group that begins at the earliest record."""
    group = new_name("share")
    with Admin(broker.bootstrap) as admin:
        start = AlterConfig("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource(ResourceType.GROUP, group): [start]})
    return group


@pytest.mark.not_kafka_3
def test_a_share_group_gets_again_what_was_not_printed(
    shell: Shell, new_topic: NewTopic, share_group: str
) -> None:
    topic = numbered(shell, new_topic(), 10)
    done = shell("consume", topic, "-g", share_group, "--share", "-n", "4")
    assert (done.code, done.lines, done.err) == (0, [b"%d" % number for number in range(4)], "")
    done = shell("consume", topic, "-g", share_group, "--share", "-n", "6", "--json")
    assert [json.loads(line)["value"] for line in done.lines] == [str(number) for number in range(4, 10)]


@pytest.mark.not_kafka_3
def test_ctrl_c_accepts_what_a_share_group_has_printed(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic, share_group: str
) -> None:
    topic = numbered(shell, new_topic(), 3)
    wait = ("-X", "fetch.max.wait.ms=400")
    process = spawn(broker.bootstrap, "consume", topic, "-g", share_group, "--share", *wait)
    assert read_lines(process, 3) == [b"0", b"1", b"2"]
    # By then the next request waits for records, and the broker takes no other before it has answered that one.
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert "in time" not in done.err
    filled(shell, topic, b"k=next")
    assert shell("consume", topic, "-g", share_group, "--share", "-n", "1").lines == [b"next"]


@pytest.mark.parametrize("by_pattern", [False, True])
def test_partitions_and_topics_that_are_added_are_read(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic, by_pattern: bool
) -> None:
    topic = numbered(shell, new_topic(), 1)
    what = ("--pattern", f"{topic}.*") if by_pattern else (topic,)
    process = spawn(broker.bootstrap, "consume", *what, "-X", "metadata.max.age.ms=200")
    assert read_lines(process, 1) == [b"0"]
    assert shell("topics", "alter", topic, "--partitions", "2").code == 0
    assert shell("produce", topic, "-p", "1", data=b"added\n").code == 0
    assert read_lines(process, 1) == [b"added"]
    if by_pattern:
        assert shell("topics", "create", f"{topic}-2", "--partitions", "1").code == 0
        numbered(shell, f"{topic}-2", 1)
        assert read_lines(process, 1) == [b"0"]
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130


@pytest.mark.not_kafka_3
def test_a_share_group_whose_topic_is_deleted_ends(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic, share_group: str
) -> None:
    topic = numbered(shell, new_topic(), 1)
    process = spawn(broker.bootstrap, "consume", topic, "-g", share_group, "--share")
    assert read_lines(process, 1) == [b"0"]
    with Admin(broker.bootstrap) as admin:
        admin.delete_topics([topic])
    done = finish(process)
    assert (done.code, done.err) == (1, f"Error: topic '{topic}' has been deleted\n")


def test_the_last_records_and_the_position_of_a_transactional_topic(
    broker: BrokerProcess,
    shell: Shell,
    new_topic: NewTopic,
    new_name: Callable[..., str],
    transactions: None,
) -> None:
    """The last N are records that can be read; a group goes on behind markers and aborted records."""
    from confluent_kafka import Producer as Transactional

    topic = new_topic()
    producer = Transactional({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for values, end in (("abc", producer.commit_transaction), ("x" * 200, producer.abort_transaction)):
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush(30)
        end(30)
    wait_until_settled(broker.bootstrap, topic)
    kept, dropped = [b"a", b"b", b"c"], [b"x"] * 200
    committed = ("--isolation", "read_committed")
    assert shell("consume", topic, "-e").lines == kept + dropped
    assert shell("consume", topic, "-e", *committed).lines == kept
    for last in range(1, 5):
        assert shell("consume", topic, "-e", "--from", f"-{last}", *committed).lines == kept[-last:]
    assert shell("consume", topic, "-e", "--from", "-1").lines == [b"x"]
    assert shell("consume", topic, "-e", "--from", "-201").lines == [b"c", *dropped]
    group = new_name("group")
    assert shell("consume", topic, "-e", "-g", group, *committed).lines == kept
    with Admin(broker.bootstrap) as admin:
        assert [each.offset for each in admin.list_group_offsets(group).values()] == [205]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Name one or more topics"),
        (["t", "--pattern", "x"], "Name one or more topics"),
        (["--pattern", "("], "--pattern"),
        (["t", "--from", "soon"], "'soon' is not a time"),
        (["t", "--until", "beginning"], "end, an offset or a time"),
        (["t", "--follow", "--until", "end"], "--follow doesn't stop"),
        (["t", "-g", "g", "--from", "5"], "reset-offsets"),
        (["t", "-g", "g", "-p", "1"], "exclude each other"),
        (["t", "--share"], "--share needs --group"),
        (["t", "-g", "g", "--share", "--from", "end"], "--from and --share exclude each other"),
        (["t", "-g", "g", "--share", "-e"], "--exit and --share exclude each other"),
        (["--pattern", "t", "-g", "g", "--share"], "--pattern and --share exclude each other"),
        (["t", "--show", "value,colour"], "'colour' is not one of"),
        (["t", "--show", "key", "--json"], "--show"),
        (["t", "--json", "-F", "csv"], "exclude each other"),
        (["t", "-t", "{colour}"], "{colour} is not one of"),
        (["t", "-t", "{value"], "--template"),
        (["t", "-t", "{value.__class__}"], "is not one of"),
        (["t", "-t", "{offset:zz}"], "--template"),
        (["t", "-X", "fetch_max_byte=1"], "did you mean fetch_max_bytes"),
    ],
)
def test_wrong_usage(args: list[str], message: str) -> None:
    done = CliRunner().invoke(main, ["consume", "-b", "127.0.0.1:1", *args])
    assert done.exit_code == 2
    assert message in done.stderr


def test_topics_and_brokers_that_are_not_there(shell: Shell, new_topic: NewTopic) -> None:
    topic = new_topic(prefix="flights")
    done = shell("consume", f"{topic}y")
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith(f"Error: unknown topic {topic}y; did you mean {topic}")
    assert (
        shell("consume", topic, "-p", "3").err
        == f"Error: topic {topic} has no partition 3: it has 1, counted from 0\n"
    )
    assert shell("consume", f"{topic}:0").err.endswith(f"for a partition: {topic} --partition 0\n")
    assert shell("consume", "--pattern", "nothing-.*").err == "Error: no topic matches nothing-.*\n"
    done = ottla(f"127.0.0.1:{free_port()}", "consume", topic, "--timeout", "1")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("Error: no bootstrap server answered")


def test_a_terminal_is_shown_no_control_characters(
    broker: BrokerProcess, shell: Shell, new_topic: NewTopic
) -> None:
    topic = filled(shell, new_topic(), b"k=\x1b[31mred\x9b \xc3\xa4", b"k=tab\there")
    code, text = Ottla(broker.bootstrap).at_terminal("consume", topic, "-e", colours=True)
    assert code == 0
    assert text == "\\x1b[31mred\\x9b ä\ntab\there\n"
    code, raw = Ottla(broker.bootstrap).at_terminal("consume", topic, "-e", "-F", "raw", colours=True)
    assert (code, raw) == (0, text)


@pytest.mark.parametrize(
    ("form", "show", "expected"),
    [
        ("text", ("headers",), b"\\xff\xc3\xa4=\\xfe\n"),
        ("csv", ("headers",), b"\\xff\xc3\xa4=\\xfe\n"),
        (
            "json",
            (),
            b'{"topic":"t","partition":0,"offset":0,"timestamp":1,"key":null,"value":null,'
            b'"headers":[{"name":"/8Ok","name_encoding":"base64","value":"/g==","value_encoding":"base64"}]}\n',
        ),
    ],
)
def test_a_header_whose_name_is_not_utf8(form: str, show: tuple[str, ...], expected: bytes) -> None:
    headers = ((b"\xff\xc3\xa4".decode(errors="surrogateescape"), b"\xfe"),)
    rows = Rows("t", 0, [0], [1], [None], [None], [headers], TimestampType.CREATE_TIME)
    assert make_formatter(form, Style(show), None).render(rows) == expected


def test_a_template_passes_bytes_on_as_they_are() -> None:
    data = bytes(range(256))
    headers = ((data[128:].decode(errors="surrogateescape"), data),)
    rows = Rows("t", 0, [0], [1], [data], [data], [headers], TimestampType.CREATE_TIME)
    render = make_formatter("text", Style(), "{key}|{value}|{headers}").render
    assert render(rows) == data + b"|" + data + b"|" + data[128:] + b"=" + data + b"\n"
    at_terminal = make_formatter("text", Style(at_terminal=True), "{value}").render(rows)
    assert at_terminal.startswith(b"\\x00\\x01")
    assert b"\\xff" in at_terminal


def test_a_topic_that_is_deleted_meanwhile(broker: BrokerProcess, shell: Shell, new_topic: NewTopic) -> None:
    topic = numbered(shell, new_topic(), 1)
    process = spawn(broker.bootstrap, "consume", topic, "-X", "metadata_max_age_ms=200")
    assert read_lines(process, 1) == [b"0"]
    assert shell("topics", "delete", topic, "--yes").code == 0
    done = finish(process)
    assert done.code == 1
    assert topic in done.err
    assert os.linesep not in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("beginning", "--from beginning"),
        ("latest", "--from end"),
        ("-5", "--from -5"),
        ("stored", "-g GROUP"),
    ],
)
def test_an_output_file_with_the_name_of_a_position_is_refused(given: str, said: str) -> None:
    wrong = Ottla("127.0.0.1:1").fails("consume", "t", "-o", given, code=2)
    assert f"use {said} to choose where to start" in wrong


async def test_offsets_whose_commit_ctrl_c_cancels_are_committed_again() -> None:
    console: Any = SimpleNamespace()
    wanted = ConsumeOptions(("t",), None, frozenset(), "g", LogPosition(BEGINNING), None, None)
    run = ConsumeRun(console, wanted, make_formatter("text", Style(), None), None)
    consumer, place = AsyncMock(Consumer), TopicPartition("t", 0)
    consumer.commit.side_effect = [asyncio.CancelledError, None]
    run.begin(place, 5)
    with pytest.raises(asyncio.CancelledError):
        await run.commit(consumer)
    for _ in range(2):
        await run.commit(consumer)
    assert consumer.commit.await_args_list == [call({place: OffsetAndMetadata(5)})] * 2
