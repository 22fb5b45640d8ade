"""A Delta table that a job lands in while another program changes it, and a model of what has to be in it."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.pipeline.landing.rounds import Run, produce

from ottla_pipeline.audit import audit
from ottla_pipeline.landing import Landing, compact, compaction
from ottla_pipeline.landing.errors import LandingError, TableChanged
from ottla_pipeline.landing.job_plan import table_of

Change = Callable[[], str]


class Refused(Exception):
    """The program doesn't do it, for example because of what the table is now: nothing has changed."""


class Program(ABC):
    """The other program: deltalake, or Spark."""

    @abstractmethod
    def delete(self, start: int, end: int) -> None: ...

    @abstractmethod
    def update(self, start: int, end: int, column: str, value: str) -> None: ...

    @abstractmethod
    def append(self, column: str, value: str) -> None:
        """A row of its own, without the columns that say where a row comes from."""

    @abstractmethod
    def restore(self, version: int) -> None: ...

    @abstractmethod
    def read(self, column: str) -> list[tuple[int | None, Any]]:
        """The offsets and values of all rows."""

    @abstractmethod
    def others(self, lake: Lake, rng: random.Random) -> dict[str, Callable[[], None]]:
        """Changes that this program alone can do, by name; they change the model themselves."""


@dataclass(frozen=True)
class Snapshot:
    """What a version of the table has."""

    rows: dict[int, Any]
    foreign: tuple[str | None, ...]
    position: int
    column: str


@dataclass
class Lake:
    """The table, what was sent, and the model."""

    job: Landing
    topic: str
    program: Program
    rng: random.Random
    now: Snapshot = field(default_factory=lambda: Snapshot({}, (), 0, "value"))
    sent: list[dict[str, str]] = field(default_factory=list)
    versions: dict[int, Snapshot] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    """What was done, for the report of a failure."""

    def steps(self, count: int) -> None:
        """Land first, then do ``count`` random things; after each, table and model agree."""
        self.land(None)
        for _ in range(count):
            way = self.rng.random()
            if way < 0.35:
                self.land(self.change if self.rng.random() < 0.4 else None)
            elif way < 0.5:
                self.compact(self.change if self.rng.random() < 0.5 else None)
            else:
                self.said.append(self.change())
            self.check()
        self.land(None)
        self.check()
        self.audit()

    def land(self, amid: Change | None) -> None:
        """Send some records and land them; ``amid`` happens between the batch's tasks and its commit."""
        first = len(self.sent)
        new = [{self.now.column: f"v{first + n}"} for n in range(self.rng.randint(1, 6))]
        produce(
            self.job.bootstrap_servers, self.topic, [{"id": first + n, **one} for n, one in enumerate(new)]
        )
        self.sent += new
        self.said.append(f"land {len(new)}")
        while True:
            job = replace(self.job, schema=f"id INT, {self.now.column} STRING")
            try:
                with Run(job, f"run {len(self.said)}") as one:
                    reports = one.read(one.plan())
                    if amid is not None:
                        self.said.append(f"amid: {amid()}")
                        amid = None
                    one.commit(reports, len(self.said))
                break
            except TableChanged as change:
                self.said.append(str(change))
        landed = {at: self.sent[at].get(self.now.column) for at in range(self.now.position, len(self.sent))}
        self.now = replace(self.now, rows=self.now.rows | landed, position=len(self.sent))
        self.note()

    def compact(self, amid: Change | None) -> None:
        """``amid`` happens between the files' rewriting and the commit, which then may be refused."""
        written = compaction._rewrite

        def rewrite(*args: Any) -> Any:
            nonlocal amid
            files = written(*args)
            if amid is not None:
                self.said.append(f"amid: {amid()}")
                amid = None
            return files

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "_rewrite", rewrite)
            try:
                self.said.append(f"compact: {compact(self.job.table)}")
            except LandingError as error:
                if "run it again" not in str(error):
                    raise
                self.said.append(f"compact: {error}")
        self.note()

    def change(self) -> str:
        """Something that the other program does; returns what."""
        start = self.rng.randint(0, max(self.now.position, 1))
        own = self.program.others(self, self.rng)
        # The newest version can't be restored.
        again = ["restore"] * (len(self.versions) > 1)
        what = self.rng.choice(["delete", "update", "append", *again, *own])
        try:
            return self._change(what, start, start + self.rng.randint(1, 5), own)
        except Refused as error:
            return f"{what} refused: {error}"

    def _change(self, what: str, start: int, end: int, own: dict[str, Callable[[], None]]) -> str:
        column, text = self.now.column, f"u{len(self.said)}"
        if what == "delete":
            self.program.delete(start, end)
            kept = {at: value for at, value in self.now.rows.items() if not start <= at < end}
            self.now = replace(self.now, rows=kept)
        elif what == "update":
            self.program.update(start, end, column, text)
            changed = {at: text for at in self.now.rows if start <= at < end}
            self.now = replace(self.now, rows=self.now.rows | changed)
        elif what == "append":
            self.program.append(column, text)
            self.now = replace(self.now, foreign=(*self.now.foreign, text))
        elif what == "restore":
            newest = deltalake.DeltaTable(self.job.table).version()
            version = self.rng.choice([one for one in self.versions if one < newest])
            self.program.restore(version)
            self.now = self.versions[version]
            what = f"restore to {version}"
        else:
            own[what]()
        self.note()
        return f"{what} {start} {end}"

    def note(self) -> None:
        self.versions[deltalake.DeltaTable(self.job.table).version()] = self.now

    def check(self) -> None:
        """The model, the program and Ottla agree on what is in the table."""
        wanted = sorted([*self.now.rows.items(), *((None, one) for one in self.now.foreign)], key=repr)
        column = self.now.column
        table = table_of(self.job)
        table.refresh()
        rows = table.scan(["_offset", column]).read_all()
        ours = list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))
        for who, found in (("Ottla", ours), ("the other program", self.program.read(column))):
            assert sorted(found, key=repr) == wanted, f"{who} after {self.said}"

    def audit(self) -> None:
        found = audit(self.job.bootstrap_servers, table_of(self.job))
        [one] = found.partitions
        gone = sorted(set(range(self.now.position)) - set(self.now.rows))
        removed = [at for start, end in one.removed for at in range(start, end)]
        assert (removed, list(one.missing), one.surplus) == (gone, [], 0), self.said
        assert found.clean, self.said
        assert found.foreign == len(self.now.foreign), self.said


class Deltalake(Program):
    def __init__(self, place: str) -> None:
        self._place = place

    def _table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._place)

    def delete(self, start: int, end: int) -> None:
        self._table().delete(f"_offset >= {start} and _offset < {end}")

    def update(self, start: int, end: int, column: str, value: str) -> None:
        self._table().update({column: f"'{value}'"}, predicate=f"_offset >= {start} and _offset < {end}")

    def append(self, column: str, value: str) -> None:
        deltalake.write_deltalake(
            self._place, pa.table({column: [value]}), mode="append", schema_mode="merge"
        )

    def restore(self, version: int) -> None:
        self._table().restore(version)

    def read(self, column: str) -> list[tuple[int | None, Any]]:
        rows = pa.table(self._table().scan(columns=["_offset", column]))
        return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))

    def others(self, lake: Lake, rng: random.Random) -> dict[str, Callable[[], None]]:
        return {
            "optimize": lambda: self._done(self._table().optimize.compact()),
            "z-order": lambda: self._done(self._table().optimize.z_order(["_offset"])),
            "vacuum": lambda: self._done(self._table().vacuum(dry_run=False)),
            "checkpoint": lambda: self._table().create_checkpoint(),
            "add a column": self._add_column,
            "merge": lambda: self._merge(lake, rng),
        }

    def _done(self, answer: object) -> None:
        """What it answers is of no interest."""

    def _add_column(self) -> None:
        kind = deltalake.Field(f"extra{self._table().version()}", deltalake.schema.PrimitiveType("string"))
        self._table().alter.add_columns([kind])

    def _merge(self, lake: Lake, rng: random.Random) -> None:
        """Delete one, and change one."""
        if len(lake.now.rows) < 2:
            return
        gone, kept = rng.sample(sorted(lake.now.rows), 2)
        source = pa.table({"at": pa.array([gone, kept], pa.int64())})
        (
            self._table()
            .merge(source, "target._offset = source.at", source_alias="source", target_alias="target")
            .when_matched_delete(f"source.at = {gone}")
            .when_matched_update({lake.now.column: "'merged'"})
            .execute()
        )
        rows = {at: value for at, value in lake.now.rows.items() if at != gone} | {kept: "merged"}
        lake.now = replace(lake.now, rows=rows)
