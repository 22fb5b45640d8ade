"""Pages of records that are much larger than the requests which wrote them, or that can't be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.console.browsing import browsing
from tests.support.processes import BrokerProcess

from ottla_client import Consumer, Producer
from ottla_client.consumer import buffer
from ottla_client.consumer.records import RecordReader
from ottla_client.errors import CorruptBatchError
from ottla_client.types import TopicPartition
from ottla_console import reading, search
from ottla_console.pages import landing
from ottla_console.search import Found, _bounded


def found(offset: int, value: bytes | None) -> Found:
    return Found("t", 0, offset, None, None, value, len(value or b""))


def test_a_list_keeps_the_values_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_WHOLE_BYTES", 10_000)
    values = [b"a" * 9_000, None, b"b" * 4_000, b"c" * 5_000, b""]
    kept = _bounded([found(offset, value) for offset, value in enumerate(values)])
    assert [len(each.value or b"") for each in kept] == [1_201, 0, 4_000, 5_000, 0]
    assert [each.is_cut for each in kept] == [True, False, False, False, False]
    assert [each.size for each in kept] == [9_000, 0, 4_000, 5_000, 0]
    assert kept[1].value is None


async def test_lists_show_the_beginning_of_long_values(
    broker: BrokerProcess, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(search, "WHOLE_VALUE", 10_000)
    topic = new_topic(partitions=1)
    schema = tmp_path / "text.avsc"
    schema.write_text('"bytes"')
    async with Producer(broker.bootstrap) as producer:
        for size in (9_000, 20_000):
            value = bytes([size << 1 & 127 | 128, size << 1 >> 7 & 127 | 128, size >> 13]) + b"k" * size
            await producer.send_and_wait(topic, value, key=b"k" * size)
    async with browsing(broker.bootstrap, schemas={topic: str(schema)}) as browser:
        page = (await browser.get(f"/topics/{topic}/messages")).text
        hits = json.dumps([each async for each in _events(browser, f"/topics/{topic}/found?contains=kkk")])
        whole = await browser.get(f"/topics/{topic}/0/1/value")
    for text in (page, hits):
        assert "6b6b6b6b" in text, "by its schema"
        assert "k" * 300 + "\u2026" in text or "k" * 300 + "\\u2026" in text, "the key is cut"
        assert "k" * 301 not in text
        assert "19.5 KiB" in text, "the whole value's size"
    assert len(whole.text) == 20_003


async def _events(browser: Any, path: str) -> Any:
    async with browser.events(path) as events:
        async for name, event in events:
            yield event
            if name == "done":
                return


async def test_polls_as_arrow_end_with_enough_bytes(
    broker: BrokerProcess, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffer, "PARTS_BYTES", 10_000)
    topic = new_topic(partitions=9)
    async with Producer(broker.bootstrap, compression_type="zstd") as producer:
        for number in range(9):
            await producer.send_and_wait(topic, b"x" * 4_000, partition=number)
    sizes: list[int] = []
    async with Consumer(topic, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        while sum(sizes) < 9:
            sizes.append((await consumer.poll_arrow(timeout_ms=10_000)).num_rows)
    assert max(sizes) <= 3


@pytest.mark.parametrize("query", ["messages", "found?contains=record"])
async def test_a_batch_that_cannot_be_read_is_left_out(
    broker: BrokerProcess, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """One of them made the page of the topic an error, until fifty others had followed it."""
    topic = new_topic(partitions=1)
    async with Producer(broker.bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(topic, b"record %d" % number)
    columns = RecordReader.columns

    def failing(self: RecordReader, chunk: Any, batches: Any) -> Any:
        header = batches[0][1]
        if header.base_offset == 1:
            raise CorruptBatchError("it has too many headers", TopicPartition(topic, 0), 1, 2)
        batches[:] = batches[:1]
        return columns(self, chunk, batches)

    monkeypatch.setattr(RecordReader, "columns", failing)
    async with browsing(broker.bootstrap) as browser:
        text = (await browser.get(f"/topics/{topic}/messages")).text
        if query != "messages":
            text = json.dumps([each async for each in _events(browser, f"/topics/{topic}/{query}")])
    assert "record 0" in text
    assert "record 2" in text
    assert "left out 1 part of the log" in text
    assert "it has too many headers" in text


async def test_headers_are_shown_as_far_as_there_is_room(
    broker: BrokerProcess, new_topic: Callable[..., str]
) -> None:
    """Two hundred of them had no limit together, and their names none at all."""
    topic = new_topic(partitions=1)
    deep = b"[" * 900 + b"0," * 1_000 + b"0" + b"]" * 900
    headers = [
        ("n" * 10_000, b"v"),
        ("\u202eodd", deep),
        *[(f"h{number}", b"x" * 3_000) for number in range(300)],
    ]
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic, b"value", headers=headers)
    async with browsing(broker.bootstrap) as browser:
        page = (await browser.get(f"/topics/{topic}/0/0")).text
    assert "n" * 300 in page
    assert "n" * 301 not in page
    assert "\u202e" not in page
    assert "more</dd>" in page
    assert len(page) < 100_000


async def test_dead_letters_with_many_headers(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    topic = f"{new_topic()}-dlq"
    headers = [("ottla.error", b"bad " + b"x" * 10_000), *[("", b"")] * 1_000, ("ottla.topic", b"late")]
    async with Producer(broker.bootstrap) as producer:
        await producer.send_and_wait(topic, b"value", headers=headers)
    async with browsing(broker.bootstrap) as browser:
        page = (await browser.get(f"/landing/dead-letters/{topic}")).text
    assert "bad " + "x" * (landing._REASON - 4) in page
    assert "late" not in page


async def test_batches_that_would_take_too_much_are_not_decoded(
    broker: BrokerProcess, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A produce request of 6 KB was 200 MB in the console, or 30 million headers, which took gigabytes."""
    monkeypatch.setattr(search, "LIST_BYTES", 100_000)
    monkeypatch.setattr(search, "RECORD_BYTES", 200_000)
    monkeypatch.setattr(reading, "MOST_HEADERS_OF_BATCH", 1_000)
    topic = new_topic(partitions=1)
    async with Producer(broker.bootstrap, compression_type="zstd") as producer:
        await producer.send_and_wait(topic, b"first")
        await producer.send_and_wait(topic, b"large " + bytes(150_000))
        await producer.send_and_wait(topic, b"larger " + bytes(250_000))
        await producer.send_and_wait(topic, b"headed", headers=[("", b"")] * 1_001)
        await producer.send_and_wait(topic, b"last", headers=[("", b"")] * 1_000)
    async with browsing(broker.bootstrap) as browser:
        page = (await browser.get(f"/topics/{topic}/messages")).text
        assert "first" in page
        assert "last" in page
        assert "left out 3 parts of the log" in page
        assert "which the console doesn&#39;t show" in page
        for offset, status, text in (
            (1, 200, "large "),
            (2, 502, "Add /value to the address"),
            (3, 502, "its records have 1,001 headers"),
            (4, 200, "and 800 more"),
        ):
            shown = await browser.get(f"/topics/{topic}/0/{offset}")
            assert (shown.status, text in shown.text) == (status, True), shown.text
        assert len((await browser.get(f"/topics/{topic}/0/2/value")).text) == 250_007
