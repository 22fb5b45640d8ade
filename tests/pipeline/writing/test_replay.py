"""What was written before is counted, not merely known."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.writing.identity import Identity, is_pinned
from ottla_pipeline.writing.replay import WrittenRecords, digests_of
from ottla_pipeline.writing.rows import Rows

digests = st.lists(st.sampled_from([bytes([n]) * 15 + bytes([m]) for n in (0, 1, 200) for m in (0, 7)]))


@given(digests, st.lists(digests))
def test_each_record_that_is_there_stands_for_one_row(there: list[bytes], batches: list[list[bytes]]) -> None:
    already = WrittenRecords(there)
    left = Counter(there)
    for batch in batches:
        expected = []
        for digest in batch:
            expected.append(left[digest] > 0)
            left[digest] -= expected[-1]
        assert already.take(batch).tolist() == expected
        assert len(already) == left.total()


@given(st.permutations([b"a" * 16, b"b" * 16, b"b" * 16, b"c" * 16]))
def test_the_order_of_rows_is_nothing(rows: list[bytes]) -> None:
    already = WrittenRecords([b"b" * 16, b"a" * 16])
    taken = already.take(rows)
    assert sorted(row for row, skipped in zip(rows, taken, strict=True) if not skipped) == [
        b"b" * 16,
        b"c" * 16,
    ]


def rows(
    value: bytes | None, key: bytes | None = None, partition: int | None = None, *headers: bytes
) -> Rows:
    pairs = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return Rows(
        "t",
        partition,
        pa.array([value], pa.binary()),
        pa.array([key], pa.binary()),
        pa.array([[{"key": "h", "value": each} for each in headers]], pairs),
    )


def test_whatever_differs_in_a_record_makes_another() -> None:
    every = [
        rows(None),
        rows(b""),
        rows(b"a"),
        rows(b"a", b""),
        rows(b"a", b"a"),
        rows(b"aa"),
        rows(None, b"aa"),
        rows(b"a", None, 0),
        rows(b"a", None, 1),
        rows(b"a", None, None, b""),
        rows(b"a", None, None, b"", b""),
    ]
    assert len({digests_of(each)[0] for each in every}) == len(every)


def test_headers_of_another_task_batch_or_writer_are_not_ours() -> None:
    import re

    identity = Identity("q1", 3, 1, "run")
    own, any_task = identity.pattern(False), identity.pattern(True)
    for pinned in (False, True):
        text = identity.header(pinned)[1].decode()
        assert re.match(own, text)
        assert re.match(any_task, text)
        assert is_pinned(text.encode()) == pinned
    for other, same_batch in (
        (Identity("q1", 3, 11, "r"), True),
        (Identity("q1", 31, 1, "r"), False),
        (Identity("q2", 3, 1, "r"), False),
    ):
        text = other.header(False)[1].decode()
        assert not re.match(own, text)
        assert bool(re.match(any_task, text)) == same_batch
