"""Arrow tables have the records that were encoded, whichever way their batches were read."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_client.arrow import Part, schema, to_arrow
from ottla_client.errors import ConfigurationError
from ottla_protocol.records.batch import read_header, set_log_append_time
from ottla_protocol.records.columns import decode as decoding
from ottla_protocol.records.columns import decode_batches, decode_columns
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, encode_batch

TIME = 1_700_000_000_000
fields = st.none() | st.binary(max_size=9)
headers = st.just(()) | st.lists(st.tuples(st.text(max_size=5), fields), max_size=3).map(tuple)
records = st.lists(
    st.tuples(st.integers(0, 300).map(lambda ms: TIME + ms), fields, fields, headers), min_size=1, max_size=20
)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The table as tuples; timestamps in milliseconds, headers as tuples."""
    table.validate(full=True)
    names = [name for name in table.column_names if name not in ("timestamp", "headers")]
    columns = [table[name].to_pylist() for name in names]
    columns.append(table["timestamp"].cast(pa.int64()).to_pylist())
    if "headers" in table.column_names:
        columns.append(
            [
                None if found is None else tuple((pair["key"], pair["value"]) for pair in found)
                for found in table["headers"].to_pylist()
            ]
        )
    return list(zip(*columns, strict=True))


def expected(topic: str, partition: int, found: list[Record], kind: int = 0) -> list[tuple[Any, ...]]:
    return [
        (each.key, each.value, topic, partition, each.offset, kind, each.timestamp, each.headers or None)
        for each in found
    ]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), records, st.booleans()), max_size=5),
    st.data(),
)
def test_all_kinds_of_parts(batches: list[Any], data: st.DataObject) -> None:
    parts: list[Part] = []
    wanted: list[tuple[Any, ...]] = []
    for topic, partition, sent, in_spans in batches:
        batch = encode_batch(sent, base_offset=50)
        kind = int(in_spans and partition == 1)
        if kind:
            set_log_append_time(batch, 0, read_header(batch), TIME)
        with pytest.MonkeyPatch.context() as patch:
            for name in ("LEAST_FOR_NUMPY", "LEAST_FOR_COLUMNS"):
                patch.setattr(decoding, name, 1 if in_spans else 1000)
            columns = decode_columns(batch)
        assert (columns.spans is not None) == in_spans
        start = data.draw(st.integers(0, len(sent)))
        stop = data.draw(st.none() | st.integers(0, len(sent)))
        parts.append(Part(topic, partition, columns, start, stop))
        found = [Record(offset, TIME if kind else row[0], *row[1:]) for offset, row in enumerate(sent, 50)][
            start:stop
        ]
        assert parts[-1].records == len(found)
        wanted += expected(topic, partition, found, kind)
    table = to_arrow(parts, headers=True)
    assert table.schema == schema(headers=True)
    assert rows(table) == wanted
    assert to_arrow(parts) == table.drop_columns("headers")


def test_many_batches_of_a_partition() -> None:
    sent = [
        (TIME + i, b"%d" % i, b"v" * (i % 50), (("n", b"%d" % i),) if i % 7 == 0 else ()) for i in range(3000)
    ]
    buf = b"".join(encode_batch(sent[at : at + 300], base_offset=at) for at in range(0, 3000, 300))
    places = list(iter_headers(buf))
    wanted = expected("t", 0, [Record(offset, *row) for offset, row in enumerate(sent)])
    parts = [Part("t", 0, decode_columns(buf, *place)) for place in places]
    assert rows(to_arrow(parts, headers=True)) == wanted
    assert rows(to_arrow([Part("t", 0, decode_batches(buf, places))], headers=True)) == wanted


def test_chunks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla_client.arrow._MAX_DATA", 70_000)
    batch = encode_batch([(TIME, None, b"v" * 100, ())] * 300)
    parts = [Part("t", number, decode_columns(batch)) for number in range(5)]
    table = to_arrow(parts)
    assert [len(chunk) for chunk in table["value"].chunks] == [600, 600, 300]
    assert table["partition"].to_pylist() == [number for number in range(5) for _ in range(300)]


def test_names_that_are_not_utf8() -> None:
    columns = decode_columns(encode_batch([(TIME, None, None, (("\udcff", b"x"),))]))
    (row,) = to_arrow([Part("t", 0, columns)], headers=True)["headers"].to_pylist()
    assert row == [{"key": "?", "value": b"x"}]


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "ottla_client.arrow")
    with pytest.raises(ConfigurationError, match=r"pyarrow.*pip install 'ottla\[arrow\]'"):
        import ottla_client.arrow  # noqa: F401
