"""Repairs a partition's folder at rest: what a broker's recovery does, and more.

=====================================  =======================================================================
what is found                          what is done
=====================================  =======================================================================
the end of the log damaged             cut off
damage with intact batches behind it   after a clean stop, or below the recovery point: left, or with
                                       ``drop_damaged`` taken out, so that only its offsets are missing;
                                       otherwise the log is cut there, as a broker's recovery does
leftovers of deletions and cleanings   removed; a cleaning that had finished is completed
an index that is wrong or missing      rebuilt from its segment
an index without its segment           removed
snapshot, leader epochs or             rebuilt from all batches
transaction index wrong
segments that overlap, records that    left
can't be decoded
=====================================  =======================================================================

A plan is made first, which changes nothing. Whatever is done can be interrupted: the next start, or the next repair,
goes on from there.
"""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NamedTuple

from ottla_broker.log import names
from ottla_broker.log.config import LogConfig
from ottla_broker.log.damage import Stretch, stretches
from ottla_broker.log.dump import TEMPORARY, open_segment
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.segment import LogSegment
from ottla_broker.log.verify import ORPHAN, Finding, Tally, verify_partition

_LEFTOVERS: Final = (names.DELETED, names.CLEANED, ".tmp")
LEFT: Final = "left as it is"


class Repair(NamedTuple):
    """Something wrong, and what is done about it. ``done`` is False for what is left as it is."""

    file: str
    position: int | None
    problem: str
    action: str
    done: bool = True

    def __str__(self) -> str:
        where = self.file if self.position is None else f"{self.file} at byte {self.position}"
        return f"{where}: {self.problem}: {self.action}"


@dataclass(slots=True)
class PartitionPlan:
    """The work to be done in a partition's folder.

    Attributes:
        repairs: for people, in the order in which they were found.
        unlink: files to remove.
        cuts: segments to cut, by path, and where.
        rewrites: segments to write again without their damaged stretches, by path.
        drop: segments to remove, as the log is cut before them.
        replay: whether all batches have to be read again.
        must_open: whether the broker's own recovery has something to do.
        holes: segments that keep damage with intact batches behind it.
    """

    folder: str
    topic: str
    partition: int
    recovery_point: int
    log_start_offset: int
    was_clean: bool
    repairs: list[Repair] = field(default_factory=list)
    unlink: list[str] = field(default_factory=list)
    cuts: dict[str, int] = field(default_factory=dict)
    rewrites: dict[str, list[Stretch]] = field(default_factory=dict)
    drop: list[str] = field(default_factory=list)
    replay: bool = False
    must_open: bool = False
    holes: set[str] = field(default_factory=set)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is wrong and nothing is to be done."""
        return not self.repairs and not self.must_open

    def add(self, file: str, position: int | None, problem: str, action: str, *, done: bool = True) -> None:
        self.repairs.append(Repair(f"{self.folder}/{file}", position, problem, action, done))
        self.must_open |= done


def plan_partition(
    files: Files,
    folder: str,
    topic: str,
    partition: int,
    *,
    recovery_point: int,
    log_start_offset: int,
    was_clean: bool,
    drop_damaged: bool,
    tally: Tally,
) -> PartitionPlan:
    """Find what is wrong, reading only. The offsets are those of the checkpoints. Raises OSError."""
    plan = PartitionPlan(folder, topic, partition, recovery_point, log_start_offset, was_clean)
    found = sorted(files.names(folder))
    _plan_leftovers(plan, found)
    # A cleaning that has finished decides which segments there are; the loader completes it before anything else.
    swapped = any(name.endswith(names.SWAP) for name in found)
    if not swapped:
        _plan_segments(files, plan, found, drop_damaged)
    damaged = {*plan.cuts, *plan.rewrites, *plan.drop} | {repair.file for repair in plan.repairs}
    findings = list(verify_partition(files, folder, tally))
    # Epochs are outside the checksum. Where those of the batches contradict each other, the file may be the right one.
    doubtful = any("leader epoch" in each.problem and each.file.endswith(names.LOG) for each in findings)
    for finding in findings:
        if doubtful and finding.file.endswith(names.LEADER_EPOCHS) and "batch has" in finding.problem:
            plan.add(names.LEADER_EPOCHS, None, finding.problem, LEFT, done=False)
        elif not swapped or not finding.file.endswith(names.INDEX_SUFFIXES):
            _plan_finding(plan, finding, damaged)
    _plan_missing_indexes(files, plan, found, damaged)
    plan.must_open |= not was_clean
    plan.replay |= bool(plan.rewrites)
    return plan


def _plan_leftovers(plan: PartitionPlan, found: list[str]) -> None:
    for name in found:
        if name.endswith(_LEFTOVERS):
            plan.add(name, None, "a file that waits for its removal, or was never finished", "removed")
        elif name.endswith(names.SWAP):
            plan.add(name, None, "a cleaning that was interrupted at its end", "completed")


def _plan_segments(files: Files, plan: PartitionPlan, found: list[str], drop_damaged: bool) -> None:
    logs = [name for name in found if name.endswith(names.LOG) and names.offset_of(name) is not None]
    paths = [f"{plan.folder}/{name}" for name in sorted(logs)]
    bases = [names.offset_of(os.path.basename(path)) or 0 for path in paths]
    parts = [list(stretches(open_segment(files, path), end)) for path, end in zip_longest(paths, bases[1:])]
    # Recovery reads from the segment on that holds the recovery point.
    scanned = sum(base <= plan.recovery_point for base in bases[1:])
    for index, path in enumerate(paths):
        for at, stretch in enumerate(parts[index]):
            if stretch.is_intact:
                continue
            name = os.path.basename(path)
            behind = [*parts[index][at + 1 :], *(each for later in parts[index + 1 :] for each in later)]
            later = sum(each.batches for each in behind)
            if not stretch.problem:
                plan.cuts[path] = stretch.position
                plan.add(name, stretch.position, "space that was reserved and not used", "cut off")
            elif not later or (not plan.was_clean and index >= scanned and not drop_damaged):
                _plan_cut(plan, path, stretch, paths[index + 1 :], later)
                return
            elif drop_damaged:
                plan.rewrites[path] = [each for each in parts[index] if each.is_intact]
                lost = _lost(stretch, behind)
                plan.add(name, stretch.position, stretch.problem, f"{stretch.size} bytes taken out{lost}")
            else:
                plan.holes.add(path)
                action = (
                    f"{LEFT}: {later} intact batches follow; --drop-damaged takes out {stretch.size} bytes"
                )
                plan.add(name, stretch.position, stretch.problem, action, done=False)


def _plan_cut(plan: PartitionPlan, path: str, stretch: Stretch, later: list[str], batches: int) -> None:
    """End the log at a damaged stretch."""
    if path in plan.rewrites:
        plan.rewrites[path] = [each for each in plan.rewrites[path] if each.end <= stretch.position]
    else:
        plan.cuts[path] = stretch.position
    plan.drop = later
    lost = f", with {batches} batches behind it" if batches else ""
    action = f"the log is cut there{lost}; offset {stretch.first_offset} is next"
    plan.add(os.path.basename(path), stretch.position, stretch.problem, action)


def _lost(stretch: Stretch, behind: list[Stretch]) -> str:
    following = next((each.first_offset for each in behind if each.is_intact), stretch.next_offset)
    if following <= stretch.next_offset:
        return ""
    return f"; offsets {stretch.next_offset} to {following - 1} are lost"


def _plan_finding(plan: PartitionPlan, finding: Finding, damaged: set[str]) -> None:
    name = os.path.basename(finding.file)
    if name.endswith(TEMPORARY):
        return
    stem, suffix = os.path.splitext(finding.file)
    segment = stem + names.LOG
    if suffix == names.LOG:
        # Damage in one segment makes others look wrong; they are checked again after the repair.
        if finding.file not in damaged and not (damaged and "before this one" in finding.problem):
            plan.add(name, finding.position, finding.problem, LEFT, done=False)
    elif suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        # The index of a damaged segment is rebuilt with it; one of a segment that stays so leads past the damage.
        if segment in plan.holes or finding.file in plan.unlink:
            return
        plan.unlink.append(finding.file)
        if segment not in damaged:
            plan.add(
                name, finding.position, finding.problem, "removed" if finding.problem == ORPHAN else "rebuilt"
            )
    elif suffix == names.TXN_INDEX and finding.problem == ORPHAN:
        plan.unlink.append(finding.file)
        plan.add(name, None, finding.problem, "removed")
    elif suffix in (names.TXN_INDEX, names.SNAPSHOT) or name == names.LEADER_EPOCHS:
        _plan_replay(plan, finding)
    elif name != names.PARTITION_METADATA:
        plan.add(name, finding.position, finding.problem, LEFT, done=False)


def _plan_replay(plan: PartitionPlan, finding: Finding) -> None:
    """Have a file rebuilt from all batches, unless some can't be read: the log would end there."""
    if finding.file in plan.unlink:
        return
    name = os.path.basename(finding.file)
    if plan.holes:
        action = f"{LEFT}: it can be rebuilt when the segments are sound"
        plan.add(name, finding.position, finding.problem, action, done=False)
        return
    plan.unlink.append(finding.file)
    plan.replay = True
    plan.add(name, finding.position, finding.problem, "rebuilt from all batches")


def _plan_missing_indexes(files: Files, plan: PartitionPlan, found: list[str], damaged: set[str]) -> None:
    """Find sealed segments without an index; the last segment's may not have been written yet."""
    logs = sorted(name for name in found if name.endswith(names.LOG) and names.offset_of(name) is not None)
    for name in logs[:-1]:
        stem = name.removesuffix(names.LOG)
        path = f"{plan.folder}/{name}"
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
            if stem + suffix not in found and path not in damaged and files.size(path):
                plan.add(stem + suffix, None, "is missing", "rebuilt")


def carry_out(environment: LogEnvironment, plan: PartitionPlan, config: LogConfig) -> Log:
    """Do what is planned. Returns the log, closed and on the device. Raises OSError, KafkaError."""
    files = environment.files
    for path in plan.unlink:
        files.unlink(path)
    for path, kept in plan.rewrites.items():
        _rewrite(files, path, kept, config)
    for path in plan.drop:
        for suffix in names.SEGMENT_SUFFIXES:
            files.unlink(path.removesuffix(names.LOG) + suffix)
    for path, position in plan.cuts.items():
        if path not in plan.rewrites:
            segment = files.file(path)
            segment.truncate(position)
            segment.sync()
            segment.close()
    # A segment that keeps its damage must not be recovered: the log would end there.
    clean = plan.was_clean and (bool(plan.holes) or not (plan.replay or plan.cuts))
    log = Log(
        plan.folder,
        plan.topic,
        plan.partition,
        config,
        environment,
        log_start_offset=plan.log_start_offset,
        recovery_point=0 if plan.replay else plan.recovery_point,
        clean=clean,
    )
    log.open()
    log.close()
    files.sync_folder(plan.folder)
    return log


def _rewrite(files: Files, path: str, kept: list[Stretch], config: LogConfig) -> None:
    """Write a segment again with these stretches only, the way a cleaning replaces one."""
    old = open_segment(files, path)
    if not kept:
        old.unlink()
        return
    new = LogSegment.create(files, old.directory, old.base_offset, config, suffix=names.CLEANED)
    for stretch in kept:
        for _, header, batch in old.batches(stretch.position, stretch.end):
            last = header.last_offset
            new.append(batch, last, header.max_timestamp, last, config.index_interval_bytes)
    new.seal()
    for synced in (new.path(names.LOG), *new.sync_paths()):
        files.sync_path(synced)
    files.sync_folder(old.directory)
    new.rename(names.SWAP)
    files.sync_folder(old.directory)
    old.unlink()
    new.rename("")
    files.sync_folder(old.directory)


def remaining(files: Files, folder: str) -> Iterator[Finding]:
    """Return what is still wrong after a repair. Raises OSError."""
    return verify_partition(files, folder, Tally())
