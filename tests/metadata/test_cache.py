"""Topics by name and by id."""

from __future__ import annotations

import pytest

from ottla_broker.log.config import LogConfig
from ottla_broker.metadata.cache import MetadataCache, PartitionInfo, TopicInfo


def topic(name: str, topic_id: bytes) -> TopicInfo:
    return TopicInfo(name, topic_id, {0: PartitionInfo(0, 1, 0, [1], [1])}, False, {}, LogConfig())


def test_a_topic_is_found_by_name_and_id_until_it_is_removed() -> None:
    cache = MetadataCache()
    one = topic("t", b"1" * 16)
    cache.put(one)
    assert cache.topic("t") is one
    assert cache.topic_by_id(b"1" * 16) is one
    assert "t" in cache
    assert len(cache) == 1
    assert cache.log_config("t") == LogConfig()
    cache.remove("t")
    cache.remove("t")
    assert cache.topic("t") is None
    assert cache.topic_by_id(b"1" * 16) is None
    assert cache.log_config("t") is None


def test_a_topic_with_another_id_takes_the_place_of_the_former() -> None:
    cache = MetadataCache()
    cache.put(topic("t", b"1" * 16))
    second = topic("t", b"2" * 16)
    cache.put(second)
    assert cache.topic_by_id(b"1" * 16) is None
    assert cache.topic_by_id(b"2" * 16) is second
    assert list(cache.topics()) == [second]


@pytest.mark.parametrize("shared", [bytes(16), b"1" * 16])
def test_topics_that_share_an_id_do_not_disturb_each_other(shared: bytes) -> None:
    cache = MetadataCache()
    for name in ("a", "b", "c"):
        cache.put(topic(name, shared))
    cache.put(topic("a", b"2" * 16))
    cache.remove("b")
    found = cache.topic_by_id(shared)
    assert (found.name if found else None) == ("c" if any(shared) else None)
    cache.put(topic("c", b"3" * 16))
    assert cache.topic_by_id(shared) is None
    assert [each.name for each in cache.topics()] == ["a", "c"]
