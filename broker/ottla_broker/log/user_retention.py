"""Retention policies of the user's own, from other packages: found by entry points, asked on a thread of their own.

A package offers a policy in the entry-point group ``ottla.retention``: an object that is called once at start with the
options of the settings ``ottla.retention.policy.<name>.…``, and returns the policy. It replaces retention.bytes and
retention.ms for the topics that ``ottla.retention.policy.<name>.topics`` matches. See docs/retention.md.

It is foreign code, so nothing depends on it: each policy has a thread of its own and works on a copy of what the log
knows; an answer has a deadline, and counts only if it is a number of segments that fits; whatever goes wrong is logged
with the policy and the log, once until that changes, and removes nothing.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.log.log import Log
from ottla_broker.log.retention import LogView, RetentionPolicy
from ottla_broker.tasks import TimeSlice

GROUP: Final = "ottla.retention"
ANSWER_SECONDS: Final = 60.0
"""How long a policy may take for one log."""
_SEGMENTS_A_LOOK: Final = 16
_PAUSE_SECONDS: Final = 0.02

_log = get_logger()


class PolicyError(Exception):
    """A policy can't be had; ``key`` is the setting that asks for it."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(f"{key}: {why}")


class PolicySettings(NamedTuple):
    """The settings of one policy. ``options`` are the other keys after its name, as text."""

    name: str
    topics: re.Pattern[str]
    options: Mapping[str, str]


class SegmentInfo(NamedTuple):
    """A segment as another thread may keep it: offsets to below ``end_offset``, ``size`` bytes."""

    base_offset: int
    end_offset: int
    size: int
    newest_ms: int

    def largest_timestamp(self) -> int:
        """The newest record's timestamp in ms, or without any when the file was last written."""
        return self.newest_ms


def load_policies(settings: Sequence[PolicySettings]) -> list[tuple[PolicySettings, RetentionPolicy]]:
    """Find and make the policies, in the order of their names. Raises PolicyError."""
    if not settings:
        return []
    from importlib.metadata import entry_points

    offered = {entry.name: entry for entry in entry_points(group=GROUP)}
    loaded = []
    for each in sorted(settings, key=lambda each: each.name):
        name = each.name
        key = f"ottla.retention.policy.{name}.topics"
        entry = offered.get(name)
        if entry is None:
            known = ", ".join(sorted(offered)) or "none"
            raise PolicyError(
                key, f"no installed package offers a retention policy {name!r} (installed: {known})"
            )
        try:
            policy = entry.load()(each.options)
        except Exception as error:
            raise PolicyError(
                key, f"the policy of {entry.value!r} can't be made: {type(error).__name__}: {error}"
            ) from error
        if not callable(policy):
            raise PolicyError(key, f"{entry.value!r} returned {policy!r}, which can't be called with a log")
        loaded.append((each, policy))
    return loaded


class _Failed(Exception):
    """The policy raised something, or its answer is of no use; the message says which."""


class UserPolicy:
    """A policy and its thread. The thread is a daemon: one that hangs doesn't keep the process from ending."""

    def __init__(self, settings: PolicySettings, policy: RetentionPolicy) -> None:
        self.name = settings.name
        self.topics = settings.topics
        self._policy = policy
        self._views: SimpleQueue[tuple[asyncio.Future[object], LogView]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._overdue: asyncio.Future[object] | None = None

    async def ask(self, view: LogView, clock: Clock) -> int:
        """The policy's answer about a log. Raises _Failed."""
        if self._overdue is not None and not self._overdue.done():
            raise _Failed("it hasn't answered about an earlier log yet")
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=f"retention {self.name}", daemon=True)
            self._thread.start()
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._views.put((future, view))
        try:
            async with clock.timeout(ANSWER_SECONDS):
                answer = await asyncio.shield(future)
        except TimeoutError:
            self._overdue = future
            future.add_done_callback(_ignore)
            raise _Failed(f"it hasn't answered within {ANSWER_SECONDS:.0f} s") from None
        if not isinstance(answer, int) or isinstance(answer, bool) or not 0 <= answer <= len(view.segments):
            raise _Failed(f"it returned {answer!r}, not a number from 0 to {len(view.segments)}")
        return answer

    def _work(self) -> None:
        """Answer questions, on the thread."""
        while True:
            future, view = self._views.get()
            answer: object = None
            failure: BaseException | None = None
            try:
                answer = self._policy(view)
            except BaseException as error:  # Also SystemExit, which would end the thread.
                failure = error
            try:
                future.get_loop().call_soon_threadsafe(_answer, future, answer, failure)
            except RuntimeError:
                return  # The broker has stopped.


def _answer(future: asyncio.Future[object], answer: object, failure: BaseException | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(answer)
    else:
        future.set_exception(_Failed(f"it raised {type(failure).__name__}: {failure}"))


def _ignore(future: asyncio.Future[object]) -> None:
    """Take the outcome of an answer that is no longer waited for."""
    if not future.cancelled():
        future.exception()


class UserRetention:
    """Asks the policies about the logs they are for. Owned by the loop thread."""

    def __init__(self, policies: Sequence[tuple[PolicySettings, RetentionPolicy]], clock: Clock) -> None:
        self._policies = [UserPolicy(*each) for each in policies]
        self._clock = clock
        # What was logged last of a policy and a log.
        self._complaints: dict[tuple[str, str], str] = {}

    def of(self, topic: str) -> list[UserPolicy]:
        """The policies for a topic."""
        return [each for each in self._policies if each.topics.fullmatch(topic)]

    async def retain(self, log: Log) -> int:
        """Remove what the policies of an open log's topic remove; how many segments. Raises KafkaError, OSError."""
        removed = 0
        for each in self.of(log.topic):
            # Under another cleanup policy segments go by compaction only, as in Kafka.
            if log.config.delete and log.failure is None:
                removed += await self._ask(each, log)
        return removed

    async def _ask(self, policy: UserPolicy, log: Log) -> int:
        truncations = log.truncations
        view, segments = await self._snapshot(log)
        try:
            count = await policy.ask(view, self._clock)
        except _Failed as failed:
            self._complain(policy, log, str(failed))
            return 0
        self._complaints.pop((policy.name, log.name), None)
        # A log that was truncated meanwhile may have other records at these offsets.
        if not count or log.truncations != truncations:
            return 0
        return log.delete_segments_below(segments[count - 1].end_offset, policy.name)

    async def _snapshot(self, log: Log) -> tuple[LogView, list[SegmentInfo]]:
        """Return what an open log knows, in a form that another thread may keep. Raises OSError."""
        view = log.view(self._clock.now_ms())
        ends = [*(each.base_offset for each in view.segments[1:]), view.end_offset]
        sizes = [each.size for each in view.segments]
        found: list[SegmentInfo] = []
        time_slice = TimeSlice(self._clock, _PAUSE_SECONDS)
        for segment, end, size in zip(view.segments, ends, sizes, strict=True):
            # The first time this reads from a file.
            found.append(SegmentInfo(segment.base_offset, end, size, segment.largest_timestamp()))
            if not len(found) % _SEGMENTS_A_LOOK and time_slice.is_over:
                await time_slice.next()
        return replace(view, segments=tuple(found)), found

    def _complain(self, policy: UserPolicy, log: Log, why: str) -> None:
        key = (policy.name, log.name)
        if self._complaints.get(key) == why:
            return
        self._complaints[key] = why
        _log.error(
            "retention policy failed, so it removes nothing",
            policy=policy.name,
            topic=log.topic,
            partition=log.partition,
            why=why,
        )
