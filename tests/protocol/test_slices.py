"""Counted and sliced readers and writers agree with the plain ones, and refuse elements before they are made."""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import TypeVar

import pytest
from tests.protocol.samples import all_versions, sample

from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

R = TypeVar("R")


def run(steps: Generator[None, None, R]) -> tuple[int, R]:
    """How often it has yielded, and what it returned."""
    yields = 0
    try:
        while True:
            next(steps)
            yields += 1
    except StopIteration as end:
        result: R = end.value
        return yields, result


def test_all_readers_and_writers_agree() -> None:
    rng = random.Random(18)
    for cls, version in all_versions():
        message = sample(cls, version, rng)
        data = message.encode(version)
        assert b"".join(run(message.encode_in_slices(version))[1]) == data
        plain = cls.decode(data, version)
        assert cls.decode_counted(data, version, 0, 1 << 30) == plain
        assert run(cls.decode_in_slices(data, version, 0, 1 << 30))[1] == plain


def test_many_elements_are_coded_in_slices() -> None:
    message = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(5_000)])
    yields, parts = run(message.encode_in_slices(9))
    assert yields == 5_000 // 512
    yields, decoded = run(MetadataRequest.decode_in_slices(b"".join(parts), 9, 0, 1 << 20))
    assert yields == 5_000 // 512
    assert decoded == message


@pytest.mark.parametrize("version", [1, 9])
def test_elements_of_all_arrays_count_together(version: int) -> None:
    data = MetadataRequest(topics=[MetadataRequestTopic(name="t")] * 10).encode(version)
    assert MetadataRequest.decode_counted(data, version, 0, 10 * 200)
    with pytest.raises(ProtocolError, match="too many elements: topics has 10"):
        MetadataRequest.decode_counted(data, version, 0, 1_000)
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(range(20)))] * 3
    data = OffsetFetchRequest(group_id="g", topics=topics).encode(version % 7)
    with pytest.raises(ProtocolError, match="too many elements: partition_indexes has 20"):
        OffsetFetchRequest.decode_counted(data, version % 7, 0, 3 * 250 + 2 * 20 * 64)


def test_unknown_tagged_fields_count() -> None:
    data = MetadataRequest(topics=[]).encode(9)[:-1] + b"\xe8\x07" + b"\x05\x00" * 1_000
    assert MetadataRequest.decode_counted(data, 9, 0, 1 << 20)
    with pytest.raises(ProtocolError, match="too many elements: a set of tagged fields has 1000"):
        MetadataRequest.decode_counted(data, 9, 0, 1_000)
