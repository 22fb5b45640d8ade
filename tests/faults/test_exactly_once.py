"""The checkers of transactions on constructed results: they find each anomaly, and none in good ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.checker import check
from tests.faults.exactly_once import Ledger, Output, Transformed, check_ledger, check_transformed
from tests.faults.history import History
from tests.support.depth import examples


def outputs(transaction: str, places: list[tuple[int, int]], outcome: str = "commit") -> list[bytes | None]:
    return [
        f"{transaction}/{len(places)}/{index}/{outcome}/{partition}/{offset}".encode()
        for index, (partition, offset) in enumerate(places)
    ]


def good() -> Transformed:
    read = outputs("a-1", [(0, 0), (0, 1), (1, 0)]) + outputs("b-1", [(0, 2)]) + outputs("a-2", [(1, 1)])
    return Transformed({0: 3, 1: 2}, {0: 3, 1: 2}, read)


def lost(end: Transformed) -> None:
    end.read = [value for value in end.read if value is None or not value.startswith(b"b-1")]


def doubled(end: Transformed) -> None:
    end.read = [*end.read, *outputs("c-1", [(0, 2)])]


def aborted(end: Transformed) -> None:
    end.read = [*end.read[:3], *outputs("b-1", [(0, 2)], "abort"), *end.read[4:]]


def torn(end: Transformed) -> None:
    end.read = end.read[1:]


def foreign(end: Transformed) -> None:
    end.read = [*end.read, b"a-9/1/x/commit/0/0", None]


def hanging(end: Transformed) -> None:
    end.hidden = {1: (4, 9)}


def behind(end: Transformed) -> None:
    end.source = {0: 4, 1: 2}


def test_a_good_result() -> None:
    assert check_transformed(good()) == []


@pytest.mark.parametrize(
    "spoil", [lost, doubled, aborted, torn, foreign, hanging, behind], ids=lambda spoil: spoil.__name__
)
def test_each_anomaly_is_found(spoil: Callable[[Transformed], None]) -> None:
    end = good()
    spoil(end)
    kinds = {anomaly.kind for anomaly in check(History(transformed=end))}
    assert spoil.__name__ in kinds
    assert kinds <= {spoil.__name__, "lost"}


JOURNAL = """txn a a.1.1 2 1 commit
txn a a.1.2 1 -1 abort
error a a.1.3 TIMED_OUT
txn a a.2.3 1 3 unknown
txn b b.1.1 1 -1 commit"""


def ledger(journal: str = JOURNAL) -> Ledger:
    made = Ledger()
    for line in journal.splitlines():
        made.add(line)
    made.log = {
        0: [(0, b"a.1.1/2/0/commit/0/1"), (3, b"b.1.1/1/0/commit/0/1")],
        1: [(0, b"a.1.1/2/1/commit/0/1"), (2, b"a.2.3/1/0/commit/0/3")],
    }
    made.seen = [{0: [(0, b"a.1.1/2/0/commit/0/1")]}]
    made.committed = {"a": 3, "b": -1}
    return made


LEDGERS: dict[str, Callable[[Ledger], object]] = {
    "lost": lambda found: found.log[0].pop(),
    "torn": lambda found: found.log[1].pop(0),
    "doubled": lambda found: found.log[0].append((4, b"b.1.1/1/0/commit/0/1")),
    "aborted": lambda found: found.log[0].insert(1, (1, b"a.1.2/1/0/commit/0/2")),
    "disordered": lambda found: found.log[1].reverse(),
    "foreign": lambda found: found.log[0].append((4, b"c.1.1/1/0/commit/0/1")),
    "differs": lambda found: found.seen[0][0].append((1, b"a.1.2/1/0/abort/0/2")),
    "went back": lambda found: found.committed.update(a=0),
    "hanging": lambda found: found.hidden.update({1: (4, 9)}),
    "disturbed": lambda found: found.add("error b b.1.2 OUT_OF_ORDER_SEQUENCE_NUMBER"),
    "not fenced": lambda found: found.add("zombie s1 commit"),
}


def test_a_good_ledger() -> None:
    assert check_ledger(ledger()) == []
    for offset in (1, 3):
        either = ledger()
        either.committed["a"] = offset
        assert check_ledger(either) == []


@pytest.mark.parametrize("kind", LEDGERS)
def test_each_anomaly_of_a_ledger_is_found(kind: str) -> None:
    found = ledger()
    LEDGERS[kind](found)
    assert {anomaly.kind for anomaly in check_ledger(found)} == {kind}


@settings(max_examples=examples(15))
@given(
    st.binary(max_size=40)
    | st.from_regex(r"a-1(/\d{1,3}){2}/(commit|abort|x)(/\d{1,3}){2,3}", fullmatch=True)
)
def test_values(data: bytes | str) -> None:
    found = Output.decode(data if isinstance(data, bytes) else data.encode())
    if found is not None:
        again = outputs(
            found.transaction, [(found.partition, found.offset)], "commit" if found.commit else "abort"
        )
        assert Output.decode(again[0]) == found._replace(size=1, index=0)
