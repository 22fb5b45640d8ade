"""Finds anomalies in a history, as Jepsen's workload for Kafka does. Pure.

The anomalies, and what each means::

    lost            acknowledged, but in the end not in the log
    moved           acknowledged at an offset that has another record
    vanished        given to a consumer, but in the end not in the log: it was not committed
    differs         two consumers, or a consumer and the log, have different records at one offset
    doubled         an idempotent producer's record is in the log twice
    disordered      an idempotent producer's records are in another order than it sent them
    foreign         a record that no producer sent
    hole            an offset in the middle of the log has no record
    went back       a consumer was given an offset again without a new assignment, or an older one
    skipped         a consumer was given a later record without the ones before
    unseen          a record in the log was never given to a consumer that reads everything, or to the group
    commit went back   the group began at an offset below one that it had committed before; or a client got such
                    a one, in a quiet time
    complaint       a client gave up

While brokers are cut off or frozen, a former coordinator of the group may answer with stale offsets, as in Kafka. That
does no harm, because it can't begin a generation of the group: ``stale_answers`` counts these.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise

from tests.faults.exactly_once import Anomaly, check_transformed
from tests.faults.history import Commit, Got, History, Run, Value


def check(history: History) -> list[Anomaly]:
    """All anomalies, by kind."""
    at = {(got.partition, got.offset): got.value for got in _log(history)}
    return [
        *(Anomaly("complaint", text) for text in history.complaints),
        *_promises(history, at),
        *_contents(history),
        *_readings(history, at),
        *_unseen(history),
        *_commits(history),
        *(check_transformed(history.transformed) if history.transformed is not None else ()),
    ]


def summary(anomalies: Iterable[Anomaly], each: int = 5) -> str:
    """The number of each kind, and the first ones; empty without any."""
    found = list(anomalies)
    lines = []
    for kind, count in Counter(anomaly.kind for anomaly in found).items():
        lines.append(f"{kind}: {count}")
        lines += [f"    {anomaly.text}" for anomaly in found if anomaly.kind == kind][:each]
    return "\n".join(lines)


def _log(history: History) -> Iterator[Got]:
    for records in history.log.values():
        yield from records


def _name(value: Value | None) -> str:
    return "nothing" if value is None else f"{value.producer}:{value.number}"


def _promises(history: History, at: dict[tuple[int, int], Value]) -> Iterator[Anomaly]:
    standing = {(got.partition, got.value) for got in _log(history)}
    for acked in history.acked:
        found = at.get((acked.partition, acked.offset))
        if found == acked.value:
            continue
        where = f"{_name(acked.value)}, acknowledged at {acked.at:.3f} s as {acked.partition}:{acked.offset}"
        if (acked.partition, acked.value) not in standing:
            yield Anomaly("lost", f"{where}, is not in the log; {_name(found)} stands there")
        elif acked.offset >= 0:
            yield Anomaly("moved", f"{where}, stands elsewhere; there stands {_name(found)}")


def _contents(history: History) -> Iterator[Anomaly]:
    for partition, records in history.log.items():
        for before, after in pairwise(records):
            if after.offset != before.offset + 1:
                yield Anomaly("hole", f"partition {partition}: {before.offset} is followed by {after.offset}")
        for got in records:
            producer, number = got.value
            if not 0 <= number < history.sent.get((producer, partition), 0):
                yield Anomaly(
                    "foreign", f"{partition}:{got.offset} has {_name(got.value)}, which no producer sent"
                )
    for (partition, producer, _), seen in _written(history).items():
        if not history.idempotent[producer]:
            # It may send a record again that has arrived, and to a new leader what comes after one that is still
            # under way to the old one.
            continue
        doubled = [number for number, count in Counter(seen).items() if count > 1]
        if doubled:
            yield Anomaly(
                "doubled", f"partition {partition}: {len(doubled)} of {producer}, the first {doubled[0]}"
            )
        wrong = next(((a, b) for a, b in pairwise(dict.fromkeys(seen)) if b < a), None)
        if wrong is not None:
            yield Anomaly(
                "disordered", f"partition {partition}: {producer}'s {wrong[1]} comes after its {wrong[0]}"
            )


def _written(history: History) -> dict[tuple[int, str, tuple[int, int] | None], list[int]]:
    """The numbers of the records by partition and producer, and by epoch if it has had several."""
    found: dict[tuple[int, str, tuple[int, int] | None], list[int]] = defaultdict(list)
    for got in _log(history):
        producer, number = got.value
        if 0 <= number < history.sent.get((producer, got.partition), 0):
            epoch = history.epochs.get((got.partition, got.offset)) if producer in history.bumped else None
            found[got.partition, producer, epoch].append(number)
    return found


def resent(history: History) -> int:
    """How many records idempotent producers have written again in a new epoch."""
    numbers: dict[tuple[int, str], Counter[int]] = defaultdict(Counter)
    for (partition, producer, _), seen in _written(history).items():
        if producer in history.bumped:
            numbers[partition, producer].update(set(seen))
    return sum(1 for each in numbers.values() for count in each.values() if count > 1)


def _readings(history: History, at: dict[tuple[int, int], Value]) -> Iterator[Anomaly]:
    read: dict[tuple[int, int], tuple[Value, str]] = {}
    for run in (*history.readers, *history.group):
        last: dict[int, int] = {}
        for got in run.got:
            place = (got.partition, got.offset)
            before = last.get(got.partition)
            last[got.partition] = got.offset
            if before is not None and got.offset <= before:
                yield Anomaly("went back", f"{run.reader} was given {_place(got)} after offset {before}")
            elif before is not None and got.offset > before + 1:
                missing = [o for o in range(before + 1, got.offset) if (got.partition, o) in at]
                if missing:
                    yield Anomaly(
                        "skipped",
                        f"{run.reader} was given {_place(got)} after offset {before}: not {len(missing)} between",
                    )
            other = read.setdefault(place, (got.value, run.reader))
            if other[0] != got.value:
                yield Anomaly(
                    "differs",
                    f"{_place(got)}: {run.reader} was given {_name(got.value)}, {other[1]} {_name(other[0])}",
                )
            found = at.get(place)
            if found is None:
                yield Anomaly("vanished", f"{_place(got)}: {run.reader} was given {_name(got.value)}")
            elif found != got.value:
                yield Anomaly(
                    "differs",
                    f"{_place(got)}: {run.reader} was given {_name(got.value)}, the log has {_name(found)}",
                )


def _place(got: Got) -> str:
    return f"{got.partition}:{got.offset}"


def _unseen(history: History) -> Iterator[Anomaly]:
    seen: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for run in history.readers:
        seen[run.reader].update((got.partition, got.offset) for got in run.got)
    if history.group:
        seen["the group"] = {(got.partition, got.offset) for run in history.group for got in run.got}
    for reader, places in seen.items():
        for partition, records in history.log.items():
            missing = [got for got in records if (partition, got.offset) not in places]
            if missing:
                yield Anomaly(
                    "unseen",
                    f"{reader} was never given {len(missing)} of partition {partition}, the first"
                    f" {_place(missing[0])} with {_name(missing[0].value)}",
                )


def stale_answers(history: History) -> int:
    """How often a client got an offset below a committed one while something was broken."""
    return sum(1 for fetched, _ in _stale(history) if not _is_quiet(history, fetched.began))


def _stale(history: History) -> Iterator[tuple[Commit, int]]:
    """The offsets below a committed one that clients got, with the committed one."""
    promised = _promised(history)
    for fetched in history.fetched:
        known = promised.get(fetched.partition)
        least = known.before(fetched.began) if known else -1
        if fetched.offset < least:
            yield fetched, least


def _is_quiet(history: History, time: float) -> bool:
    return any(began <= time <= ended for began, ended in history.quiet)


def _commits(history: History) -> Iterator[Anomaly]:
    promised = _promised(history)
    for fetched, least in _stale(history):
        if _is_quiet(history, fetched.began):
            yield Anomaly(
                "commit went back",
                f"partition {fetched.partition}: the group got {fetched.offset} at {fetched.ended:.3f} s, having"
                f" committed {least}",
            )
    for run in history.group:
        for got in _firsts(run):
            known = promised.get(got.partition)
            least = known.before(run.began) if known else -1
            if got.offset < least:
                yield Anomaly(
                    "commit went back",
                    f"{run.reader}, assigned at {run.began:.3f} s, began at {_place(got)}, though {least} had"
                    " been committed",
                )


def _firsts(run: Run) -> list[Got]:
    found: dict[int, Got] = {}
    for got in run.got:
        found.setdefault(got.partition, got)
    return list(found.values())


def _promised(history: History) -> dict[int, _Promised]:
    found: dict[int, list[Commit]] = defaultdict(list)
    for commit in history.commits:
        found[commit.partition].append(commit)
    return {partition: _Promised(commits) for partition, commits in found.items()}


class _Promised:
    """The highest offset whose commit was answered by a given time."""

    def __init__(self, commits: list[Commit]) -> None:
        ordered = sorted(commits, key=lambda commit: commit.ended)
        self._times = [commit.ended for commit in ordered]
        self._highest: list[int] = []
        most = -1
        for commit in ordered:
            most = max(most, commit.offset)
            self._highest.append(most)

    def before(self, time: float) -> int:
        """Returns -1 if no commit was answered before."""
        count = bisect_left(self._times, time)
        return self._highest[count - 1] if count else -1
