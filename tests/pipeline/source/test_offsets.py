"""Offsets and their text in a checkpoint."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_client.types import TopicPartition
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.offsets import Offsets, names

TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 100_000))
OF = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1), max_size=12)
SIZES = st.dictionaries(PARTITIONS, st.floats(0, 1e9), max_size=12)
IDS = st.uuids().map(lambda id: id.hex)


@st.composite
def offsets(draw: st.DrawFn) -> Offsets:
    of = draw(OF)
    ids = {topic: draw(IDS) for topic in sorted({each.topic for each in of}) if draw(st.booleans())}
    return Offsets(of, ids, draw(st.booleans()), draw(st.none() | OF), draw(st.none() | SIZES))


@given(offsets())
def test_what_is_written_is_read(given: Offsets) -> None:
    assert Offsets.of_json(given.to_json()) == given


@given(offsets(), st.randoms())
def test_equal_offsets_have_equal_texts(given: Offsets, chance: Any) -> None:
    shuffled = list(given.of.items())
    chance.shuffle(shuffled)
    since = None if given.since is None else dict(reversed(list(given.since.items())))
    other = Offsets(dict(shuffled), dict(reversed(list(given.ids.items()))), given.first, since, given.bytes)
    assert json.dumps(other.to_json()) == json.dumps(given.to_json())


@given(offsets())
def test_a_reader_of_sparks_form_finds_the_offsets_and_nothing_else(given: Offsets) -> None:
    """As Spark's connector reads it: topics, partitions, offsets, whatever the topics are called."""
    found = {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in given.to_json().items()
        for partition, offset in partitions.items()
    }
    assert found == given.of


def test_the_form_of_sparks_connector() -> None:
    of = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    assert json.dumps(Offsets(of).to_json()) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert Offsets.of_text('{"b":{"9":2,"10":1},"a":{"0":3}}') == Offsets(of)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        '{"a":1}',
        '{"a":{"x":1}}',
        '{"a":{"0":"1"}}',
        '{"a":{"0":true}}',
        '{"#id a":{}}',
        '{"#bytes {\\"a\\":1}":{}}',
        '{"#bytes [":{}}',
        '{"#since []":{}}',
    ],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SourceError, match="no offsets of topics"):
        Offsets.of_text(text)


def test_many_partitions_are_named_by_some() -> None:
    assert names([TopicPartition("a", 1), TopicPartition("a", 0)]) == "a-0, a-1"
    assert names(TopicPartition("a", number) for number in range(8)).endswith("a-4 and 3 more")
