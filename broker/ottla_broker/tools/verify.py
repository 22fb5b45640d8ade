"""Verifies data folders, partition folders and single files with the checks of :mod:`ottla_broker.log.verify`."""

from __future__ import annotations

import os.path
from collections.abc import Iterator
from contextlib import closing

from ottla_broker.log import names
from ottla_broker.log.dump import OFFSET_CHECKPOINTS
from ottla_broker.log.files import Files
from ottla_broker.log.verify import Finding, Tally, verify_file, verify_partition
from ottla_broker.tools.dump import JOURNAL


def verify(path: str, tally: Tally) -> Iterator[Finding]:
    """Yield findings about a data folder, a partition's folder or a file, and count in ``tally``.

    Errors from reading become findings too, so that one unreadable file doesn't hide the others.
    """
    with closing(Files(64, read_only=True)) as files:
        if os.path.isdir(path):
            yield from _verify_folder(files, path.rstrip("/") or "/", tally)
        else:
            yield from _verify_one(files, path, tally, named=True)


def _verify_folder(files: Files, folder: str, tally: Tally) -> Iterator[Finding]:
    found = sorted(files.names(folder))
    if any(name.endswith(names.LOG) for name in found):
        yield from _guarded(folder, tally, verify_partition(files, folder, tally))
        return
    for name in found:
        path = f"{folder}/{name}"
        if os.path.isdir(path):
            if names.partition_of(name) is not None:
                yield from _guarded(path, tally, verify_partition(files, path, tally))
        elif name in OFFSET_CHECKPOINTS or name in (
            names.META_PROPERTIES,
            names.PARTITION_METADATA,
            JOURNAL,
        ):
            yield from _verify_one(files, path, tally, named=False)


def _verify_one(files: Files, path: str, tally: Tally, *, named: bool) -> Iterator[Finding]:
    """Verify one file. A file that the user ``named`` must be one that the broker writes."""
    if os.path.basename(path) == JOURNAL:
        yield from _guarded(path, tally, _verify_journal(path, tally))
    elif not os.path.exists(path):
        yield tally.finding(path, None, "does not exist")
    elif (findings := verify_file(files, path, tally)) is not None:
        yield from _guarded(path, tally, findings)
    elif named:
        yield tally.finding(path, None, "is not a file of a log or a store")


def _guarded(path: str, tally: Tally, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except OSError as error:
        yield tally.finding(error.filename or path, None, f"cannot be read: {error.strerror}")


def _verify_journal(path: str, tally: Tally) -> Iterator[Finding]:
    """Check the embedded store's journal: frames, checksums, changes, and a torn last frame."""
    from pathlib import Path

    from ottla_broker.store.api import StoreError
    from ottla_broker.store.journal import FRAME, MAGIC, decode_changes, load

    try:
        loaded = load(Path(path))
    except StoreError as error:
        yield tally.finding(path, None, str(error))
        return
    tally.files += 1
    tally.bytes += loaded.end
    position = len(MAGIC)
    for payload in loaded.payloads:
        try:
            for _ in decode_changes(payload):
                tally.records += 1
        except ValueError as error:
            yield tally.finding(path, position, str(error))
        position += FRAME.size + len(payload)
    if loaded.cut:
        text = f"{loaded.cut} bytes of an incomplete frame; the next start removes them"
        yield tally.finding(path, loaded.end, text)
