"""The event log: held while the broker starts, written with the original times."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ottla_broker import events


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    out = io.StringIO()
    events.configure("info", out)
    yield out
    events.release()
    events.configure()


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_json_line_without_a_terminal(stream: io.StringIO) -> None:
    events.get_logger().info("topic created", topic="t", partitions=3)
    (line,) = lines(stream)
    assert line.pop("timestamp", "").endswith("Z")  # type: ignore[attr-defined]
    assert line == {"event": "topic created", "level": "info", "topic": "t", "partitions": 3}


def test_a_terminal_gets_text(stream: io.StringIO) -> None:
    events.configure("info", stream, json=False)
    events.get_logger().info("topic created", topic="t")
    assert "topic created" in stream.getvalue()
    assert "topic=t" in stream.getvalue()


def test_events_below_the_level_are_dropped(stream: io.StringIO) -> None:
    events.configure("warning", stream)
    events.get_logger().info("quiet")
    events.get_logger().warning("loud")
    assert [line["event"] for line in lines(stream)] == ["loud"]


def test_held_events_keep_their_order(stream: io.StringIO) -> None:
    log = events.get_logger()
    events.hold()
    log.info("one")
    log.info("two")
    assert lines(stream) == []
    events.release()
    log.info("three")
    assert [line["event"] for line in lines(stream)] == ["one", "two", "three"]
    times = [str(line["timestamp"]) for line in lines(stream)]
    assert times == sorted(times)


def test_a_warning_releases_held_events(stream: io.StringIO) -> None:
    log = events.get_logger()
    events.hold()
    log.info("one")
    log.warning("two")
    assert [line["event"] for line in lines(stream)] == ["one", "two"]


def test_the_number_of_held_events_is_limited(stream: io.StringIO) -> None:
    log = events.get_logger()
    events.hold()
    for _ in range(2000):
        log.info("again")
    assert len(lines(stream)) > 1000


def test_an_exception_has_its_traceback(stream: io.StringIO) -> None:
    try:
        raise ValueError("what happened")
    except ValueError:
        events.get_logger().exception("it failed")
    assert "what happened" in json.dumps(lines(stream))


def test_a_terminal_never_gets_control_characters_of_clients(stream: io.StringIO) -> None:
    events.configure("info", stream, json=False)
    events.get_logger().warning("connection closed", client_id="a\x1b[2Jb", listener="é")
    assert "client_id=a\\x1b[2Jb" in stream.getvalue()
    assert "listener=é" in stream.getvalue()
    events.get_logger().error("request failed", exc_info=KeyError("b\x1b[2J"), names=["c\x1b[2J"])
    assert "names=['c\\x1b[2J']" in stream.getvalue()
    assert "KeyError" in stream.getvalue()
    assert "\x1b[2J" not in stream.getvalue()


def test_long_texts_are_cut(stream: io.StringIO) -> None:
    events.get_logger().info("member joins", group="g" * 30_000)
    (line,) = lines(stream)
    assert line["group"] == "g" * 1_000 + "… (30000 characters)"
    events.get_logger().info("member joins", group="\0" * 30_000)
    assert lines(stream)[-1]["group"] == "\0" * 250 + "… (30000 characters)"


def test_what_strangers_can_cause_is_limited(stream: io.StringIO) -> None:
    now = 10.0
    limited = events.LimitedLogger(lambda: now)
    for number in range(1_000):
        limited.warning("connection closed", number=number)
    assert len(lines(stream)) == 100
    assert events.counts()["warning"] >= 1_000
    now += 1.0
    limited.info("connection closed", number=-1)
    assert lines(stream)[-1]["suppressed"] == 900


def test_threads_that_load_at_the_same_time() -> None:
    program = (
        "from concurrent.futures import ThreadPoolExecutor; from threading import Barrier; "
        "from ottla_broker import events; gate = Barrier(8); "
        "load = lambda _: (gate.wait(30), events.load()); "
        "print(len(list(ThreadPoolExecutor(8).map(load, range(8)))))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("8\n", "")
