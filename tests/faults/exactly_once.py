"""Checks that a topic was transformed into another one exactly once, or that transactions are as clients say. Pure.

The anomalies, and what each means::

    lost            the group has committed a record's offset, but nothing was written for it; or a client says that a
                    transaction is committed, but none of it is there
    doubled         a record was transformed twice, or is there twice
    aborted         a record of an aborted transaction was read
    torn            only a part of a transaction was read
    foreign         a record that no transformer has written
    hanging         a transaction is open, though all producers have ended
    behind          the group has not read the source to its end
    disordered      the transactions of an id, or the records of one, are in another order than it wrote them
    differs         two readers, or one now and then, have different records at one offset
    went back       a group's offset is below one that was committed
    disturbed       a step of a producer that has not been replaced failed as if it had been, or as if it had lost count
    not fenced      a step of a replaced producer succeeded
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Anomaly(NamedTuple):
    """One anomaly. ``kind`` as in the table above, or in that of ``checker.py``."""

    kind: str
    text: str


class Output(NamedTuple):
    """A record that a transformer has written.

    ``transaction`` is unique, and has ``size`` records; this is the one with the number ``index``, made of the source's
    record at ``partition`` and ``offset``. ``commit``: what the transformer wanted.
    """

    transaction: str
    size: int
    index: int
    commit: bool
    partition: int
    offset: int

    @classmethod
    def decode(cls, data: bytes | None) -> Output | None:
        """None for a value that no transformer has written."""
        parts = (data or b"").decode(errors="replace").split("/")
        if len(parts) != 6 or parts[3] not in ("commit", "abort"):
            return None
        numbers = [parts[1], parts[2], parts[4], parts[5]]
        if not all(number.isdigit() for number in numbers):
            return None
        size, index, partition, offset = map(int, numbers)
        return cls(parts[0], size, index, parts[3] == "commit", partition, offset)


@dataclass
class Transformed:
    """What is there in the end.

    Attributes:
        source: the end of each partition of the source.
        committed: the group's offsets in the source.
        read: the values that a reader of committed records gets of the target.
        hidden: of the target, the partitions that have records behind the last stable offset, with both offsets.
    """

    source: Mapping[int, int] = field(default_factory=dict)
    committed: Mapping[int, int] = field(default_factory=dict)
    read: Sequence[bytes | None] = ()
    hidden: Mapping[int, tuple[int, int]] = field(default_factory=dict)


def check_transformed(end: Transformed) -> list[Anomaly]:
    """All anomalies, by kind."""
    outputs = [Output.decode(value) for value in end.read]
    foreign = [value for value, output in zip(end.read, outputs, strict=True) if output is None]
    found = [output for output in outputs if output is not None]
    return [
        *(Anomaly("foreign", repr(value)) for value in foreign),
        *_places(end, found),
        *_transactions(found),
        *(
            Anomaly("hanging", f"partition {partition} is stable to {stable} of {high}")
            for partition, (stable, high) in end.hidden.items()
        ),
        *(
            Anomaly("behind", f"partition {partition} is read to {end.committed.get(partition, 0)} of {high}")
            for partition, high in end.source.items()
            if end.committed.get(partition, 0) < high
        ),
    ]


def _places(end: Transformed, outputs: Sequence[Output]) -> Iterator[Anomaly]:
    by_place: dict[tuple[int, int], list[str]] = defaultdict(list)
    for output in outputs:
        by_place[output.partition, output.offset].append(output.transaction)
    for (partition, offset), transactions in by_place.items():
        if len(transactions) > 1:
            yield Anomaly("doubled", f"{partition}:{offset} by {', '.join(transactions)}")
    for partition, committed in end.committed.items():
        for offset in range(committed):
            if (partition, offset) not in by_place:
                yield Anomaly("lost", f"{partition}:{offset}, though the group has committed {committed}")


def _transactions(outputs: Sequence[Output]) -> Iterator[Anomaly]:
    by_transaction: dict[str, list[Output]] = defaultdict(list)
    for output in outputs:
        by_transaction[output.transaction].append(output)
    for transaction, each in by_transaction.items():
        if not each[0].commit:
            yield Anomaly("aborted", f"{len(each)} records of {transaction}")
        numbers = Counter(output.index for output in each)
        missing = [number for number in range(each[0].size) if number not in numbers]
        if missing:
            yield Anomaly(
                "torn", f"{transaction} lacks {len(missing)} of {each[0].size} records: {missing[:5]}"
            )


class Ended(NamedTuple):
    """A transaction, as its client says. ``outcome``: commit, abort or unknown; ``offset``: -1 without one."""

    name: str
    transaction: str
    size: int
    offset: int
    outcome: str


_DISTURBED = re.compile(r"OUT_OF_ORDER|OutOfOrder|FENCED|Fenced|EPOCH|Epoch|UNKNOWN_PRODUCER|UnknownProducer")


@dataclass
class Ledger:
    """What the clients of random transactions say, and what is there in the end.

    Attributes:
        complaints: anomalies that the clients have noticed.
        errors: how often steps have failed, by the name of the error.
        log: the committed records of each partition in the end, with their offsets.
        seen: what readers of committed records got meanwhile, in the same form.
        committed: by name of a group, the offset that it has in the end.
        hidden: as in Transformed.
    """

    ended: list[Ended] = field(default_factory=list)
    complaints: list[Anomaly] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    log: dict[int, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    seen: list[dict[int, list[tuple[int, bytes | None]]]] = field(default_factory=list)
    committed: dict[str, int] = field(default_factory=dict)
    hidden: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def acknowledged(self) -> int:
        return sum(1 for each in self.ended if each.outcome == "commit")

    def add(self, line: str) -> None:
        """A line of ``transact.py``."""
        kind, name, *words = line.split(" ")
        if kind == "txn":
            transaction, size, offset, outcome = words
            self.ended.append(Ended(name, transaction, int(size), int(offset), outcome))
        elif kind == "error":
            transaction, error = words
            self.errors[error] += 1
            if _DISTURBED.search(error):
                self.complaints.append(Anomaly("disturbed", f"{name} in {transaction}: {error}"))
        elif kind == "back":
            committed, fetched = words
            self.complaints.append(Anomaly("went back", f"{name} from {committed} to {fetched}"))
        elif kind == "zombie":
            self.complaints.append(Anomaly("not fenced", f"{name}: {words[0]}"))
        else:
            raise ValueError(line)


def check_ledger(ledger: Ledger) -> list[Anomaly]:
    """All anomalies, by kind."""
    found: dict[str, list[Output]] = defaultdict(list)
    anomalies = list(ledger.complaints)
    for partition, records in ledger.log.items():
        latest: dict[str, tuple[int, ...]] = {}
        for offset, value in records:
            output = Output.decode(value)
            if output is None:
                anomalies.append(Anomaly("foreign", f"{partition}:{offset} {value!r}"))
                continue
            found[output.transaction].append(output)
            name, *numbers = output.transaction.split(".")
            place = (*map(int, numbers), output.index)
            if place < latest.get(name, place):
                anomalies.append(
                    Anomaly("disordered", f"{partition}:{offset} {value!r} after {latest[name]}")
                )
            latest[name] = place
    for ended in ledger.ended:
        anomalies += _outcome(ended, found.pop(ended.transaction, []))
    anomalies += [Anomaly("foreign", f"{transaction} is unknown") for transaction in found]
    anomalies += _readers(ledger)
    anomalies += _groups(ledger)
    anomalies += [
        Anomaly("hanging", f"partition {partition} is stable to {stable} of {high}")
        for partition, (stable, high) in ledger.hidden.items()
    ]
    return anomalies


def _outcome(ended: Ended, outputs: Sequence[Output]) -> Iterator[Anomaly]:
    numbers = Counter(output.index for output in outputs)
    if any(count > 1 for count in numbers.values()):
        yield Anomaly("doubled", f"{ended}: {dict(numbers)}")
    if outputs and (ended.outcome == "abort" or not outputs[0].commit):
        yield Anomaly("aborted", f"{len(outputs)} records of {ended}")
    elif ended.outcome == "commit" and not outputs:
        yield Anomaly("lost", f"{ended}")
    elif outputs and len(numbers) < ended.size:
        yield Anomaly("torn", f"{ended} has only {sorted(numbers)}")


def _readers(ledger: Ledger) -> Iterator[Anomaly]:
    for reader, seen in enumerate(ledger.seen):
        for partition, records in seen.items():
            standing = dict(ledger.log.get(partition, ()))
            before = -1
            for offset, value in records:
                if offset <= before or standing.get(offset) != value:
                    yield Anomaly(
                        "differs",
                        f"reader {reader} got {value!r} at {partition}:{offset} after {before}, where"
                        f" {standing.get(offset)!r} is",
                    )
                before = offset


def _groups(ledger: Ledger) -> Iterator[Anomaly]:
    """A group has the last offset that was committed; if the outcome of later ones is unknown, it may have theirs."""
    right: dict[str, list[int]] = defaultdict(lambda: [-1])
    for ended in ledger.ended:
        if ended.offset >= 0:
            if ended.outcome == "commit":
                right[ended.name] = [ended.offset]
            elif ended.outcome == "unknown":
                right[ended.name].append(ended.offset)
    for name, offsets in right.items():
        if ledger.committed.get(name, -1) not in offsets:
            yield Anomaly("went back", f"{name} has {ledger.committed.get(name, -1)} instead of {offsets}")
