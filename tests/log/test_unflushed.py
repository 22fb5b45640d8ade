"""What a log still has to bring to the device, and how far the recovery point moves when it is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.log.log import Log
from ottla_protocol.errors import KafkaError

from .batches import batch
from .conftest import NOW_MS, FaultyFiles, OpenLog

TOPIC_ID = bytes(15) + b"\x01"


def produce(log: Log, count: int) -> None:
    log.append(batch(count), leader_epoch=1, now_ms=NOW_MS, from_client=True)


def test_a_flush_from_before_a_truncation_says_nothing_about_later_records(open_log: OpenLog) -> None:
    log = open_log()
    produce(log, 1)
    produce(log, 1)
    job = log.unflushed.prepare()
    log.truncate_to(1)
    produce(log, 1)
    log.unflushed.flushed_to(job)
    assert (log.truncations, log.recovery_point) == (1, 0)
    log.flush()
    assert log.recovery_point == 2


def test_a_segment_that_became_shorter_is_flushed_once(open_log: OpenLog) -> None:
    log = open_log()
    produce(log, 1)
    produce(log, 1)
    log.flush()
    log.truncate_to(1)
    assert log.recovery_point == 1
    assert len(log.unflushed.prepare().truncated) == 1
    assert log.unflushed.prepare().truncated == []


@pytest.mark.parametrize("is_open", [False, True])
def test_a_topic_id_is_flushed_with_its_name(open_log: OpenLog, tmp_path: Path, is_open: bool) -> None:
    log = open_log(lazy=not is_open, clean=True)
    if is_open:
        log.flush()
    else:
        # The folder has all of its other files, and their names are on the device.
        open_log().close()
    log.assign_topic_id(TOPIC_ID)
    job = log.open().unflushed.prepare()
    folder = str(tmp_path / "flights-0")
    assert folder in job.folders
    assert f"{folder}/partition.metadata" in job.paths
    assert log.unflushed.prepare().folders == []


def test_a_log_without_changes_is_closed_without_a_flush(open_log: OpenLog, disk: FaultyFiles) -> None:
    log = open_log()
    produce(log, 1)
    log.close()
    disk.sync_fails = True
    open_log(clean=True, recovery_point=1).close()
    other = open_log(clean=True, recovery_point=1)
    produce(other, 1)
    with pytest.raises(KafkaError, match="fsync failed"):
        other.close()
