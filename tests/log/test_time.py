"""Offsets by timestamp."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.tasks import run_whole
from ottla_protocol.records.record import encode_batch

from .batches import batch
from .conftest import NOW_MS, OpenLog


@settings(max_examples=examples(15), deadline=None)
@given(
    timestamps=st.lists(st.integers(0, 60), min_size=1, max_size=25),
    interval=st.sampled_from([0, 100, 4096]),
    segment_bytes=st.sampled_from([200, 600, 10_000]),
)
def test_the_first_record_at_or_after_a_timestamp_is_found(
    tmp_path_factory: pytest.TempPathFactory, timestamps: list[int], interval: int, segment_bytes: int
) -> None:
    from random import Random

    from ottla_broker.log.config import LogConfig
    from ottla_broker.log.environment import LogEnvironment
    from ottla_broker.log.files import Files
    from ottla_broker.log.log import Log

    folder = tmp_path_factory.mktemp("log") / "flights-0"
    folder.mkdir()
    config = LogConfig(segment_bytes=segment_bytes, index_interval_bytes=interval)
    log = Log(str(folder), "flights", 0, config, LogEnvironment(Files(), lambda: NOW_MS, Random(1))).open()
    records = []
    for timestamp in timestamps:
        log.append(batch(2, timestamp=timestamp), leader_epoch=1, now_ms=NOW_MS, from_client=True)
        records += [timestamp, timestamp + 1]
    for reopened in (False, True):
        if reopened:
            log.close()
            log = Log(
                str(folder),
                "flights",
                0,
                config,
                log.environment,
                recovery_point=log.recovery_point,
                clean=True,
            ).open()
        for wanted in range(63):
            expected = next((offset for offset, at in enumerate(records) if at >= wanted), None)
            found = log.reader.offset_for_timestamp(wanted)
            assert (found and found[0]) == expected
            if found is not None:
                assert found[1:] == (records[found[0]], 1)
        newest = run_whole(log.reader.find_max_timestamp())
        assert newest is not None
        assert newest[1] == max(records)
        assert records[newest[0]] == max(records)
    log.close()


def test_an_empty_log_has_no_timestamps(open_log: OpenLog) -> None:
    log = open_log()
    assert log.reader.offset_for_timestamp(0) is None
    assert run_whole(log.reader.find_max_timestamp()) is None


def test_the_largest_timestamp_may_be_missing(open_log: OpenLog) -> None:
    """Kafka answers the first of such records, from the log's start on."""
    log = open_log()
    for _ in range(3):
        log.append(encode_batch([(-1, None, b"v", ())] * 2), leader_epoch=1, now_ms=0, from_client=True)
    newest = run_whole(log.reader.find_max_timestamp())
    assert newest is not None
    assert newest[:2] == (0, -1)
    log.high_watermark = lambda: 6
    log.advance_log_start_offset(3)
    newest = run_whole(log.reader.find_max_timestamp())
    assert newest is not None
    assert newest[:2] == (3, -1)
