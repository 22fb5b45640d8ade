"""Coordinators that are built when they are first needed."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from ottla_broker.coordinator.on_demand import OnDemand


class Listener:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, int]] = []

    def on_leader(self, partition: Any) -> None:
        self.heard.append(("leads", partition.topic, partition.partition))

    def on_stop(self, topic: str, partition: int) -> None:
        self.heard.append(("stops", topic, partition))


def led(topic: str, partition: int = 0) -> Any:
    return SimpleNamespace(topic=topic, partition=partition)


def made() -> tuple[OnDemand[Listener], list[Listener]]:
    every: list[Listener] = []

    def make() -> Listener:
        every.append(Listener())
        lazy.listeners.append(every[-1])
        return every[-1]

    lazy = OnDemand({"__offsets", "__state"}, ("json",), make)
    return lazy, every


async def test_it_is_made_once_and_by_partitions_of_its_topics_only() -> None:
    lazy, every = made()
    lazy.on_leader(led("flights"))
    lazy.on_stop("flights", 0)
    assert not lazy.is_needed
    lazy.on_leader(led("__state", 3))
    lazy.on_leader(led("__state", 4))
    lazy.on_leader(led("flights", 1))
    lazy.on_stop("__state", 4)
    assert lazy.is_needed
    assert lazy.made is None, "it is made between requests"
    await lazy.load()
    assert lazy.get() is lazy.made is every[0]
    lazy.on_stop("__offsets", 2)
    lazy.on_leader(led("flights", 1))
    assert every[0].heard == [("leads", "__state", 3), ("stops", "__offsets", 2), ("leads", "flights", 1)]
    assert len(every) == 1


async def test_who_cannot_wait_has_it_made_at_once() -> None:
    lazy, every = made()
    lazy.on_leader(led("__offsets"))
    assert lazy.get() is lazy.get() is every[0]
    assert every[0].heard == [("leads", "__offsets", 0)]
    await lazy.load()
    await lazy.close()
    assert len(every) == 1


async def test_a_broker_that_stops_makes_none() -> None:
    lazy, every = made()
    lazy.on_leader(led("__offsets"))
    await lazy.close()
    lazy.want()
    assert not every


async def test_one_that_cannot_be_made_fails_who_asks_for_it() -> None:
    lazy: OnDemand[Listener] = OnDemand({"__offsets"}, ("ottla_broker.no_such_module",), Listener)
    with pytest.raises(ModuleNotFoundError):
        await lazy.load()
    with pytest.raises(ModuleNotFoundError):
        await lazy.load()


def test_no_step_imports_many_modules() -> None:
    program = """
import sys, importlib, ottla_broker.server
from ottla_broker.coordinator.on_demand import GROUP_MODULES, TRANSACTION_MODULES
for name in (*GROUP_MODULES, *TRANSACTION_MODULES):
    before = len(sys.modules)
    importlib.import_module(name)
    print(len(sys.modules) - before, name)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    steps = [(int(count), name) for count, name in map(str.split, ran.stdout.splitlines())]
    assert max(steps) <= (12, "~"), "these hold the event loop: put a step before"
    assert min(steps) >= (1, ""), "this step isn't needed"
