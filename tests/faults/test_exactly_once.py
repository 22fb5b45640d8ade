"""The checker of transactions on constructed results: it finds each anomaly, and none in good ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.checker import check
from tests.faults.exactly_once import Output, Transformed, check_transformed
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
