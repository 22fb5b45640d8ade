"""``ottla log``: the files of a data folder.

``dump`` and ``verify`` write nothing, so you can run them beside a broker and after a crash. The other commands work on
folders that no broker uses.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import click

from ottla_broker.repair_cli import compact, repair
from ottla_broker.takeover_cli import adopt, hand_over


@click.group()
def log() -> None:
    """Inspect and repair the files of a data folder, and take over one from Apache Kafka."""


log.add_command(repair)
log.add_command(compact)
log.add_command(adopt)
log.add_command(hand_over)


@log.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True))
@click.option("--records", is_flag=True, help="Show the records of each batch.")
@click.option(
    "--offsets",
    "topic",
    flag_value="__consumer_offsets",
    help="Decode the records as those of __consumer_offsets.",
)
@click.option(
    "--transactions",
    "topic",
    flag_value="__transaction_state",
    help="Decode the records as those of __transaction_state.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def dump(files: tuple[str, ...], records: bool, topic: str | None, as_json: bool) -> None:
    """Show the contents of segments, indexes, snapshots, checkpoints and the store's journal.

    A folder stands for all files in it.

    \b
    ottla log dump ottla-data/flights-0 --records
    ottla log dump ottla-data/__consumer_offsets-12/*.log --offsets
    """
    from ottla_broker.log.dump import as_line
    from ottla_broker.tools.dump import UnknownFileError
    from ottla_broker.tools.dump import dump as entries_of

    known = False
    for path in _files(files):
        try:
            entries = entries_of(path, records=records or topic is not None, topic=topic)
        except UnknownFileError as error:
            if path in files:
                raise click.ClickException(str(error)) from None
            continue
        known = True
        if not as_json:
            click.echo(f"# {path}")
        for entry in entries:
            click.echo(json.dumps({"file": path, **entry}) if as_json else as_line(entry))
    if not known:
        raise _no_files(files)


def _no_files(paths: tuple[str, ...]) -> click.ClickException:
    return click.ClickException(f"{', '.join(paths)}: no files of a log or a store; name a data folder")


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
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per finding.")
def verify(paths: tuple[str, ...], as_json: bool) -> None:
    """Check files or a whole data folder: CRCs, bounds, order of offsets, indexes, epochs.

    Prints each finding with its file and position, and exits with 1 if there are any.

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
    if not tally.files and not tally.findings:
        raise _no_files(paths)
    click.echo(summary, err=True)
    sys.exit(1 if tally.findings else 0)
