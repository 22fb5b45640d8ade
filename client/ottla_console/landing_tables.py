"""The state that landing jobs leave in the metadata of their tables, read without Spark and without the pipeline.

Each commit of a job carries the job's state as JSON, under ``ottla`` (``ottla_pipeline/landing/tables/base.py``
writes it)::

    {"version": 1, "batch": 7, "run": "…",
     "ledger": {TOPIC: {"id": "…", "partitions": {"0": [[start, end, records, checksum, dead letters], …]}}},
     "notes": {…}}

A table of Parquet files has it in ``_ottla/*.json``, one file for each commit; a Delta table in the ``commitInfo`` of
``_delta_log/*.json``; an Iceberg table in the properties of its newest ``metadata/*.metadata.json``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from ottla_client.types import TopicPartition

MOST_TABLES: Final = 200
_MOST_ENTRIES: Final = 20_000
_DEEPEST: Final = 4
_MOST_BYTES: Final = 32 << 20
_LOOK_BACK: Final = 50
"""Commits of others, such as compactions, to pass over."""
_KEY: Final = "ottla"
_LOGS: Final = {"_ottla": "Parquet", "_delta_log": "Delta", "metadata": "Iceberg"}


@dataclass(frozen=True, slots=True)
class LandedState:
    """A job's state after a commit: by partition the next offset; records and dead letters of all."""

    batch: int
    run: str
    next: Mapping[TopicPartition, int]
    records: int
    dead: int
    pending: int
    """Dead letters' files that the last commit names: they are delivered after it."""
    gaps: int
    """Offsets between those that were landed: they were gone already, and the job was to go on without them."""


@dataclass(frozen=True, slots=True)
class LandingTable:
    """A table. ``at`` is when its last commit was made, in seconds since 1970; ``wrong`` why its state isn't known.

    ``before`` is the state before the last batch, if the log still has it.
    """

    path: str
    format: str
    at: float = 0.0
    state: LandedState | None = None
    before: LandedState | None = None
    takes_dead_letters_of: tuple[str, ...] = ()
    wrong: str = ""

    @property
    def topics(self) -> list[str]:
        return sorted({each.topic for each in self.state.next}) if self.state else []


@dataclass(slots=True)
class Found:
    """All tables below some folders, and what couldn't be read."""

    tables: list[LandingTable] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def look(folders: tuple[str, ...]) -> Found:
    """The tables in these folders, or that these are; it waits for the disk."""
    found = Found()
    left = _MOST_ENTRIES
    for folder in folders:
        waiting = [(Path(folder), 0)]
        while waiting:
            path, depth = waiting.pop()
            try:
                with os.scandir(path) as entries:
                    names = sorted(each.name for each in entries if each.is_dir())
            except OSError as error:
                if depth == 0:
                    found.remarks.append(f"{path} can't be read: {error.strerror}")
                continue
            left -= len(names) + 1
            if left < 0 or len(found.tables) >= MOST_TABLES:
                found.remarks.append(f"{folder} has more than can be shown: name the tables themselves")
                break
            kind = next((name for name in _LOGS if name in names and _is_log(path / name)), None)
            if kind is not None:
                found.tables.append(_table(path, kind))
            elif depth < _DEEPEST:
                waiting += [(path / name, depth + 1) for name in names if not name.startswith((".", "_"))]
    return found


def _is_log(path: Path) -> bool:
    return path.name != "metadata" or any(path.glob("*.metadata.json"))


def _table(path: Path, log: str) -> LandingTable:
    try:
        states = _READERS[log](path / log)
        newest = next(states, None)
        if newest is None:
            return LandingTable(str(path), _LOGS[log], wrong="no landing job has committed to it")
        at, state = newest
        # A commit between two batches, as a compaction's, has the same batch.
        before = next((each for _, each in states if each["batch"] != state["batch"]), None)
        return LandingTable(
            str(path),
            _LOGS[log],
            at,
            _landed(state),
            None if before is None else _landed(before),
            tuple(
                name.removeprefix("taken from ")
                for name in state["notes"]
                if str(name).startswith("taken from ")
            ),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        return LandingTable(str(path), _LOGS[log], wrong=f"its state can't be read: {reason}"[:300])


def _landed(state: Mapping[str, Any]) -> LandedState:
    """Raises ValueError, KeyError, TypeError, AttributeError."""
    ends: dict[TopicPartition, int] = {}
    records = dead = gaps = 0
    for topic, one in state["ledger"].items():
        for partition, ranges in one["partitions"].items():
            ends[TopicPartition(str(topic), int(partition))] = int(ranges[-1][1])
            records += sum(int(each[2]) for each in ranges)
            dead += sum(int(each[4]) for each in ranges)
            gaps += sum(int(b[0]) - int(a[1]) for a, b in pairwise(ranges))
    waiting = state["notes"].get("dead") or {}
    return LandedState(
        int(state["batch"]), str(state["run"]), ends, records, dead, len(waiting.get("files", ())), gaps
    )


def _read(path: Path) -> str:
    """Raises OSError, ValueError."""
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path.name} has more than {_MOST_BYTES:,} bytes")
    return path.read_text(encoding="utf-8")


def _numbered(log: Path, end: str) -> list[Path]:
    """The files of a log whose names begin with a number, the newest first."""
    names = [each for each in os.listdir(log) if each.endswith(end) and each[:1].isdigit()]
    return [log / name for name in sorted(names, reverse=True)]


def _of_parquet(log: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    for path in _numbered(log, ".json")[:_LOOK_BACK]:
        # A clean-up may remove old ones meanwhile.
        with suppress(FileNotFoundError):
            yield path.stat().st_mtime, json.loads(_read(path))["state"]


def _of_delta(log: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    for path in _numbered(log, ".json")[:_LOOK_BACK]:
        with suppress(FileNotFoundError):
            for line in _read(path).splitlines():
                if '"commitInfo"' not in line:
                    continue
                info = json.loads(line).get("commitInfo")
                state = info.get(_KEY) if isinstance(info, dict) else None
                if state is not None:
                    yield path.stat().st_mtime, json.loads(state) if isinstance(state, str) else state


def _of_iceberg(log: Path) -> Iterator[tuple[float, dict[str, Any]]]:
    for path in _numbered(log, ".metadata.json")[:_LOOK_BACK]:
        with suppress(FileNotFoundError):
            text = json.loads(_read(path))["properties"].get(_KEY)
            if text is not None:
                yield path.stat().st_mtime, json.loads(text)


_READERS: Final = {"_ottla": _of_parquet, "_delta_log": _of_delta, "metadata": _of_iceberg}
