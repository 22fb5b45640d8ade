"""How the tests are dealt to the processes of ``pytest -n``: long ones beside quick ones, and little of it twice.

Every process of pytest-xdist collects all tests, which takes as long as running a thousand of them, and each test goes
to any process. Here, with four processes or more, half of the processes collect and run long tests only, which
mostly wait for other processes. Each of the others also collects a share of the quick ones, which take all of a
processor, and runs these first. With fewer, or with other tests than all, each collects all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

_FEWEST = 4


class Share:
    """The tests that one process collects; ``is_quick`` says of a file whether its tests are."""

    def __init__(self, tests: Path, worker: Mapping[str, Any], is_quick: Callable[[str], bool]) -> None:
        number, count = int(worker["workerid"].removeprefix("gw")), int(worker["workercount"])
        # A process that stands in for one that died gets a number of its own, and collects everything.
        self.takes_all = count < _FEWEST or number >= count
        self._is_quick = is_quick
        self._quick: set[str] = set()
        if not self.takes_all:
            sharers = count - count // 2
            quick = (str(file) for file in sorted(tests.rglob("test_*.py")) if is_quick(str(file)))
            self._quick = {file for place, file in enumerate(quick) if place % sharers == number}

    def leaves_out(self, file: Path) -> bool:
        if self.takes_all or not file.match("test_*.py") or str(file) in self._quick:
            return False
        return self._is_quick(str(file))

    def rank(self, file: Path, rank: int) -> int:
        """A file's rank in this process: quick ones before all others."""
        return -10 if str(file) in self._quick else rank


class Scheduling(LoadFileScheduling):  # type: ignore[misc]
    """One process runs the tests of a unit, such as a file; it gets them in its own order of what it has collected."""

    def __init__(self, config: pytest.Config, log: Any, unit_of: Callable[[str], str]) -> None:
        super().__init__(config, log)
        self._unit_of = unit_of
        self._places: dict[Any, dict[str, list[int]]] = {}
        """By process and unit: the places of its tests in what the process has collected."""

    def _split_scope(self, nodeid: str) -> str:
        return self._unit_of(nodeid)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self.registered_collections[node] = list(collection)
        places = self._places[node] = {}
        for place, name in enumerate(collection):
            places.setdefault(self._unit_of(name), []).append(place)

    def schedule(self) -> None:
        if self.collection is None:
            found = dict.fromkeys(name for names in self.registered_collections.values() for name in names)
            self.collection = list(found)
            for name in self.collection:
                self.workqueue.setdefault(self._unit_of(name), {})[name] = False
            session = getattr(self.config.pluginmanager.get_plugin("dsession"), "_session", None)
            if session is not None:
                session.testscollected = len(self.collection)
        for node in self.nodes:
            self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        # A process begins a test only when it knows the next one.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) <= 2:
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
        node.send_runtest_some([place for place in self._places[node][unit] if tests[names[place]] is False])


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
