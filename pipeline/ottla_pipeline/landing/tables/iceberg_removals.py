"""What other programs have removed of an Iceberg table's rows, by its snapshots.

A program removes rows with their files (copy on write), or with deletes, by position or equality (merge on read). Ottla
writes no deletes. So what deletes have removed of a file is what it has without them and not with them, at the last
version that has the file: the current one, or the one before the file was removed. Thus each file is read once or
twice, however many deletes there are. What is removed and added in a commit is in the manifests that it wrote; files
with deletes are looked for in all manifests of a version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ottla_pipeline.landing.tables.iceberg_deletes import Plan

log = logging.getLogger("ottla_pipeline")

_UNREADABLE = (EOFError, NotImplementedError, OSError, ValueError)
"""What pyiceberg raises for a manifest."""

EXPIRED = "earlier snapshots, which have expired"


@dataclass(frozen=True)
class Files:
    """Data files: pyiceberg's tasks, with the deletes of a version, or without any."""

    tasks: Sequence[Any] = ()
    plan: Plan | None = None


@dataclass(frozen=True)
class Step:
    """Commits that may have removed rows, newest first; None if nothing is known of these."""

    commits: Sequence[str]
    files: tuple[Files, Files] | None = None
    """Before and after."""


def steps(table: Any, ours: str) -> Iterator[Step]:
    """From the version read last back to the oldest snapshot. Ottla's have the key ``ours`` in their summaries."""
    from pyiceberg.table.snapshots import Operation, ancestors_of

    oldest = None
    known = {one.snapshot_id: one for one in table.metadata.snapshots}
    yield from _deleted(Plan(table), known)
    for snapshot in ancestors_of(table.current_snapshot(), table.metadata):
        oldest = snapshot
        if snapshot.summary is not None and snapshot.summary.operation == Operation.APPEND:
            continue
        try:
            yield from [*_of(table, snapshot, known, ours)]
        except _UNREADABLE as error:
            log.info("what %s has removed is not known: %s", _name(snapshot), error)
            yield Step([f"{_name(snapshot)}, whose manifests can't be read"])
    if oldest is not None and has_expired_parent(oldest):
        yield Step([EXPIRED])


def _of(table: Any, snapshot: Any, known: Mapping[int, Any], ours: str) -> Iterator[Step]:
    from pyiceberg.table.snapshots import Operation

    removed, added = _changes(snapshot, table.io)
    if not removed:
        return
    before = Files(removed)
    parent = known.get(snapshot.parent_snapshot_id)
    if parent is not None and _has_deletes(parent, table.io):
        plan = Plan(table, parent)
        paths = {one.file.file_path for one in removed}
        plan.tasks = [one for one in plan.tasks if one.file.file_path in paths]
        before = Files(plan.tasks, plan)
        yield from _deleted(plan, known)
    summary = snapshot.summary
    if summary is None or (summary.operation != Operation.REPLACE and summary.get(ours) is None):
        yield Step([_name(snapshot)], (before, Files(added)))


def has_expired_parent(oldest: Any) -> bool:
    """Whether the oldest snapshot that a table has of its history isn't the first one.

    When pyiceberg expires a snapshot, it takes its id out of the next one. But that counts what was there before.
    """
    says = oldest.summary
    if oldest.parent_snapshot_id is not None or says is None:
        return oldest.parent_snapshot_id is not None
    counted = [(says.get(f"total-{of}"), says.get(f"added-{of}")) for of in ("records", "data-files")]
    return any(total is not None and int(total) != int(added or 0) for total, added in counted) or any(
        int(says.get(f"deleted-{of}") or 0) for of in ("records", "data-files")
    )


def _deleted(plan: Plan, known: Mapping[int, Any]) -> Iterator[Step]:
    """What deletes have removed of a version's files; ``known``: the table's snapshots."""
    from pyiceberg.table import FileScanTask

    tasks = [one for one in plan.tasks if one.delete_files or plan.marks(one)]
    if not tasks:
        return
    by = [
        _name(known[at]) if at in known else f"deletes of snapshot {at}, which has expired"
        for at in plan.deleted_by(tasks)
    ]
    yield Step(by, (Files([FileScanTask(one.file) for one in tasks]), Files(tasks, plan)))


def _changes(snapshot: Any, io: Any) -> tuple[list[Any], list[Any]]:
    """The data files that a snapshot has removed, and those that it has added."""
    from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
    from pyiceberg.table import FileScanTask

    found: dict[Any, list[Any]] = {ManifestEntryStatus.DELETED: [], ManifestEntryStatus.ADDED: []}
    for manifest in snapshot.manifests(io):
        if manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=False):
            if entry.status in found:
                found[entry.status].append(FileScanTask(entry.data_file))
    return found[ManifestEntryStatus.DELETED], found[ManifestEntryStatus.ADDED]


def _has_deletes(snapshot: Any, io: Any) -> bool:
    """False if it can't be read: its rows count as removed with their files then."""
    from pyiceberg.manifest import ManifestContent

    try:
        return any(one.content == ManifestContent.DELETES for one in snapshot.manifests(io))
    except _UNREADABLE:
        return False


def _name(snapshot: Any) -> str:
    operation = snapshot.summary.operation.value if snapshot.summary is not None else "a commit"
    return f"{operation} in snapshot {snapshot.snapshot_id}"
