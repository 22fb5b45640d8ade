"""The compiled scan of a segment finds the same as the one in Python."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.producer_state import ProducerStates
from ottla_broker.log.recovery_scan import SegmentScan
from ottla_broker.log.segment import LogSegment
from ottla_protocol.compiled import load_engine

from .batches import batch

TRANSACTIONAL = 0x10
compiled_only = pytest.mark.skipif(load_engine() is None, reason="the scan isn't compiled here")


@dataclass(frozen=True)
class Step:
    """A batch of the log."""

    count: int
    gap: int
    epoch: int
    timestamp: int
    producer_id: int
    producer_epoch: int
    attributes: int
    padding: int


steps = st.builds(
    Step,
    count=st.integers(1, 3),
    gap=st.sampled_from([0, 0, 0, 0, 3]),
    epoch=st.sampled_from([4, 4, 4, 4, 5, 3, -1]),
    timestamp=st.integers(0, 50),
    producer_id=st.sampled_from([-1, -1, 7, 7, 8, 2**62]),
    producer_epoch=st.integers(0, 1),
    attributes=st.sampled_from([0, 0, 0, TRANSACTIONAL]),
    padding=st.integers(0, 40),
)
damages = st.none() | st.tuples(st.integers(0, 4000), st.integers(1, 255))


def write(folder: Path, some: list[Step], damage: tuple[int, int] | None) -> None:
    data = bytearray()
    offset = 0
    sequences: dict[tuple[int, int], int] = {}
    for step in some:
        offset += step.gap
        key = step.producer_id, step.producer_epoch
        sequence = sequences.get(key, 0)
        sequences[key] = sequence + step.count
        known = step.producer_id >= 0
        data += batch(
            [b"x" * step.padding] * step.count,
            base_offset=offset,
            leader_epoch=step.epoch,
            timestamp=step.timestamp,
            producer_id=step.producer_id,
            epoch=step.producer_epoch if known else -1,
            sequence=sequence if known else -1,
            attributes=step.attributes if known else 0,
        )
        offset += step.count
    if damage is not None and data:
        data[damage[0] % len(data)] ^= damage[1]
    (folder / "00000000000000000000.log").write_bytes(data)


def scanned(folder: Path, *, replays: bool) -> dict[str, Any]:
    """Everything that a scan finds."""
    files = Files(max_open=4)
    try:
        segment = LogSegment(files, str(folder), 0)
        epochs = LeaderEpochs()
        producers = ProducerStates(LogEnvironment(files, lambda: 0, Random(1)), str(folder), "t-0")
        scan = SegmentScan(segment, 150, *((epochs, producers) if replays else ()))
        why = scan.run()
        offsets, times = segment.offset_index, segment.time_index
        return {
            "why": why,
            "good": scan.good,
            "has_gap": scan.has_gap,
            "max": segment.max_timestamp,
            "offsets": [offsets.entry(slot) for slot in range(len(offsets))],
            "times": [times.entry(slot) for slot in range(len(times))],
            "epochs": (epochs.epochs, epochs.starts, epochs.latest),
            "end": producers.end_offset,
            "unstable": producers.unstable.first_open,
            "producers": {
                number: (entry.epoch, entry.batches, entry.last_timestamp, entry.txn_first_offset)
                for number, entry in producers.producers.items()
            },
        }
    finally:
        files.close()


@compiled_only
@given(some=st.lists(steps, max_size=30), damage=damages, replays=st.booleans())
def test_both_ways_find_the_same(
    some: list[Step], damage: tuple[int, int] | None, replays: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    write(folder, some, damage)
    compiled = scanned(folder, replays=replays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_EXTENSION", "0")
        assert scanned(folder, replays=replays) == compiled
    if damage is None:
        assert compiled["why"] is None


@compiled_only
def test_more_producers_than_one_call_remembers(tmp_path: Path) -> None:
    some = [Step(1, 0, 4, 1, number * 1_000_003 % 1009, 0, 0, 0) for number in range(3000)]
    write(tmp_path, some, None)
    compiled = scanned(tmp_path, replays=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTTLA_EXTENSION", "0")
        assert scanned(tmp_path, replays=True) == compiled
    assert len(compiled["producers"]) == 1009


@compiled_only
def test_a_position_outside_the_data_is_refused() -> None:
    module = load_engine()
    assert module is not None
    for start, position, indexed in ((-1, 0, 0), (9, 9, 0), (2, 1, 0), (0, 0, 1), (0, 5, -1)):
        with pytest.raises(ValueError, match="positions within the data"):
            module.scan_segment(bytes(8), start, position, 0, 2**31, 4096, indexed, -1, 0, 0)
