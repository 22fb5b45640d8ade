"""The parser of .properties files against ``java.util.Properties``, whose answers are in properties.json."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol.properties import PropertiesError, parse_properties

GOLDEN = json.loads((Path(__file__).parent / "properties.json").read_text())


@pytest.mark.parametrize(("text", "expected"), GOLDEN, ids=[repr(case[0]) for case in GOLDEN])
def test_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_malformed_escape_names_file_and_line() -> None:
    with pytest.raises(PropertiesError, match=r"^x\.properties: line 3: malformed \\uXXXX escape"):
        parse_properties("a=1\n# comment\nb=\\u12\n", "x.properties")


def test_texts_in_utf_8_and_latin_1() -> None:
    for encoding in ("utf-8", "utf-8-sig", "iso-8859-1"):
        assert parse_properties("rack=Zürich\n".encode(encoding)) == {"rack": "Zürich"}


@given(st.text(alphabet="ab=: \\#!\t\n\r\fu0", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(PropertiesError):
        found = parse_properties(text)
        assert all(isinstance(part, str) for item in found.items() for part in item)


ESCAPED = str.maketrans(
    {c: f"\\{c}" for c in "=:#! \\"} | {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
)
WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=10)


@given(st.dictionaries(WORDS, WORDS, max_size=5))
def test_escapes_round_trip(properties: dict[str, str]) -> None:
    text = "".join(f"{k.translate(ESCAPED)}={v.translate(ESCAPED)}\n" for k, v in properties.items())
    if "" not in properties:
        assert parse_properties(text) == properties


def test_a_line_may_continue_very_often() -> None:
    assert parse_properties("k=" + "a\\\n" * 400_000 + "b") == {"k": "a" * 400_000 + "b"}
