"""Compaction compared with a model: the whole history in a list, the last values in a dict."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.log.cleaner import CleanerSettings
from ottla_broker.log.files import Files
from ottla_broker.log.verify import Tally, verify_partition
from ottla_protocol.records.record import Record, encode_batch

from .conftest import START_MS, Broker, batches, records, roll

KEYS = st.sampled_from([b"a", b"b", b"c", b"key-of-some-length"])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
APPEND = st.tuples(
    st.just("append"),
    st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
    st.sampled_from([0, 0, 0, 1, 3, 4]),
    st.sampled_from([-1, -1, 11, 12]),
    st.integers(-3000, 3000),
)
STEPS = st.lists(
    st.one_of(
        APPEND,
        APPEND,
        APPEND,
        st.tuples(st.just("roll")),
        st.tuples(st.just("clean")),
        st.tuples(st.just("wait"), st.sampled_from([1, 500, 1000, 5000])),
        st.tuples(st.just("restart"), st.booleans()),
    ),
    max_size=30,
)


def last_values(found: list[Record]) -> dict[bytes | None, bytes]:
    """The table that a consumer builds from the records."""
    table: dict[bytes | None, bytes] = {}
    for each in found:
        if each.value is None:
            table.pop(each.key, None)
        else:
            table[each.key] = each.value
    return table


class Model:
    """The log and everything that was ever appended to it."""

    def __init__(self, folder: Path, memory: int) -> None:
        self.folder = folder
        self.settings = CleanerSettings(dedupe_buffer_size=memory)
        self.history: list[Record] = []
        self.sequences: dict[int, int] = {}

    async def run(self, steps: list[Any]) -> None:
        self.broker = await Broker(self.folder, self.settings).open()
        self.log = self.broker.create(segment_bytes=600, index_interval_bytes=100)
        for step in steps:
            await getattr(self, step[0])(*step[1:])
        await self.roll()
        await self.clean()
        await self.broker.close()

    async def append(self, rows: Any, codec: int, producer: int, shift: int) -> None:
        now = START_MS + shift
        sequence = self.sequences.get(producer, 0)
        data = encode_batch(
            [(now + i, key, value, ()) for i, (key, value) in enumerate(rows)],
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
        )
        self.sequences[producer] = sequence + len(rows)
        info = self.log.append(memoryview(data), leader_epoch=0, now_ms=START_MS, from_client=True)
        self.history += [
            Record(info.first_offset + i, now + i, key, value) for i, (key, value) in enumerate(rows)
        ]

    async def roll(self) -> None:
        roll(self.log)

    async def wait(self, ms: int) -> None:
        self.broker.clock.time += ms / 1000

    async def restart(self, cleanly: bool) -> None:
        now = self.broker.clock.time
        await self.broker.close()
        if not cleanly:
            (self.folder / ".kafka_cleanshutdown").unlink()
            (self.folder / "recovery-point-offset-checkpoint").unlink()
        self.broker = await Broker(self.folder, self.settings).open()
        self.broker.clock.time = now
        found = self.broker.logs.get("t", 0)
        assert found is not None
        self.broker.logs.update_config("t", self.log.config)
        self.log = found.open()
        self.check()

    async def clean(self) -> None:
        dirty_from = self.broker.cleaner._checkpoints.get(self.log) or 0
        active = self.log.active.base_offset
        while (stats := await self.broker.clean_now(self.log)) is not None:
            clean_to = self.broker.cleaner._checkpoints.get(self.log) or 0
            assert clean_to > dirty_from, "every pass gets further"
            dirty_from = clean_to
            assert stats.records_kept <= stats.records_read
            self.check()
        found = [each.key for each in records(self.log) if each.offset < active]
        assert len(found) == len(set(found)), "a key stands in the clean part once"

    def check(self) -> None:
        """Check the invariants of compaction."""
        log = self.log
        by_offset = {each.offset: each for each in self.history}
        found = records(log)
        offsets = [each.offset for each in found]
        assert offsets == sorted(set(offsets))
        assert all(each == by_offset[each.offset] for each in found)
        assert log.log_end_offset == len(self.history)
        assert last_values(found) == last_values(self.history)
        last = {each.key: each for each in self.history}
        kept = set(offsets)
        assert all(each.offset in kept for each in last.values() if each.value is not None)
        for start in range(0, log.log_end_offset, 3):
            assert [each.offset for each in records(log, start)] == [o for o in offsets if o >= start]
        for producer, sequence in self.sequences.items():
            if producer >= 0:
                own = [each.last_sequence for each in batches(log) if each.producer_id == producer]
                assert own[-1] == sequence - 1
        log.active.write_indexes()
        findings = list(verify_partition(Files(8, read_only=True), log.path, Tally()))
        assert findings == []


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS, memory=st.sampled_from([100, 1 << 20]))
def test_compaction_keeps_the_last_values_and_every_offset(steps: list[Any], memory: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(Model(Path(folder), memory).run(steps))
