"""What is shown of a job, from its batches alone: no Spark, and a clock that is set by hand."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from rich.console import Console as RichConsole
from tests.support.waiting import wait_for

from ottla_cli.shared.client_options import ClientOptions
from ottla_cli.shared.terminal import Console
from ottla_pipeline.commands.running import run_job, summary
from ottla_pipeline.landing import BatchDone, Landed
from ottla_pipeline.progress import Bars, JobProgress, JsonLines, Lines, Step, count, duration


def batch(number: int, rows: int = 1000, of: int = 4000, **changes: Any) -> BatchDone:
    """One of several batches of as many rows, of a topic with two partitions that are landed evenly."""
    start, end = number * rows // 2, (number + 1) * rows // 2
    given: dict[str, Any] = {
        "batch_id": number,
        "rows": rows,
        "bytes": rows * 100,
        "files": 2,
        "dead_letters": 0,
        "start": {"flights": {0: start, 1: start}},
        "end": {"flights": {0: end, 1: end}},
        "latest": {"flights": {0: of // 2, 1: of // 2}},
        "seconds": 0.5,
        "durations": {"read": 0.4, "commit": 0.1},
        "lag": max(of - (number + 1) * rows, 0),
    }
    return BatchDone(**{**given, **changes})


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_sums_rates_and_the_estimated_end() -> None:
    clock = Clock()
    progress = JobProgress(clock)
    assert (progress.rates, progress.seconds_left, progress.lag) == ((0.0, 0.0, 0.0), None, None)
    for number in range(2):
        clock.now += 2
        progress.add(batch(number))
    assert (progress.batches, progress.rows, progress.bytes, progress.files) == (2, 2000, 200_000, 4)
    assert progress.topics == {"flights": Step(2000, 4000)}
    assert progress.lag == 2000
    assert progress.rates == (500.0, 50_000.0, 500.0)
    assert progress.seconds_left == 4.0
    clock.now += 1
    assert progress.seconds_left == 3.0
    clock.now += 60
    assert progress.seconds_left == 0.0


def test_rates_are_those_of_late() -> None:
    clock = Clock()
    progress = JobProgress(clock)
    for number in range(100):
        clock.now += 1
        progress.add(batch(number, rows=100 if number < 50 else 1000, of=200_000))
    assert progress.rates[0] == 1000.0


def test_a_run_that_goes_on_amid_a_topic() -> None:
    """The bar is of this run, not of all that was landed before it."""
    progress = JobProgress(Clock())
    progress.add(batch(2))
    assert progress.topics == {"flights": Step(1000, 2000)}


def test_records_that_come_meanwhile() -> None:
    progress = JobProgress(Clock())
    progress.add(batch(0, of=1000))
    assert (progress.topics["flights"], progress.lag) == (Step(1000, 1000), 0)
    progress.add(batch(1, of=6000))
    assert (progress.topics["flights"], progress.lag) == (Step(2000, 6000), 4000)


def test_a_batch_of_some_partitions_keeps_the_others() -> None:
    progress = JobProgress(Clock())
    progress.add(batch(0))
    progress.add(batch(1, start={"flights": {1: 500}}, end={"flights": {1: 1000}}))
    assert progress.topics == {"flights": Step(1500, 4000)}


def test_where_the_logs_end_is_not_known() -> None:
    progress = JobProgress(Clock())
    progress.add(batch(0, latest={}, lag=None))
    assert (progress.topics["flights"], progress.lag) == (Step(1000, 1000), None)
    lines: list[str] = []
    Lines(lines.append).batch(batch(0, latest={}, lag=None))
    assert lines == ["batch 0: 1,000 rows (97.7 KiB), 2 files in 0.50 s, lag unknown"]


def test_a_line_a_batch() -> None:
    lines: list[str] = []
    with Lines(lines.append) as show:
        show.batch(batch(0))
        show.batch(batch(1, files=1, dead_letters=1))
        show.say("by the way")
    assert lines == [
        "batch 0: 1,000 rows (97.7 KiB), 2 files in 0.50 s, lag 3,000",
        "batch 1: 1,000 rows (97.7 KiB), 1 file, 1 dead letter in 0.50 s, lag 2,000",
        "by the way",
    ]


def test_json_a_batch() -> None:
    lines: list[str] = []
    with JsonLines(lines.append) as show:
        show.batch(batch(3))
        show.say("nothing that a machine reads")
    (line,) = lines
    assert json.loads(line) == {
        "batch_id": 3,
        "rows": 1000,
        "bytes": 100_000,
        "files": 2,
        "dead_letters": 0,
        "start": {"flights": {"0": 1500, "1": 1500}},
        "end": {"flights": {"0": 2000, "1": 2000}},
        "latest": {"flights": {"0": 2000, "1": 2000}},
        "seconds": 0.5,
        "durations": {"read": 0.4, "commit": 0.1},
        "skipped": False,
        "lag": 0,
        "rows_per_second": 2000,
    }


def drawn(bars: Bars, width: int = 80) -> str:
    terminal = RichConsole(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with terminal.capture() as capture:
        terminal.print(bars._draw())
    return capture.get()


def test_bars() -> None:
    clock = Clock()
    tasks: list[tuple[int, int] | None] = [(1, 4)]
    bars = Bars(JobProgress(clock), lambda: tasks[0])
    assert drawn(bars).split(maxsplit=1)[1].strip() == "batch 1: 1 of 4 tasks done"
    clock.now += 2
    bars.batch(batch(0, dead_letters=3))
    tasks[0] = None
    first, facts, last = drawn(bars).splitlines()
    assert first.startswith("flights ━━━━━━━━")
    assert first.split()[-4:] == ["25%", "1,000", "of", "4,000"]
    assert facts.strip() == "500 rows/s  48.8 KiB/s  lag 3,000  2 files  3 dead letters  0:06 left"
    assert last.split(maxsplit=1)[1].strip() == "1 batch done"
    assert max(map(len, drawn(bars, 60).splitlines())) <= 60


def test_a_bar_is_full_at_the_end_only() -> None:
    bars = Bars(JobProgress(Clock()), lambda: None)
    bars.batch(batch(0, rows=3998, of=4000))
    assert " 99%" in drawn(bars)
    bars.batch(batch(1, start={"flights": {0: 1999}}, end={"flights": {0: 2000, 1: 2000}}))
    assert "100%" in drawn(bars)


def test_many_topics_have_one_bar() -> None:
    bars = Bars(JobProgress(Clock()), lambda: None)
    names = [f"topic-{number}" for number in range(20)]
    ends = {name: {0: 10} for name in names}
    bars.batch(batch(0, start={name: {0: 0} for name in names}, end=ends, latest=ends))
    assert "20 topics" in drawn(bars)
    assert "200 of 200" in drawn(bars)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (8, "0:08"), (71.6, "1:12"), (3599.7, "1:00:00"), (90061, "25:01:01")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_counts() -> None:
    assert [count(number, "row") for number in (0, 1, 2000)] == ["0 rows", "1 row", "2,000 rows"]


def test_the_last_line() -> None:
    assert summary(Landed(), "lake/t", 6.25) == "nothing new for lake/t; Spark started in 6.2 s"
    landed = Landed(batches=1, rows=10, bytes=100, files=1, dead_letters=1, seconds=0.5)
    assert (
        summary(landed, "lake/t", 7)
        == "10 rows (100 B) to lake/t, 1 file, 1 dead letter, 1 batch in 0.5 s: 20 rows/s; Spark started in 7.0 s"
    )
    landed = Landed(batches=2, rows=7200, files=2, seconds=72)
    assert summary(landed, "lake/t", 7).startswith(
        "7,200 rows (0 B) to lake/t, 2 files, 2 batches in 1:12: 100 rows/s; "
    )


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """A job leaves signals as they were."""
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    assert before == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))


def run(
    job: Callable[[Callable[[BatchDone], None], threading.Event], Landed], *, as_json: bool = False
) -> None:
    spark: Any = None
    run_job(Console(ClientOptions("127.0.0.1:9092", 1.0), as_json=as_json), spark, "lake/t", job, 7)


def test_a_job_that_is_watched(capsys: pytest.CaptureFixture[str]) -> None:
    def job(reported: Callable[[BatchDone], None], stop: threading.Event) -> Landed:
        reported(batch(0))
        logging.getLogger("ottla_pipeline.landing").warning("new columns in lake/t: %s", "gate")
        return Landed(1, 1000, 100_000, 2, 0, seconds=0.5)

    run(job)
    assert capsys.readouterr().out.splitlines() == [
        "batch 0: 1,000 rows (97.7 KiB), 2 files in 0.50 s, lag 3,000",
        "new columns in lake/t: gate",
        "1,000 rows (97.7 KiB) to lake/t, 2 files, 1 batch in 0.5 s: 2,000 rows/s; Spark started in 7.0 s",
    ]
    run(job, as_json=True)
    assert [json.loads(line)["batch_id"] for line in capsys.readouterr().out.splitlines()] == [0]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_asks_the_job_to_end(capsys: pytest.CaptureFixture[str], sign: signal.Signals) -> None:
    def job(reported: Callable[[BatchDone], None], stop: threading.Event) -> Landed:
        os.kill(os.getpid(), sign)
        wait_for(stop.is_set, "the end")
        reported(batch(0))
        return Landed(1, 1000)

    with pytest.raises(SystemExit) as ended:
        run(job)
    assert ended.value.code == 128 + sign
    lines = capsys.readouterr().out.splitlines()
    assert "ending after the current batch; press Ctrl-C again to end at once" in lines
    assert lines[-1].startswith("1,000 rows")


def test_once_more_ends_at_once() -> None:
    def job(reported: Callable[[BatchDone], None], stop: threading.Event) -> Landed:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
        raise AssertionError("it went on")

    with pytest.raises(KeyboardInterrupt):
        run(job)
