"""Landing jobs: tables of every format as an older version left them, what isn't one, and dead letters in topics."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.console.browsing import browsing
from tests.support.processes import BrokerProcess

from ottla_client import Admin, Producer, TopicPartition
from ottla_client.admin import NewTopic
from ottla_console import landing_tables
from ottla_console.landing_tables import look

ARCHIVE = Path(__file__).parents[1] / "pipeline/data/landed.tar.xz"
FORMATS = {"delta": "Delta", "parquet": "Parquet", "flights": "Iceberg"}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that jobs have filled up to offset 28 of two partitions, in four batches; six records are dead letters."""
    folder = tmp_path_factory.mktemp("lake")
    with tarfile.open(ARCHIVE) as archive:
        wanted = ("delta", "parquet", "iceberg")
        members = [each for each in archive.getmembers() if each.name.partition("/")[0] in wanted]
        archive.extractall(folder, members=members, filter="data")
    return folder


def test_tables_of_every_format(lake: Path) -> None:
    found = look((str(lake),))
    assert not found.remarks
    tables = {Path(each.path).name: each for each in found.tables}
    for name, kind in FORMATS.items():
        table = tables[name]
        assert (table.format, table.wrong, table.topics) == (kind, "", ["flights"])
        state, before = table.state, table.before
        assert state is not None
        assert before is not None
        assert state.next == {TopicPartition("flights", 0): 28, TopicPartition("flights", 1): 28}
        assert (state.records, state.dead, state.gaps, state.batch) == (56, 6, 0, before.batch + 1)
        assert 0 < before.records < 56
        assert table.at > 10**9


def test_what_is_no_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "broken/_ottla"
    log.mkdir(parents=True)
    for text, why in (("{", "JSONDecodeError"), ("[]", "TypeError"), ('{"state": {"batch": 1}}', "KeyError")):
        (log / "00000000000000000001.json").write_text(text)
        (table,) = look((str(tmp_path),)).tables
        assert why in table.wrong
    (tmp_path / "other/_delta_log").mkdir(parents=True)
    (tmp_path / "other/_delta_log/00000000000000000000.json").write_text(
        '{"commitInfo": {"operation": "WRITE"}}\n'
    )
    (tmp_path / "empty/metadata").mkdir(parents=True)
    assert [each.wrong for each in look((str(tmp_path / "other"),)).tables] == [
        "no landing job has committed to it"
    ]
    assert look((str(tmp_path / "empty"),)).tables == []
    assert "No such file" in look((str(tmp_path / "none"),)).remarks[0]
    monkeypatch.setattr(landing_tables, "_MOST_ENTRIES", 2)
    assert "more than can be shown" in look((str(tmp_path),)).remarks[0]


async def test_the_pages(
    lake: Path, broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(1)
    dead = f"{topic}-dlq"
    log = tmp_path / "mine/_ottla"
    log.mkdir(parents=True)
    for batch, ranges in ((0, [[0, 2, 2, "00", 0]]), (1, [[0, 2, 2, "00", 0], [3, 5, 3, "00", 1]])):
        state = {
            "version": 1,
            "batch": batch,
            "run": "r",
            "ledger": {topic: {"id": "", "partitions": {"0": ranges}}},
            "notes": {"dead": {"token": "t", "files": [{}], "before": None}} if batch else {},
        }
        (log / f"{batch:020d}.json").write_text(json.dumps({"state": state}))
    async with Admin(broker.bootstrap) as admin:
        await admin.create_topics([NewTopic(dead, 1)])
    async with Producer(broker.bootstrap) as producer:
        for number in range(8):
            await producer.send_and_wait(topic, b"%d" % number)
        headers = [("ottla.topic", topic.encode()), ("ottla.partition", b"0"), ("ottla.offset", b"4")]
        await producer.send_and_wait(dead, b"four", headers=[*headers, ("ottla.error", b"<b> is no number")])
        await producer.send_and_wait(dead, b"five", headers=[("ottla.topic", b"x"), ("ottla.offset", b"y")])
    async with browsing(broker.bootstrap, landing=(str(lake), str(tmp_path / "mine"))) as browser:
        page = (await browser.get("/landing")).text
        mine = page[page.index(str(tmp_path / "mine")) :].partition("</tr>")[0]
        assert "landing" in mine
        assert "dead letters wait" in mine
        cells = [cell.partition("<")[0] for cell in mine.split('<td class="num">')]
        assert [*cells[2:5], *cells[6:]] == ["1", "2 ", "3 ", "4", "1"], mine
        assert re.fullmatch(r"[\d.]+m?s", cells[5]), mine
        assert "1 dead letter" in mine
        assert "1 lost" in mine
        assert "its topics are gone" in page
        assert f"/landing/dead-letters/{dead}" in page
        letters = (await browser.get(f"/landing/dead-letters/{dead}")).text
        assert f'<a href="/topics/{topic}/0/4">{topic}-0, offset 4</a>' in letters
        assert "&lt;b&gt; is no number" in letters
        assert "give no reason" in letters
    async with browsing(broker.bootstrap) as browser:
        assert "--landing FOLDER" in (await browser.get("/landing")).text
