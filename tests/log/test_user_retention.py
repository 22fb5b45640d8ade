"""Retention policies of the user's own: what they may decide, and that their failures remove nothing."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pytest
from tests.support.clock import FakeClock

from ottla_broker.background import Background
from ottla_broker.log import user_retention
from ottla_broker.log.config import LogConfig
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.manager import LogManager
from ottla_broker.log.retention import LogView, over_age
from ottla_broker.log.user_retention import (
    ANSWER_SECONDS,
    PolicyError,
    PolicySettings,
    UserRetention,
    load_policies,
)

from .batches import batch
from .conftest import NOW_MS

KEEP_ALL = LogConfig(retention_ms=-1, retention_bytes=-1, file_delete_delay_ms=0)
KEEP_NOTHING = LogConfig(retention_ms=1, retention_bytes=0, file_delete_delay_ms=0)


class Setup:
    """A log manager with policies, on a clock that tests move."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.background = Background(1)
        self.logs = LogManager([folder], LogConfig(), self.clock, self.background, Random(1), files=Files(64))

    async def load(self, **policies: Callable[[LogView], Any]) -> None:
        """``policies`` by name, for topics that begin with it."""
        await self.logs.load()
        settings = [
            (PolicySettings(name, re.compile(f"{name}.*"), {}), policy) for name, policy in policies.items()
        ]
        self.logs.user_retention = UserRetention(settings, self.clock)

    def log(self, topic: str, config: LogConfig = KEEP_NOTHING, segments: int = 5) -> Log:
        """A log with a record in each sealed segment, and none in the active one."""
        log = self.logs.create(topic, 0, bytes(range(16)), config).open()
        for number in range(segments):
            log.append(batch(1, timestamp=NOW_MS + number), leader_epoch=0, now_ms=NOW_MS, from_client=True)
            log.roll(NOW_MS)
        return log

    async def retain(self) -> None:
        """One check of retention."""
        self.clock.time += 60
        await self.logs.maintenance.retain()
        await self.logs.maintenance.retain_by_user()


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path / "data")
    yield made
    for folder in made.logs.folders:
        folder.unlock()
    made.logs.files.close()
    made.background.close()


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Mock:
    log = Mock()
    monkeypatch.setattr(user_retention, "_log", log)
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


async def test_it_replaces_time_and_size_for_its_topics(setup: Setup) -> None:
    await setup.load(own=lambda view: 2)
    mine, other = setup.log("own-1"), setup.log("other")
    await setup.retain()
    assert bases(mine) == [2, 3, 4, 5]
    assert mine.log_start_offset == 2
    assert bases(other) == [5]


async def test_it_sees_the_log(setup: Setup) -> None:
    seen: list[tuple[LogView, str]] = []

    def policy(view: LogView) -> int:
        seen.append((view, threading.current_thread().name))
        return 0

    await setup.load(own=policy)
    log = setup.log("own", segments=2)
    log.append(batch(3, timestamp=NOW_MS + 9), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    await setup.retain()
    [(view, thread)] = seen
    assert thread == "retention own"
    assert (view.topic, view.partition, view.log_start_offset, view.end_offset) == ("own", 0, 0, 5)
    assert (view.high_watermark, view.now_ms, view.config) == (5, setup.clock.now_ms(), log.config)
    assert [each[:2] for each in view.segments] == [(0, 1), (1, 2), (2, 5)]  # type: ignore[index]
    assert [each.largest_timestamp() for each in view.segments] == [NOW_MS, NOW_MS + 1, NOW_MS + 11]
    assert view.size == log.size
    assert over_age(view) == 3


async def test_what_delete_records_has_hidden_goes_whatever_it_says(setup: Setup) -> None:
    await setup.load(own=lambda view: 0)
    log = setup.log("own")
    log.advance_log_start_offset(3)
    await setup.retain()
    assert bases(log) == [3, 4, 5]


async def test_several_policies_are_asked_in_turn(setup: Setup) -> None:
    seen: list[int] = []

    def count(view: LogView) -> int:
        seen.append(len(view.segments))
        return 1

    await setup.load(o=count, ow=count)
    log = setup.log("own")
    await setup.retain()
    assert seen == [6, 5]
    assert bases(log) == [2, 3, 4, 5]


async def test_records_that_are_not_committed_stay(setup: Setup) -> None:
    await setup.load(own=lambda view: len(view.segments))
    log = setup.log("own")
    log.high_watermark = lambda: 3
    await setup.retain()
    assert bases(log) == [3, 4, 5]
    log.high_watermark = None
    await setup.retain()
    assert bases(log) == [5]
    await setup.retain()
    assert bases(log) == [5], "an empty active segment stays"


async def test_the_active_segment_goes_if_all_of_it_may(setup: Setup) -> None:
    await setup.load(own=lambda view: len(view.segments))
    log = setup.log("own", segments=1)
    log.append(batch(2, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    await setup.retain()
    assert bases(log) == [3]


async def test_a_topic_without_delete_is_not_asked_about(setup: Setup) -> None:
    policy = Mock(return_value=3)
    await setup.load(own=policy)
    log = setup.log("own", LogConfig(compact=True, delete=False))
    await setup.retain()
    assert len(log.segments) == 6
    policy.assert_not_called()


def leave() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        (lambda view: 1 // 0, "it raised ZeroDivisionError: integer division or modulo by zero"),
        (lambda view: leave(), "it raised SystemExit: 3"),
        (lambda view: None, "it returned None, not a number from 0 to 6"),
        (lambda view: "2", "it returned '2', not a number from 0 to 6"),
        (lambda view: True, "it returned True, not a number from 0 to 6"),
        (lambda view: -1, "it returned -1, not a number from 0 to 6"),
        (lambda view: 7, "it returned 7, not a number from 0 to 6"),
    ],
)
async def test_a_failure_removes_nothing_and_is_logged_once(
    setup: Setup, heard: Mock, policy: Callable[[LogView], Any], why: str
) -> None:
    await setup.load(good=lambda view: 2, bad=policy)
    bad, good = setup.log("bad"), setup.log("good")
    other = setup.log("other")
    await setup.retain()
    await setup.retain()
    assert len(bad.segments) == 6
    assert (bases(good), bases(other)) == ([4, 5], [5])
    heard.error.assert_called_once_with(
        "retention policy failed, so it removes nothing", policy="bad", topic="bad", partition=0, why=why
    )


async def test_a_failure_is_logged_again_after_a_success(setup: Setup, heard: Mock) -> None:
    answers = iter([None, None, 0, None])
    await setup.load(own=lambda view: next(answers))
    setup.log("own")
    for _ in range(4):
        await setup.retain()
    assert heard.error.call_count == 2


async def test_one_that_hangs_holds_up_nothing(setup: Setup, heard: Mock) -> None:
    release, asked = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(view: LogView) -> int:
        loop.call_soon_threadsafe(asked.set)
        release.wait(60)
        return 3

    await setup.load(bad=hang, good=lambda view: 2)
    first, second, good = setup.log("bad-1"), setup.log("bad-2"), setup.log("good")
    checking = asyncio.ensure_future(setup.retain())
    await asked.wait()
    await setup.clock.elapse(ANSWER_SECONDS)
    await checking
    assert bases(good) == [2, 3, 4, 5]
    assert (len(first.segments), len(second.segments)) == (6, 6)
    reasons = [call.kwargs["why"] for call in heard.error.call_args_list]
    assert reasons == ["it hasn't answered within 60 s", "it hasn't answered about an earlier log yet"]
    release.set()
    policy = setup.logs.user_retention
    assert policy is not None
    overdue = policy._policies[0]._overdue
    assert overdue is not None
    await overdue
    await setup.retain()
    assert (bases(first), bases(second)) == ([3, 4, 5], [3, 4, 5])


@pytest.mark.parametrize("what", ["truncated", "rolled", "deleted"])
async def test_a_log_that_changes_while_the_policy_thinks(setup: Setup, what: str) -> None:
    release, asked = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def think(view: LogView) -> int:
        loop.call_soon_threadsafe(asked.set)
        release.wait(60)
        return len(view.segments)

    await setup.load(own=think)
    log = setup.log("own", segments=3)
    log.append(batch(1, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS, from_client=True)
    checking = asyncio.ensure_future(setup.retain())
    await asked.wait()
    match what:
        case "truncated":
            log.truncate_to(2)
        case "rolled":
            log.append(batch(1, timestamp=NOW_MS), leader_epoch=0, now_ms=NOW_MS, from_client=True)
        case "deleted":
            log.delete_segments_below(2, "test")
    release.set()
    await checking
    expected = {"truncated": [0, 1, 2], "rolled": [3], "deleted": [4]}
    assert bases(log) == expected[what]


def offered(monkeypatch: pytest.MonkeyPatch, **objects: str) -> None:
    """Have installed packages offer these objects."""
    entries = [metadata.EntryPoint(name, value, "ottla.retention") for name, value in objects.items()]
    monkeypatch.setattr(metadata, "entry_points", lambda group: [e for e in entries if e.group == group])


def keep(options: dict[str, str]) -> Callable[[LogView], int]:
    return lambda view: int(options["count"])


def nothing(options: dict[str, str]) -> None:
    return None


def test_policies_are_found_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, keep=f"{__name__}:keep", other="no.such.module:x")
    topics = re.compile("t")
    [(settings, policy)] = load_policies([PolicySettings("keep", topics, {"count": "7"})])
    assert settings.topics is topics
    assert policy(Mock()) == 7
    assert load_policies([]) == []


@pytest.mark.parametrize(
    ("name", "why"),
    [
        (
            "missing",
            r"no installed package offers a retention policy 'missing' \(installed: keep, nothing, other\)",
        ),
        (
            "other",
            "the policy of 'no.such.module:x' can't be made: ModuleNotFoundError: No module named 'no'",
        ),
        ("keep", "can't be made: KeyError: 'count'"),
        ("nothing", "returned None, which can't be called with a log"),
    ],
)
def test_a_policy_that_cannot_be_made(monkeypatch: pytest.MonkeyPatch, name: str, why: str) -> None:
    offered(monkeypatch, keep=f"{__name__}:strict", other="no.such.module:x", nothing=f"{__name__}:nothing")
    with pytest.raises(PolicyError, match=rf"^ottla\.retention\.policy\.{name}\.topics: .*{why}"):
        load_policies([PolicySettings(name, re.compile("t"), {})])


def strict(options: dict[str, str]) -> Callable[[LogView], int]:
    count = int(options["count"])
    return lambda view: count
