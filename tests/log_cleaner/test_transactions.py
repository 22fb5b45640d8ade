"""Compaction of transactional logs compared with a model that looks at one record after the other."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.log import names
from ottla_broker.log.cleaner import CleanerSettings
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.txn_index import read as read_txn_index
from ottla_broker.log.verify import Tally, verify_partition
from ottla_protocol.compiled import load_engine
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import Record, decode_records, encode_batch

from .conftest import Broker, batches, records, roll
from .ways import WAYS, cleaning

RETENTION_MS = 1000
ROWS = st.lists(
    st.tuples(
        st.sampled_from([b"a", b"b", b"c", b"a key of some length", b"", None]),
        st.one_of(st.none(), st.binary(max_size=30), st.just(b"\0" * 100)),
        st.sampled_from([0, 0, 1, 77, -5, 100_000]),
    ),
    min_size=1,
    max_size=6,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), ROWS, st.sampled_from([0, 0, 0, 1, 2, 3, 4])),
        st.tuples(st.just("idempotent"), st.sampled_from([7, 8]), ROWS),
        st.tuples(st.just("transactional"), st.sampled_from([1, 2, 3]), ROWS, st.sampled_from([0, 0, 4])),
        st.tuples(st.just("transactional"), st.sampled_from([1, 2, 3]), ROWS, st.sampled_from([0, 0, 4])),
        st.tuples(st.just("end"), st.sampled_from([1, 2, 3]), st.booleans()),
        st.tuples(st.just("end"), st.sampled_from([1, 2, 3]), st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(st.just("wait"), st.sampled_from([1, 400, 1000])),
        st.tuples(st.just("clean")),
    ),
    max_size=40,
)


@dataclass(eq=False)
class Batch:
    """A batch as it was appended, and what the model knows of it."""

    rows: list[Record]
    producer: int = -1
    # None: it isn't in a transaction, or that is open.
    aborted: bool | None = None
    horizon: int | None = None
    left: dict[int, Record] = field(default_factory=dict)


class TransactionModel:
    """A log, all batches of data that were appended to it, and the records that should be left."""

    def __init__(self, folder: Path, way: str) -> None:
        self.folder = folder
        self.way = way
        self.batches: list[Batch] = []
        self.open: dict[int, list[Batch]] = {}
        self.sequences: dict[int, int] = {}

    async def run(self, steps: list[Any]) -> None:
        self.broker = await Broker(self.folder, CleanerSettings(dedupe_buffer_size=1 << 20)).open()
        self.log = self.broker.create(
            segment_bytes=700, index_interval_bytes=100, delete_retention_ms=RETENTION_MS
        )
        self.broker.cleaner._stable_offset_of = stable_offset
        for step in steps:
            await getattr(self, step[0])(*step[1:])
        for producer in list(self.open):
            await self.end(producer, True)
        for _ in range(3):
            await self.roll()
            await self.clean()
            await self.wait(RETENTION_MS)
            await self.plain([(b"last", b"", 0)], 0)
        await self.clean_again()
        await self.broker.close()

    def now_ms(self) -> int:
        return int(self.broker.clock.now_ms())

    def _append(self, batch: bytearray) -> None:
        self.log.append_as_follower(batch)

    def _data(self, rows: Any, producer: int, codec: int, transactional: bool) -> Batch:
        offset, now = self.log.log_end_offset, self.now_ms()
        sequence = self.sequences.get(producer, 0)
        data = encode_batch(
            [(now + shift, key, value, (("h", b"x"),)) for key, value, shift in rows],
            base_offset=offset,
            leader_epoch=0,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=transactional,
        )
        if producer >= 0:
            self.sequences[producer] = sequence + len(rows)
        self._append(data)
        headers = (("h", b"x"),)
        made = Batch(
            [
                Record(offset + i, now + shift, key, value, headers)
                for i, (key, value, shift) in enumerate(rows)
            ],
            producer,
        )
        made.left = {each.offset: each for each in made.rows}
        self.batches.append(made)
        return made

    async def plain(self, rows: Any, codec: int) -> None:
        self._data(rows, -1, codec, False).aborted = False

    async def idempotent(self, producer: int, rows: Any) -> None:
        self._data(rows, producer, 0, False).aborted = False

    async def transactional(self, producer: int, rows: Any, codec: int) -> None:
        self.open.setdefault(producer, []).append(self._data(rows, producer, codec, True))

    async def end(self, producer: int, commit: bool) -> None:
        """End a transaction; its marker is replicated at once."""
        for batch in self.open.pop(producer, []):
            batch.aborted = not commit
        self._append(
            encode_transaction_marker(
                commit=commit,
                coordinator_epoch=0,
                producer_id=producer,
                producer_epoch=0,
                timestamp_ms=self.now_ms(),
                base_offset=self.log.log_end_offset,
                leader_epoch=0,
            )
        )
        self.log.producers.unstable.replicated_to(self.log.log_end_offset)

    async def roll(self) -> None:
        roll(self.log)

    async def wait(self, ms: int) -> None:
        self.broker.clock.time += ms / 1000

    async def clean(self) -> None:
        chosen = self.broker.cleaner._measure(self.log)
        if chosen.cleanable_bytes:
            assert await self.broker.cleaner._clean(chosen) is not None
            self._clean_model(chosen.first_dirty, chosen.first_uncleanable)
        self.check()

    async def clean_again(self) -> None:
        """Clean everything again and again: the records stay, and in the end not a byte changes."""
        await self.roll()
        await self.clean()
        expected = data_records(self.log)
        for _ in range(6):
            before = contents(self.log)
            self.broker.cleaner._checkpoints.advance(self.log, 0)
            stats = await self.broker.clean(self.log)
            assert data_records(self.log) == expected
            if contents(self.log) == before:
                assert (stats.records_kept, stats.segments) == (stats.records_read, 0)
                return
            # Markers of transactions that are gone wait for their horizon, and segments are merged.
            await self.wait(RETENTION_MS)
        raise AssertionError("cleaning never comes to an end")

    def _clean_model(self, dirty: int, end: int) -> None:
        """Each rule of compaction, for one record after the other."""
        now = self.now_ms()
        last: dict[bytes | None, int] = {}
        for batch in self.batches:
            for record in batch.left.values():
                if dirty <= record.offset < end and not batch.aborted:
                    last[record.key] = record.offset
        for batch in self.batches:
            if batch.rows[0].offset >= end:
                continue
            for record in list(batch.left.values()):
                expired = batch.horizon is not None and batch.horizon <= now
                if (
                    batch.aborted
                    or record.key is None
                    or last.get(record.key, -1) > record.offset
                    or (record.value is None and expired)
                ):
                    del batch.left[record.offset]
            if batch.horizon is None and any(each.value is None for each in batch.left.values()):
                batch.horizon = now + RETENTION_MS

    def check(self) -> None:
        """Compare the log with the model."""
        log = self.log
        expected = [record for batch in self.batches for record in batch.left.values()]
        assert data_records(log) == expected
        committed = [each for batch in self.batches if not batch.aborted for each in batch.left.values()]
        seen = read_committed(log)
        assert seen == committed[: len(seen)]
        for producer in self.sequences.keys() & log.producers.producers.keys():
            own = [
                each.last_sequence
                for each in batches(log)
                if each.producer_id == producer and not each.is_control
            ]
            assert own[-1] == self.sequences[producer] - 1
        log.active.write_indexes()
        assert list(verify_partition(Files(8, read_only=True), log.path, Tally())) == []


def stable_offset(log: Log) -> int:
    return min(log.log_end_offset, log.producers.unstable.first_offset)


def contents(log: Log) -> dict[str, bytes]:
    """The batches and aborted transactions on disk, by file."""
    found = {}
    for path in sorted(Path(log.path).iterdir()):
        if path.suffix in (names.LOG, names.TXN_INDEX):
            found[path.name] = path.read_bytes()
    return found


def data_records(log: Log) -> list[Record]:
    """The records that aren't markers, aborted ones too."""
    return [
        each
        for chunk in log.reader.scan_batches(0)
        for position, header in iter_headers(chunk)
        if not header.is_control
        for each in decode_records(chunk, position, header)
    ]


def read_committed(log: Log) -> list[Record]:
    """What a consumer with isolation.level=read_committed gets, by the transaction indexes and markers."""
    aborted = [
        each for part in log.segments for each in read_txn_index(part.files, part.path(names.TXN_INDEX))
    ]
    aborted.sort(key=lambda each: each.first_offset)
    stable = stable_offset(log)
    ongoing: set[int] = set()
    found: list[Record] = []
    for chunk in log.reader.scan_batches(0):
        for position, header in iter_headers(chunk):
            if header.base_offset >= stable:
                return found
            while aborted and aborted[0].first_offset <= header.last_offset:
                ongoing.add(aborted.pop(0).producer_id)
            if header.is_control:
                if any(each.key == b"\0\0\0\0" for each in decode_records(chunk, position, header)):
                    ongoing.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in ongoing):
                found += decode_records(chunk, position, header)
    return found


def markers(log: Log) -> list[tuple[int, int]]:
    """Offset and producer of the control batches that still have their marker."""
    return [
        (each.base_offset, each.producer_id) for each in batches(log) if each.is_control and each.record_count
    ]


A = (b"a", b"1", 0)
B = (b"b", None, 0)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
@example(steps=[("transactional", 1, [A], 0), ("plain", [A], 0), ("roll",), ("end", 1, False), ("clean",)])
@example(
    steps=[
        ("plain", [A], 0),
        ("transactional", 1, [A, B], 4),
        ("roll",),
        ("end", 1, True),
        ("roll",),
        ("clean",),
    ]
)
def test_the_log_is_what_the_model_says(steps: list[Any], way: str) -> None:
    with cleaning(way), tempfile.TemporaryDirectory() as folder:
        asyncio.run(TransactionModel(Path(folder), way).run(steps))


@pytest.mark.skipif(load_engine() is None, reason="the cleaner isn't compiled here")
@settings(max_examples=examples(5), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_both_ways_write_the_same_bytes(steps: list[Any]) -> None:
    found = []
    for way in WAYS:
        with cleaning(way), tempfile.TemporaryDirectory() as folder:
            model = TransactionModel(Path(folder), way)
            asyncio.run(model.run(steps))
            found.append(contents(model.log))
    assert found[0] == found[1]


@pytest.mark.parametrize("way", WAYS)
async def test_a_marker_goes_after_its_records_and_its_horizon(
    broker: Broker, way: str, tmp_path: Path
) -> None:
    with cleaning(way):
        model = TransactionModel(tmp_path, way)
        model.broker = broker
        model.log = broker.create(delete_retention_ms=RETENTION_MS)
        broker.cleaner._stable_offset_of = stable_offset
        await model.transactional(1, [A, (b"b", b"1", 0)], 0)
        await model.end(1, True)
        await model.transactional(2, [A], 0)
        await model.end(2, False)
        await model.roll()
        await model.clean()
        assert markers(model.log) == [(2, 1), (4, 2)], "the aborted record was there when this cleaning began"

        await model.plain([A, (b"b", b"2", 0)], 0)
        await model.roll()
        await model.clean()
        assert markers(model.log) == [(2, 1), (4, 2)]
        assert records(model.log)[-1].value == b"2"
        model.log.producers.producers.clear()
        # Its batch goes, then the marker gets a horizon, then it goes as well.
        for number, expected in enumerate(([(2, 1), (4, 2)], [(2, 1), (4, 2)], [])):
            await model.wait(RETENTION_MS)
            await model.plain([(b"c", b"%d" % number, 0)], 0)
            await model.roll()
            await model.clean()
            assert markers(model.log) == expected


@pytest.mark.parametrize("way", WAYS)
async def test_a_transaction_whose_marker_is_in_a_segment_that_is_not_cleaned(
    broker: Broker, way: str, tmp_path: Path
) -> None:
    """Its records don't count as the last of their keys."""
    with cleaning(way):
        model = TransactionModel(tmp_path, way)
        model.broker = broker
        model.log = broker.create()
        broker.cleaner._stable_offset_of = stable_offset
        await model.plain([A], 0)
        await model.transactional(1, [(b"a", b"aborted", 0)], 0)
        await model.roll()
        await model.end(1, False)
        await model.clean()
        assert [(each.key, each.value) for each in data_records(model.log)] == [(b"a", b"1")]
