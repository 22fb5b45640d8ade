"""The parsers of ``ottla produce``, with input cut into arbitrary pieces."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from itertools import pairwise

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_cli.produce.input_files import Piece
from ottla_cli.produce.parsers import Fields, FileParser, LineParser, Parser, Records
from ottla_cli.produce.structured_parsers import CsvParser, JsonParser


def parse(parser: Parser, data: bytes, cuts: Sequence[int] = ()) -> Records:
    """All records of one file that arrives in pieces."""
    edges = [0, *sorted({min(cut, len(data)) for cut in cuts}), len(data)]
    whole = Records("f")
    lines: list[int] = []
    for begin, end in pairwise(edges):
        _add(whole, lines, parser.feed(Piece("f", data[begin:end], False)))
    _add(whole, lines, parser.feed(Piece("f", b"", True)))
    whole.lines = lines
    assert whole.read == len(data)
    return whole


def _add(whole: Records, lines: list[int], part: Records) -> None:
    assert len(part.lines) == len(part.values)
    lines += part.lines
    whole.values += part.values
    whole.failures += part.failures
    whole.read = part.read
    for name in ("keys", "headers", "timestamps"):
        if (column := getattr(part, name)) is not None:
            assert len(column) == len(part.values)
            setattr(whole, name, [*(getattr(whole, name) or ()), *column])


cuts = st.lists(st.integers(0, 400), max_size=6)


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line and b"\r" not in line)),
    cuts,
    st.booleans(),
)
def test_lines_come_out_as_they_went_in(lines: list[bytes], cuts: list[int], ended: bool) -> None:
    data = b"".join(line + b"\n" for line in lines)
    if not ended and lines and lines[-1]:
        data = data[:-1]
    found = parse(LineParser(Fields()), data, cuts)
    expected = [
        line.removeprefix(b"\xef\xbb\xbf") if index == 0 else line for index, line in enumerate(lines)
    ]
    assert found.values == expected
    assert list(found.lines) == list(range(1, len(lines) + 1))


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"\xef\xbb\xbfa\nb", [b"a", b"b"]),
        (b"a\0b\n\xff\xfe\n", [b"a\0b", b"\xff\xfe"]),
    ],
)
def test_line_ends_bom_and_odd_bytes(data: bytes, values: list[bytes]) -> None:
    assert parse(LineParser(Fields()), data).values == values
    assert parse(LineParser(Fields()), data, range(len(data))).values == values


def test_a_line_without_the_key_separator_is_invalid() -> None:
    fields = Fields(key_separator=b":", null_value=b"", headers=(("h", b"1"),))
    found = parse(LineParser(fields), b"a:1\nnone\nb:\n:x:y\n")
    assert found.keys == [b"a", b"b", b""]
    assert found.values == [b"1", None, b"x:y"]
    assert found.headers == [(("h", b"1"),)] * 3
    assert list(found.lines) == [1, 3, 4]
    assert [str(failure) for failure in found.failures] == ["f:2: no ':' after a key"]
    assert parse(LineParser(fields), b"none\n").values == []


def test_a_whole_file_is_one_record() -> None:
    assert parse(FileParser(Fields()), b"\xef\xbb\xbfa\r\nb\n", [2]).values == [b"\xef\xbb\xbfa\r\nb\n"]
    assert parse(FileParser(Fields(null_value=b"")), b"").values == [None]


@given(st.lists(st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=5), max_size=3)), cuts)
def test_json_lines_are_sent_as_they_stand(documents: list[dict[str, object]], cuts: list[int]) -> None:
    lines = [json.dumps(document).encode() for document in documents]
    found = parse(JsonParser(Fields()), b"\n".join(lines), cuts)
    assert found.values == lines
    assert not found.failures


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "not JSON: Expecting ',' delimiter (column 8)"),
        (b"{} {}", "not JSON: Extra data (column 4)"),
        (b'{"a": NaN}', "not JSON: NaN"),
        (b'"\xff"', "not UTF-8 at byte 2"),
        (b"[" * 100_000, "not JSON: nested too deeply"),
        (b"1,2", "not JSON: Extra data (column 2)"),
    ],
)
def test_a_line_that_is_no_json_is_named(line: bytes, reason: str) -> None:
    found = parse(JsonParser(Fields()), b"{}\n\n" + line + b"\n[]\n")
    assert found.values == [b"{}", b"[]"]
    assert [(failure.line, failure.reason, failure.text) for failure in found.failures] == [(3, reason, line)]


def test_fields_of_json_become_key_value_headers_and_time() -> None:
    fields = Fields(
        key="user.id", value="v", timestamp="at", header_fields=(("h", "x"),), headers=(("c", b"1"),)
    )
    lines = [
        b'{"user": {"id": 7}, "v": "text", "at": "1970-01-01T00:00:01Z", "x": null}',
        b'{"user.id": "a", "v": null, "at": 5}',
        b'{"user": {}, "v": 1, "at": 1}',
        b'{"user.id": "a", "v": 1, "at": "soon"}',
        b'{"user.id": "a", "v": 1, "at": true}',
        b'{"user.id": "\\ud800", "v": 1, "at": 1}',
        b"[1]",
    ]
    found = parse(JsonParser(fields), b"\n".join(lines))
    assert found.keys == [b"7", b"a"]
    assert found.values == [b"text", None]
    assert found.timestamps == [1000, 5]
    assert found.headers == [(("c", b"1"), ("h", None)), (("c", b"1"),)]
    assert [failure.line for failure in found.failures] == [3, 4, 5, 6, 7]
    assert found.failures[0].reason == "no field 'user.id'"
    assert found.failures[4].reason.startswith("not an object")


def test_a_key_is_the_text_of_its_field() -> None:
    texts = [
        "1e400",
        "1e500",
        "9007199254740993.0",
        "9007199254740992.0",
        "1e-400",
        "1.10",
        "1E2",
        "1.0",
        "1",
        "-0",
        "9" * 5000,
        "true",
        '{"id": 1,"id":2}',
        "[1,  2.50]",
    ]
    found = parse(
        JsonParser(Fields(key="a", value="a")), "\n".join(f'{{"a": {each} }}' for each in texts).encode()
    )
    assert not found.failures
    assert found.keys == found.values == [each.encode() for each in texts]
    times = ["1700000000000.0", "1.7e12", "1e400", "-1", "9" * 30, "1e99999999999999999999"]
    found = parse(JsonParser(Fields(timestamp="t")), "\n".join(f'{{"t": {each}}}' for each in times).encode())
    assert found.timestamps == [1_700_000_000_000] * 2
    assert [each.line for each in found.failures] == [3, 4, 5, 6]


def test_a_text_that_no_record_can_have_as_timestamp_is_an_invalid_line() -> None:
    times = [
        "12345678901234567",
        "-5",
        "1960-01-01",
        "9" * 19,
        "9" * 5000,
        "0001-01-01",
        "9999-12-31T23:59:59-10:00",
    ]
    found = parse(
        JsonParser(Fields(timestamp="t")), "\n".join(f'{{"t": "{each}"}}' for each in times).encode()
    )
    assert found.timestamps == [12_345_678_901_234_567]
    assert [each.line for each in found.failures] == [2, 3, 4, 5, 6, 7]


rows = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=6), st.text(max_size=6, alphabet='",\n\r x\0é'))
)


@given(rows, cuts)
def test_csv_rows_become_objects(rows: list[tuple[str, str]], cuts: list[int]) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("a", "b"), *rows])
    found = parse(CsvParser(Fields()), text.getvalue().encode(), cuts)
    assert not found.failures
    assert [json.loads(value or b"") for value in found.values] == [{"a": a, "b": b} for a, b in rows]


def test_invalid_csv_rows_leave_the_others_unharmed() -> None:
    data = b'a,b\n1,2\n3\n"4\n5",6\n"7"x,8\n\n9,\xff\n10,11\n"12,13\n14,15\n'
    found = parse(CsvParser(Fields(key="a")), data, range(0, len(data), 3))
    assert found.keys == [b"1", b"4\n5", b"10"]
    assert list(found.lines) == [2, 4, 9]
    assert [(failure.line, failure.reason) for failure in found.failures] == [
        (3, "1 fields, but the header row has 2"),
        (6, "',' expected after '\"'"),
        (8, "not UTF-8"),
        (10, "a quote that is never closed"),
    ]
    assert found.failures[3].text == b'"12,13\n14,15'


def test_csv_columns_and_nulls() -> None:
    fields = Fields(value="b", null_value=b"", delimiter=";", header_fields=(("x", "a"),))
    found = parse(CsvParser(fields), b"\xef\xbb\xbfa;b\r\n1;x\r\n2;\r\n")
    assert found.values == [b"x", None]
    assert found.headers == [(("x", b"1"),), (("x", b"2"),)]
    assert parse(CsvParser(Fields(null_value=b"")), b"a,b\n1,\n").values == [b'{"a":"1","b":null}']


@pytest.mark.parametrize(
    ("data", "fields", "message"),
    [
        (b"a,a\n", Fields(), "f:1: the header row has a name twice"),
        (b"\n1,2\n", Fields(), "f:1: the header row is empty"),
        (b"\xff,a\n", Fields(), "f:1: the header row is not UTF-8"),
        (
            b"tail,origin\n",
            Fields(key="tial"),
            "f:1: the header row has no column 'tial'; did you mean tail?",
        ),
    ],
)
def test_a_header_row_that_is_wrong_ends_it(data: bytes, fields: Fields, message: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        parse(CsvParser(fields), data)
    assert caught.value.message == message
