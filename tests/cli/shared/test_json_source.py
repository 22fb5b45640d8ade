"""JSON keeps the text of its names and numbers, indented or cut out."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_cli.shared.json_source import indented, source_of

NUMBERS = (
    "0",
    "-0",
    "1e400",
    "1E5",
    "1e-400",
    "10.10",
    "9007199254740993.0",
    "12345678901234567.89",
    "9" * 5000,
)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
SPACE = st.text(" \t\n\r", max_size=2)


def texts(depth: int = 2) -> st.SearchStrategy[str]:
    """Documents as their authors may have written them."""
    simple = st.sampled_from((*NUMBERS, "true", "null", '"\\u00e9\\"{"', '"a  b"', '""', '"é,:]"'))
    if not depth:
        return simple

    @st.composite
    def made(draw: Any) -> str:
        def spaced(text: str) -> str:
            return f"{draw(SPACE)}{text}{draw(SPACE)}"

        items = draw(st.lists(texts(depth - 1), max_size=3))
        if draw(st.booleans()):
            return f"[{','.join(map(spaced, items)) or draw(SPACE)}]"
        names = [draw(st.sampled_from(('"a"', '"b.c"', '"\\u0061"', '""'))) for _ in items]
        pairs = [f"{spaced(name)}:{spaced(item)}" for name, item in zip(names, items, strict=True)]
        return f"{{{','.join(pairs) or draw(SPACE)}}}"

    return simple | made()


def tokens(text: str) -> Any:
    """The document with all names and the texts of numbers."""
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=lambda pairs: ("object", pairs))


@settings(max_examples=examples(300), deadline=None)
@given(texts())
def test_an_indented_document_is_the_same(text: str) -> None:
    shown = indented(text, 1 << 20)
    assert tokens(shown) == tokens(text)
    assert STRING.findall(shown) == STRING.findall(text)
    assert indented(shown, 1 << 20) == shown


@given(
    st.recursive(
        st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_it_looks_as_indented_json_does(document: Any) -> None:
    expected = json.dumps(document, indent=2, ensure_ascii=False)
    assert indented(json.dumps(document, ensure_ascii=False), 1 << 20) == expected


@pytest.mark.parametrize(
    "text",
    ["", "{", "NaN", "[Infinity]", "[-Infinity]", "{'a': 1}", "[1,]", '"\n"', "01", "[1] 2", "{1:2}"],
)
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        indented(text, 100)


def test_a_long_document_is_cut() -> None:
    assert len(indented("[" + "1," * 10_000 + "1]", 100)) < 120


@pytest.mark.parametrize(
    ("text", "path", "found"),
    [
        ('{"a": 10.10}', "a", "10.10"),
        (' {"b":[], "a" :\t[1,  {"x":"}"}] }', "a", '[1,  {"x":"}"}]'),
        ('{"a":1,"a":{"k":1,"k":2}}', "a", '{"k":1,"k":2}'),
        ('{"a":{"b":{"c": [ ]}}}', "a.b.c", "[ ]"),
        ('{"a.b":[1],"a":{"b":2}}', "a.b", "[1]"),
        ('{"\\u0061":[1]}', "a", "[1]"),
        ('{"a":1}', "b", None),
        ('{"a":1}', "a.b", None),
        ("[1]", "a", None),
        ("{ }", "a", None),
    ],
)
def test_the_text_of_a_field(text: str, path: str, found: str | None) -> None:
    assert source_of(text, path) == found
