"""How the tests are dealt to the processes of ``pytest -n``: long ones beside quick ones, and little of it twice.

Every process of pytest-xdist collects all tests, which takes as long as running a thousand of them, and each test goes
to any process. Here, with four processes or more, most of the processes collect and run long tests only, which mostly
wait for other processes. Each of the others collects a share of the quick ones, which take all of a processor, and
runs these first; then it helps with the long tests, all but the longest. Its priority is lower, so that the quick
tests fill the time that long ones leave. With fewer processes, or with other tests than all, each collects all that
there is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_FEWEST = 4
_NICER = 3
"""By how much the priority of the processes with quick tests is lower."""


class Length(Enum):
    """How long the tests of a file take."""

    QUICK = auto()
    LONG = auto()
    LONGEST = auto()


class Share:
    """The tests that one process collects; ``length_of`` says of a file how long its tests take."""

    def __init__(self, tests: Path, worker: Mapping[str, Any], length_of: Callable[[str], Length]) -> None:
        number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
        # A process that stands in for one that died gets a number of its own, and collects everything.
        self.takes_all = count < _FEWEST or number >= count
        sharers = max(2, count * 2 // 5)
        self.takes_quick = not self.takes_all and number < sharers
        self._length_of = length_of
        self._quick: set[str] = set()
        if self.takes_quick:
            files = (str(file) for file in sorted(tests.rglob("test_*.py")))
            quick = (file for file in files if length_of(file) is Length.QUICK)
            self._quick = {file for place, file in enumerate(quick) if place % sharers == number}

    def leaves_out(self, file: Path) -> bool:
        if self.takes_all or not file.match("test_*.py"):
            return False
        length = self._length_of(str(file))
        if length is Length.QUICK:
            return str(file) not in self._quick
        return length is Length.LONGEST and self.takes_quick

    def rank(self, file: Path, rank: int) -> int:
        """A file's rank in this process: quick ones before all others."""
        return -10 if str(file) in self._quick else rank

    def give_way(self) -> None:
        """Lower this process's priority, and that of all it starts, if it has quick tests."""
        if self.takes_quick:
            os.nice(_NICER)


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """One process runs the tests of a unit, such as a file; it gets them in its own order of what it has collected.

    It begins as soon as it has collected its tests.
    """

    def __init__(self, config: pytest.Config, log: Any, unit_of: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._unit_of = unit_of
        self._units: set[str] = set()
        self._unit_at: dict[Any, list[str]] = {}
        """By process: the units of the tests in the order in which it has collected these."""
        self._places: dict[Any, dict[str, list[int]]] = {}
        """By process and unit: the places of its tests in what the process has collected."""
        self._left: dict[Any, int] = {}
        """By process: how many tests it has been given and not run."""

    def _split_scope(self, nodeid: str) -> str:
        return self._unit_of(nodeid)

    @property
    def tests_finished(self) -> bool:
        return (
            self.collection_is_completed
            and not self.workqueue
            and all(self._left[node] < 2 for node in self.assigned_work)
        )

    def add_node(self, node: Any) -> None:
        super().add_node(node)
        self._left[node] = 0

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.registered_collections[node] = list(collection)
        unit_at = self._unit_at[node] = [self._unit_of(name) for name in collection]
        places = self._places[node] = {}
        for place, unit in enumerate(unit_at):
            places.setdefault(unit, []).append(place)
        for unit in places.keys() - self._units:
            self.workqueue[unit] = {collection[place]: False for place in places[unit]}
        self._units |= places.keys()
        self._reschedule(node)

    def schedule(self) -> None:
        if self.collection is None:
            found = dict.fromkeys(name for names in self.registered_collections.values() for name in names)
            self.collection = list(found)
            session = getattr(self.config.pluginmanager.get_plugin("dsession"), "_session", None)
            if session is not None:
                session.testscollected = len(self.collection)
        for node in self.nodes:
            self._reschedule(node)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        name, unit = self.registered_collections[node][item_index], self._unit_at[node][item_index]
        self.assigned_work[node][unit][name] = True
        self._left[node] -= 1
        self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        # A process begins a test only when it knows the next one.
        while not node.shutting_down and self._left[node] <= 2:
            unit = next((unit for unit in self._places[node] if unit in self.workqueue), None)
            if unit is None:
                node.shutdown()
                return
            self._assign(node, unit)

    def _assign(self, node: Any, unit: str) -> None:
        tests = self.workqueue.pop(unit)
        # What is done needs no counting again.
        left = {each: work for each, work in self.assigned_work[node].items() if not all(work.values())}
        self.assigned_work[node] = {**left, unit: tests}
        names = self.registered_collections[node]
        places = [place for place in self._places[node][unit] if tests[names[place]] is False]
        self._left[node] += len(places)
        node.send_runtest_some(places)


def report_less(config: pytest.Config) -> None:
    """In a process of ``-n``: don't report what the main process doesn't show, such as that a fixture has worked.

    Packing and unpacking each of these reports takes about as long as a quick test.
    """
    if config.getoption("durations", None) or config.getoption("xmlpath", None):
        return
    (worker,) = (each for each in config.pluginmanager.get_plugins() if hasattr(each, "sendevent"))
    send, with_starts = worker.sendevent, config.option.verbose > 0

    def send_news(name: str, **about: Any) -> None:
        if name == "testreport":
            report = about["data"]
            if report["outcome"] == "passed" and report["when"] != "call":
                return
        if with_starts or name != "logstart":
            send(name, **about)

    worker.sendevent = send_news
