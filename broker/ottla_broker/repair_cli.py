"""``ottla log repair`` and ``ottla log compact``: data folders at rest."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from ottla_broker.log.config import LogConfig
    from ottla_broker.tools.data_folders import DiskPartition


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@click.option(
    "--drop-damaged",
    is_flag=True,
    help="Take damaged batches out of the middle of a log, and keep what follows. Their records are lost.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per repair.")
def repair(folders: tuple[str, ...], dry_run: bool, drop_damaged: bool, as_json: bool) -> None:
    """Repair data folders that no broker uses: what a broker does when it starts after a crash, and more.

    Every batch is checked, not only those above the recovery point. A damaged end of a log is cut off, indexes,
    snapshots and checkpoints are rebuilt, leftovers are removed. Damage with intact batches behind it stays after a
    clean stop, unless you add --drop-damaged. Run it with --dry-run first.

    Prints each repair with its file and position, and exits with 1 if anything stays damaged. Name all folders of
    log.dirs, so that a topic's id can be restored from another partition.

    \b
    ottla log repair --dry-run ottla-data
    ottla log repair ottla-data
    """
    from ottla_broker import events
    from ottla_broker.tools.data_folders import DataFolderError, check_hold_data, folder_paths
    from ottla_broker.tools.repair import Summary
    from ottla_broker.tools.repair import repair as repairs_of

    # What the broker's own recovery logs is in the report.
    events.configure("error")
    summary = Summary()
    paths = folder_paths(folders)
    try:
        check_hold_data(paths)
        for found in repairs_of(paths, summary, dry_run=dry_run, drop_damaged=drop_damaged):
            click.echo(json.dumps(found._asdict()) if as_json else str(found))
    except (DataFolderError, OSError) as error:
        raise click.ClickException(str(error)) from None
    partitions, left = _counted(summary.partitions, "partition"), _counted(summary.left, "problem")
    counts = f"{partitions}: {_counted(summary.done, 'repair')}, {left} left"
    if dry_run:
        counts += "; nothing was changed"
    elif summary.recovered:
        counts += f"; {_counted(summary.recovered, 'log')} read again"
    click.echo(counts, err=True)
    sys.exit(1 if summary.left or (dry_run and summary.done) else 0)


@click.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(exists=True, file_okay=False))
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME",
    help="Compact only this topic. Needed where its cleanup.policy isn't known. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Only show which logs would be compacted.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per partition.")
def compact(folders: tuple[str, ...], topics: tuple[str, ...], dry_run: bool, as_json: bool) -> None:
    """Compact the logs of data folders that no broker uses, until they are clean.

    Keeps the last record of each key, as a broker's cleaner does, in all topics with cleanup.policy=compact. Unlike the
    broker it doesn't wait until a log is dirty enough, and includes the segment that was written to last. Name all
    folders of log.dirs. A folder that was left by a crash is recovered first.

    \b
    ottla log compact ottla-data --dry-run
    ottla log compact ottla-data
    ottla log compact ottla-data --topic balances
    """
    import asyncio

    from ottla_broker import events
    from ottla_broker.tools.compact import compacted_topics
    from ottla_broker.tools.data_folders import DataFolderError, check_hold_data, folder_paths

    events.configure("error")
    paths = folder_paths(folders)
    try:
        check_hold_data(paths)
        configs, partitions = compacted_topics(paths, topics, dry_run=dry_run)
        if dry_run:
            _show_chosen(partitions, as_json)
            return
        changed, failed = asyncio.run(_compact(paths, configs, as_json))
    except (DataFolderError, OSError) as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"{_counted(changed, 'log')} compacted, {failed} could not be", err=True)
    sys.exit(1 if failed else 0)


def _show_chosen(partitions: Sequence[DiskPartition], as_json: bool) -> None:
    for each in partitions:
        found = {"topic": each.topic, "partition": each.index, "bytes": each.bytes}
        click.echo(json.dumps(found) if as_json else f"{each.name}: {each.bytes} bytes")
    click.echo(f"{_counted(len(partitions), 'log')} to compact; nothing was changed", err=True)


async def _compact(paths: Sequence[str], topics: dict[str, LogConfig], as_json: bool) -> tuple[int, int]:
    """Compact the logs; returns how many were compacted, and how many could not be."""
    from ottla_broker.tools.compact import compact as compacted

    changed = failed = 0
    async for done in compacted(paths, topics):
        if done.problem:
            failed += 1
        else:
            changed += 1
        if as_json:
            click.echo(json.dumps(done._asdict()))
        elif done.problem:
            click.echo(f"{done.topic}-{done.partition}: {done.problem}")
        else:
            click.echo(
                f"{done.topic}-{done.partition}: {done.records_before} records became {done.records_after}, "
                f"{done.bytes_before} bytes {done.bytes_after}"
            )
    return changed, failed


def _counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
