"""``ottla log dump`` and ``ottla log verify``: a look into the files of a data folder.

They only read, so they may run beside the broker and after a crash.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import click


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
    from ottla_broker.tools.dump import UnknownFileError
    from ottla_broker.tools.dump import dump as entries_of

    for path in _files(files):
        try:
            entries = entries_of(path, records=records or group_records, group_records=group_records)
        except UnknownFileError as error:
            if path in files:
                raise click.ClickException(str(error)) from None
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


@log.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--json", "as_json", is_flag=True, help="One JSON object a finding.")
def verify(paths: tuple[str, ...], as_json: bool) -> None:
    """Check files, or all of a data folder: CRCs, bounds, order of offsets, indexes, epochs.

    Prints what is wrong, with file and position; exits with 1 if anything is.

    \b
    ottla log verify ottla-data
    """
    from ottla_broker.log.verify import Tally
    from ottla_broker.tools.verify import verify as findings_of

    tally = Tally()
    for path in paths:
        for finding in findings_of(path, tally):
            click.echo(json.dumps(finding._asdict()) if as_json else str(finding))
    summary = (
        f"{tally.files} files, {tally.batches} batches, {tally.records} entries: {tally.findings} findings"
    )
    click.echo(summary, err=True)
    sys.exit(1 if tally.findings else 0)
