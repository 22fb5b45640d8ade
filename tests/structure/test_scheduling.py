"""How tests are dealt to processes: each runs once, in a process that has collected it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.scheduling import Length, Scheduling, Share

FILES = {"a": 4, "b": 1, "c": 7, "long_a": 2, "long_b": 5, "longest_a": 3, "d": 1}


def length_of(file: str) -> Length:
    if "longest" in file:
        return Length.LONGEST
    return Length.LONG if "long" in file else Length.QUICK


def lengths(names: list[str]) -> set[Length]:
    return {length_of(name) for name in names}


class Node:
    """A process of pytest-xdist that runs its tests in the order in which they come."""

    def __init__(self, collected: list[str]) -> None:
        self.collected = collected
        self.shutting_down = False
        self.waiting: list[int] = []
        self.ran: list[str] = []

    def send_runtest_some(self, places: list[int]) -> None:
        assert not self.shutting_down
        self.waiting += places

    def shutdown(self) -> None:
        self.shutting_down = True

    def step(self, scheduling: Scheduling) -> bool:
        # It has to know what comes next.
        if not self.waiting or (len(self.waiting) == 1 and not self.shutting_down):
            return False
        place = self.waiting.pop(0)
        self.ran.append(self.collected[place])
        scheduling.mark_test_complete(self, place)
        return True


def shares(folder: Path, count: int) -> list[Share]:
    for name in FILES:
        (folder / f"test_{name}.py").touch()
    return [Share(folder, {"workerid": f"gw{n}", "workercount": count}, length_of) for n in range(count)]


def collected(share: Share, folder: Path) -> list[str]:
    files = [folder / f"test_{name}.py" for name in FILES]
    mine = [file for file in files if not share.leaves_out(file)]
    mine.sort(key=lambda file: (share.rank(file, int(length_of(str(file)) is not Length.LONGEST)), file))
    return [f"{file}::{n}" for file in mine for n in range(FILES[file.stem.removeprefix("test_")])]


@pytest.mark.parametrize("count", [2, 4, 5])
def test_each_test_runs_once(
    count: int, tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytestconfig.option, "tx", ["popen"] * count)
    scheduling = Scheduling(pytestconfig, None, lambda test: test.partition("::")[0])
    nodes = [Node(collected(share, tmp_path)) for share in shares(tmp_path, count)]
    for node in nodes:
        scheduling.add_node(node)
        scheduling.add_node_collection(node, node.collected)
    assert scheduling.collection_is_completed
    scheduling.schedule()
    while any(node.step(scheduling) for node in nodes):
        pass
    assert scheduling.tests_finished
    assert all(node.shutting_down and not node.waiting for node in nodes)
    every = sorted(f"{tmp_path}/test_{name}.py::{n}" for name, tests in FILES.items() for n in range(tests))
    assert sorted(test for node in nodes for test in node.ran) == every


def test_quick_tests_come_first_and_are_collected_once(tmp_path: Path) -> None:
    found = [collected(share, tmp_path) for share in shares(tmp_path, 5)]
    quick = [{name for name in names if length_of(name) is Length.QUICK} for names in found]
    assert [bool(names) for names in quick] == [True, True, False, False, False]
    assert not quick[0] & quick[1]
    assert lengths(found[0][:1]) == lengths(found[1][:1]) == {Length.QUICK}
    # The first process without quick tests begins with the longest; no process with quick tests has one of these.
    assert lengths(found[2][:1]) == {Length.LONGEST}
    assert lengths(found[0]) == lengths(found[1]) == {Length.QUICK, Length.LONG}
    assert not any(share.leaves_out(tmp_path) for share in shares(tmp_path, 5))
    late = Share(tmp_path, {"workerid": "gw5", "workercount": 5}, length_of)
    assert len(collected(late, tmp_path)) == sum(FILES.values())
    assert [share.takes_quick for share in (*shares(tmp_path, 3), late)] == [False] * 4
