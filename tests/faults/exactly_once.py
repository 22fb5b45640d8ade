"""Checks that a topic was transformed into another one exactly once. Pure.

The anomalies, and what each means::

    lost            the group has committed a record's offset, but nothing was written for it
    doubled         a record was transformed twice
    aborted         a record of an aborted transaction was read
    torn            only a part of a transaction was read
    foreign         a record that no transformer has written
    hanging         a transaction is open, though all producers have ended
    behind          the group has not read the source to its end
"""

from __future__ import annotations

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
