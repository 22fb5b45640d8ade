"""How tests are dealt to processes: each runs once, in a process that has collected it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.scheduling import Scheduling, Share

FILES = {"a": 4, "b": 1, "c": 7, "long_a": 2, "long_b": 5, "d": 1}


def is_quick(file: str) -> bool:
    return "long" not in file


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
    return [Share(folder, {"workerid": f"gw{n}", "workercount": count}, is_quick) for n in range(count)]


def collected(share: Share, folder: Path) -> list[str]:
    files = [folder / f"test_{name}.py" for name in FILES]
    mine = [file for file in files if not share.leaves_out(file)]
    mine.sort(key=lambda file: (share.rank(file, int(is_quick(str(file)))), file))
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
    quick = [{name for name in collected(share, tmp_path) if is_quick(name)} for share in shares(tmp_path, 4)]
    assert [bool(names) for names in quick] == [True, True, False, False]
    assert not quick[0] & quick[1]
    first = collected(shares(tmp_path, 4)[0], tmp_path)
    assert is_quick(first[0])
    assert not is_quick(first[-1])
    assert not any(share.leaves_out(tmp_path) for share in shares(tmp_path, 4))
    late = Share(tmp_path, {"workerid": "gw4", "workercount": 4}, is_quick)
    assert len(collected(late, tmp_path)) == sum(FILES.values())
