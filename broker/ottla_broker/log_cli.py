"""``ottla log dump`` and ``ottla log verify``: a look into the files of a data folder.

They only read, so they may run beside the broker and after a crash.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from ottla_broker.log.files import Files


@click.group()
def log() -> None:
    """Look into the files of a data folder; beside a running broker, or after a crash."""


@log.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--records", is_flag=True, help="Show the records in the batches too.")
@click.option("--offsets", "group_records", is_flag=True, help="Read records as those of __consumer_offsets.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def dump(files: tuple[str, ...], records: bool, group_records: bool, as_json: bool) -> None:
    """Show what files hold: segments, indexes, snapshots, checkpoints, the store's journal.

    A folder stands for the files in it.

    \b
    ottla log dump ottla-data/flights-0 --records
    ottla log dump ottla-data/__consumer_offsets-12/*.log --offsets
    """
    from ottla_broker.log.dump import as_line

    for path in _files(files):
        entries = _entries(path, records or group_records, group_records)
        if entries is None:
            if path in files:
                raise click.ClickException(f"{path}: no file of the log or the store has such a name")
            continue
        if not as_json:
            click.echo(f"# {path}")
        for entry in entries:
            click.echo(json.dumps({"file": path, **entry}) if as_json else as_line(entry))


def _files(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        if os.path.isdir(path):
            for folder, folders, names in os.walk(path):
                folders.sort()
                yield from (os.path.join(folder, name) for name in sorted(names))
        else:
            yield path


def _entries(path: str, records: bool, group_records: bool) -> Iterator[dict[str, Any]] | None:
    from ottla_broker.log.dump import dump_file

    decode = None
    if group_records or os.path.basename(os.path.dirname(os.path.abspath(path))).startswith("__consumer_offsets-"):
        from ottla_broker.coordinator.group.dump import decode_record

        decode = decode_record
    return dump_file(Files(), path, records=records, decode=decode)


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding.")
def verify(paths: tuple[str, ...], as_json: bool) -> None:
    """Check files, or all of a data folder: CRCs, bounds, order of offsets, indexes, epochs.

    Prints what is wrong, with file and position; exits with 1 if anything is.

    \b
    ottla log verify ottla-data
    """
    from ottla_broker.log.verify import verify_paths

    report = verify_paths(Files(), paths)
    found = 0
    for finding in report:
        found += 1
        click.echo(json.dumps(finding) if as_json else str(finding))
    sys.exit(1 if found else 0)
