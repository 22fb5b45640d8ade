"""Random changes that other programs make to a table, with landing and compaction between, and a model to compare with.

The model knows for each row, by the record's offset, the value of each column: by a key that stays, whatever the column
is called. A subclass of :class:`Program` makes the changes, as one program can.
"""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.pipeline.landing.rounds import produce, run

from ottla_pipeline.audit import audit
from ottla_pipeline.landing import Landing, compact
from ottla_pipeline.landing.job_plan import table_of

Row = dict[str, Any]
WIDER = {"INT": "BIGINT", "FLOAT": "DOUBLE"}
KINDS = ("INT", "BIGINT", "FLOAT", "DOUBLE", "STRING")


@dataclass
class Column:
    key: int
    """The same as long as it is the same column."""
    name: str
    """``s.x`` is the field x of the struct s."""
    kind: str


@dataclass
class Model:
    columns: list[Column] = field(default_factory=list)
    rows: dict[int, dict[int, Any]] = field(default_factory=dict)
    """By offset, values by column key."""
    foreign: int = 0
    """Rows that no record is of."""
    landed: int = 0
    """The next offset."""


class Program(ABC):
    """Another program, which changes the table. Names of fields in structs have a dot."""

    can: tuple[str, ...] = (
        "rename",
        "drop",
        "add",
        "widen",
        "delete",
        "update",
        "rollback",
        "insert",
        "rewrite",
        "spec",
    )

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    def may_drop(self, name: str) -> bool:
        """Whether the program, and compaction after it, can do that."""
        return True

    @abstractmethod
    def drop(self, name: str) -> None: ...

    @abstractmethod
    def add(self, name: str, kind: str) -> None: ...

    @abstractmethod
    def widen(self, name: str, kind: str) -> None: ...

    @abstractmethod
    def delete(self, offsets: list[int]) -> None: ...

    @abstractmethod
    def update(self, offsets: list[int], name: str, value: Any) -> None: ...

    @abstractmethod
    def version(self) -> Any:
        """The table's version now, for :meth:`rollback`."""

    @abstractmethod
    def rollback(self, version: Any) -> None:
        """Make the rows those of a version; columns stay."""

    @abstractmethod
    def insert(self) -> None:
        """Add a row that has no value in any column."""

    @abstractmethod
    def rewrite(self) -> None:
        """Put the same rows into other files."""

    @abstractmethod
    def spec(self, rng: random.Random, names: list[str]) -> None:
        """Partition new rows in another way, by one of these columns or none."""

    @abstractmethod
    def read(self, names: list[str]) -> list[Row]:
        """Rows, of the columns ``_offset`` and those named."""


class Sequence:
    """One table, one topic of one partition, and a random sequence of changes. The seed decides everything."""

    def __init__(self, landing: Landing, program: Callable[[], Program], seed: int) -> None:
        self._rng = random.Random(seed)
        self._landing = landing
        self._records: list[Row] = []
        self._keys = 0
        self._used: dict[str, set[str]] = {}
        """The kinds of the values that records have had by each name: after a roll-back they land again."""
        self._versions: list[tuple[Any, Model]] = []
        self.model = Model()
        self.done: list[str] = []
        for name, kind in (("a", "INT"), ("b", "STRING"), ("c", "FLOAT"), ("s.x", "INT"), ("s.y", "STRING")):
            self._column(name, kind)
        self._land()
        self._program = program()
        self._versions.append((self._program.version(), copy.deepcopy(self.model)))

    def step(self) -> None:
        """A change, a batch or a compaction; then everything is compared."""
        what = self._rng.choice((*self._program.can, "land", "land", "compact"))
        self.done.append(what)
        getattr(self, f"_{what}")()
        self.check()
        if what in ("land", "compact", "delete", "update", "insert", "rewrite"):
            self._versions.append((self._program.version(), copy.deepcopy(self.model)))

    def check(self) -> None:
        names = [one.name for one in self.model.columns]
        wanted = sorted(
            [offset, *(row.get(one.key) for one in self.model.columns)]
            for offset, row in self.model.rows.items()
        )
        for reader, rows in (("its own library", self._program.read(names)), ("Ottla", self._read(names))):
            found = [[row["_offset"], *(row[name] for name in names)] for row in rows]
            ours = sorted(row for row in found if row[0] is not None)
            assert ours == wanted, (reader, self.done, names)
            assert len(found) - len(ours) == self.model.foreign, (reader, self.done)
        (report,) = audit(self._landing.bootstrap_servers, table_of(self._landing)).partitions
        lacks = [*report.removed, *report.missing]
        gone = {offset for start, end in lacks for offset in range(start, end)}
        assert gone == set(range(self.model.landed)) - self.model.rows.keys(), self.done
        assert not report.surplus, self.done
        assert not report.strange, self.done

    def _read(self, names: list[str]) -> list[Row]:
        table = table_of(self._landing)
        table.refresh()
        found = table.scan(["_offset", *dict.fromkeys(name.partition(".")[0] for name in names)]).read_all()
        return [
            {"_offset": row["_offset"], **{name: value_of(row, name) for name in names}}
            for row in found.to_pylist()
        ]

    def _column(self, name: str, kind: str) -> None:
        self._keys += 1
        self.model.columns.append(Column(self._keys, name, kind))

    def _some(self) -> Column:
        return self._rng.choice(self.model.columns)

    def _value(self, kind: str) -> Any:
        if self._rng.random() < 0.1:
            return None
        number = self._rng.randrange(1000)
        values = {"STRING": str(number), "BIGINT": number << 40, "FLOAT": number / 4, "DOUBLE": number / 10}
        return values.get(kind, number)

    def _land(self) -> None:
        """A batch of records by the columns as they are called now; also those that were rolled back."""
        new = []
        for _ in range(self._rng.randrange(1, 5)):
            record: Row = {}
            for one in self.model.columns:
                self._used.setdefault(one.name, set()).add(one.kind)
                outer, _, inner = one.name.rpartition(".")
                (record.setdefault(outer, {}) if outer else record)[inner] = self._value(one.kind)
            new.append(record)
        produce(self._landing.bootstrap_servers, self._landing.topics[0], new)
        self._records += new
        done = run(self._with_schema())
        assert done is not None
        for offset in range(self.model.landed, len(self._records)):
            values = {
                one.key: self._as(value_of(self._records[offset], one.name), one.kind)
                for one in self.model.columns
            }
            self.model.rows[offset] = values
        self.model.landed = len(self._records)

    def _as(self, value: Any, kind: str) -> Any:
        return float(value) if value is not None and kind in ("FLOAT", "DOUBLE") else value

    def _with_schema(self) -> Landing:
        from dataclasses import replace

        fields: dict[str, list[str]] = {}
        for one in self.model.columns:
            outer, _, inner = one.name.rpartition(".")
            fields.setdefault(outer or inner, []).append(
                f"{inner} {one.kind}" if not outer else f"{inner}: {one.kind}"
            )
        ddl = [
            f"{name} STRUCT<{', '.join(inner)}>" if ":" in inner[0] else inner[0]
            for name, inner in fields.items()
        ]
        return replace(self._landing, schema=", ".join(ddl))

    def _compact(self) -> None:
        compact(self._landing.table, self._landing.format, catalog=self._landing.catalog)

    def _new_name(self, beside: str, kind: str) -> str:
        """A name that no column has, for a column of a kind; often one that another had before."""
        outer, dot, _ = beside.rpartition(".")
        taken = {one.name for one in self.model.columns}
        choices = [
            name
            for name in (f"{outer}{dot}{letter}" for letter in "abcdefghijklmnop")
            if name not in taken and all(kind in (used, WIDER.get(used)) for used in self._used.get(name, ()))
        ]
        again = [name for name in choices if name in self._used]
        return self._rng.choice(again if again and self._rng.random() < 0.6 else choices)

    def _rename(self) -> None:
        one = self._some()
        new = self._new_name(one.name, one.kind)
        self._program.rename(one.name, new)
        one.name = new

    def _drop(self) -> None:
        one = self._some()
        outer = one.name.rpartition(".")[0]
        beside = [each for each in self.model.columns if each.name.rpartition(".")[0] == outer]
        if len(beside) < 2 or not self._program.may_drop(one.name):
            return
        self._program.drop(one.name)
        self.model.columns.remove(one)

    def _add(self) -> None:
        kind = self._rng.choice(KINDS)
        name = self._new_name(self._some().name, kind)
        self._program.add(name, kind)
        self._column(name, kind)

    def _widen(self) -> None:
        one = self._some()
        if one.kind in WIDER:
            self._program.widen(one.name, WIDER[one.kind])
            one.kind = WIDER[one.kind]

    def _offsets(self) -> list[int]:
        there = sorted(self.model.rows)
        return self._rng.sample(there, min(len(there), self._rng.randrange(1, 4)))

    def _delete(self) -> None:
        offsets = self._offsets()
        if offsets:
            self._program.delete(offsets)
        for offset in offsets:
            del self.model.rows[offset]

    def _update(self) -> None:
        flat = [one for one in self.model.columns if "." not in one.name]
        if not flat or not self.model.rows:
            return
        one, offsets = self._rng.choice(flat), self._offsets()
        value = self._as(self._value(one.kind), one.kind)
        self._program.update(offsets, one.name, value)
        for offset in offsets:
            self.model.rows[offset][one.key] = value

    def _rollback(self) -> None:
        at = self._rng.randrange(max(0, len(self._versions) - 4), len(self._versions))
        version, then = self._versions[at]
        self._program.rollback(version)
        del self._versions[at + 1 :]
        self.model.rows, self.model.foreign = copy.deepcopy(then.rows), then.foreign
        self.model.landed = then.landed

    def _insert(self) -> None:
        self._program.insert()
        self.model.foreign += 1

    def _rewrite(self) -> None:
        self._program.rewrite()

    def _spec(self) -> None:
        self._program.spec(
            self._rng,
            [
                one.name
                for one in self.model.columns
                if "." not in one.name and one.kind in ("INT", "BIGINT", "STRING")
            ],
        )


def value_of(row: Row, name: str) -> Any:
    """A column's value, or that of a field in a struct."""
    found: Any = row
    for part in name.split("."):
        found = None if found is None else found.get(part)
    return found
