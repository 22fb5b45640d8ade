"""``ottla log adopt`` and ``ottla log hand-over``: data folders move from Apache Kafka to Ottla, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ottla_broker.tools.adopt import Adoption
    from ottla_broker.tools.hand_over import HandOver

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@click.command()
@click.argument("config_file", required=False, type=click.Path(path_type=Path), metavar="[CONFIG.properties]")
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    metavar="FOLDER",
    help="Take over this folder. Repeat it, or separate by commas, if log.dirs has several.",
)
@click.option(
    "--metadata-dir",
    metavar="FOLDER",
    help="Read Kafka's metadata log in this folder (metadata.log.dir), if it isn't one of the others.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/PATH]",
    help="Read topics and settings from Kafka's ZooKeeper, which a folder from there doesn't have.",
)
@click.option(
    "--allow-missing",
    is_flag=True,
    help="Go on although partitions, or the last records of some, are not in the folders.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done. This is the default.")
@click.option("--execute", is_flag=True, help="Carry it out.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def adopt(
    config_file: Path | None,
    data_dirs: tuple[str, ...],
    metadata_dir: str | None,
    zookeeper: str | None,
    allow_missing: bool,
    dry_run: bool,
    execute: bool,
    as_json: bool,
) -> None:
    """Take over data folders that Apache Kafka left, so that Ottla serves their topics without ZooKeeper.

    Kafka must be stopped; it may have been killed. Topics with ids and settings, producer ids and the cluster id come
    from Kafka's metadata log (KRaft) or from ZooKeeper; without either, topics come from the folders, and keep all
    records until you set their retention. CONFIG.properties is Kafka's own, for log.dirs.

    Only shows what would be done, unless you add --execute. Records are not touched: Ottla uses Kafka's files.

    \b
    ottla log adopt --data-dir /var/lib/kafka
    ottla log adopt --data-dir /var/lib/kafka --execute
    ottla log adopt server.properties --zookeeper 10.0.0.9:2181 --execute
    """
    if dry_run and execute:
        raise click.UsageError("give only one of --dry-run and --execute")
    import asyncio
    from random import SystemRandom

    from ottla_broker.tools.adopt import carry_out, plan
    from ottla_broker.tools.data_folders import DataFolderError, locked, read_folders

    try:
        paths, metadata_dir = _folders(config_file, data_dirs, metadata_dir)
        with locked(paths, dry_run=not execute) as files:
            nodes = None
            if zookeeper is not None:
                with _needs_extra():
                    from ottla_broker.tools.zookeeper_nodes import read_nodes

                nodes = asyncio.run(read_nodes(zookeeper, read_folders(files, paths).broker_id))
            adoption = plan(files, paths, SystemRandom(), zookeeper=nodes, metadata_folder=metadata_dir)
            refused = bool(adoption.problems) or (bool(adoption.gaps) and not allow_missing)
            does = execute and not refused and not adoption.changes_nothing
            kept = carry_out(adoption) if does else None
    except (DataFolderError, OSError) as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(json.dumps({**_as_json(adoption), "done": does}))
    else:
        for line in _lines(adoption):
            click.echo(line)
    click.echo(_outcome(adoption, refused=refused, done=does, kept=kept), err=True)
    sys.exit(1 if refused else 0)


def _folders(
    config_file: Path | None, data_dirs: Sequence[str], metadata_dir: str | None
) -> tuple[list[str], str | None]:
    """The folders of log.dirs, and metadata.log.dir, from the options or from Kafka's own configuration."""
    from ottla_broker.config import ConfigError
    from ottla_broker.config.properties import read_properties
    from ottla_broker.tools.data_folders import folder_paths

    settings: dict[str, str] = {}
    if config_file is not None:
        if config_file.is_dir():
            raise click.UsageError(f"{config_file} is a folder; name it with --data-dir {config_file}")
        try:
            settings = read_properties(config_file)
        except ConfigError as error:
            raise click.ClickException(str(error)) from None
    given = data_dirs or [settings.get("log.dirs") or settings.get("log.dir") or ""]
    paths = folder_paths(given)
    if not paths:
        raise click.UsageError("name the data folder with --data-dir, or a file that has log.dirs")
    found = metadata_dir or settings.get("metadata.log.dir") or None
    return paths, None if found is None else found.rstrip("/")


def _outcome(adoption: Adoption, *, refused: bool, done: bool, kept: str | None) -> str:
    if adoption.problems:
        return "nothing was changed: the folders can't be taken over as they are"
    if refused:
        return "nothing was changed: records are missing; --allow-missing goes on without them"
    if adoption.changes_nothing:
        return f"nothing to do: {adoption.journal} has all of this"
    if not done:
        return "nothing was changed; add --execute to carry it out"
    folders = ",".join(adoption.folders.paths)
    written = f"{adoption.journal} written" + (f", the old one kept as {kept}" if kept is not None else "")
    return f"{written}; start the broker with: ottla broker --data-dir {folders}"


def _lines(adoption: Adoption) -> Iterator[str]:
    folders = adoption.folders
    partitions = sum(len(topic.partitions) for topic in adoption.topics)
    yield f"Cluster       {folders.cluster_id}, broker {folders.broker_id}"
    yield f"Folders       {', '.join(folders.paths)}"
    yield f"Source        {adoption.source}"
    yield f"Topics        {len(adoption.topics)}, {partitions} partitions"
    yield f"Producer ids  from {adoption.next_producer_id}"
    for entity, settings in adoption.broker_configs.items():
        yield f"Broker {entity:6} {_settings(settings)}"
    yield ""
    rows = [
        (
            topic.name,
            str(len(topic.partitions)),
            _size(topic.bytes),
            _settings(topic.configs) + (" (not known)" if topic.guessed else ""),
        )
        for topic in adoption.topics
    ]
    yield from table(("TOPIC", "PARTITIONS", "SIZE", "SETTINGS"), rows, right=(1, 2))
    for title, found in (
        ("Not possible", adoption.problems),
        ("Missing", adoption.gaps),
        ("Not taken over", adoption.left_out),
        ("Note", adoption.notes),
    ):
        if found:
            yield ""
            yield f"{title}:"
            yield from (f"  {each}" for each in found)


def _settings(settings: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "-"


def _size(count: int) -> str:
    size, unit = float(count), 0
    while size >= 1024 and unit + 1 < len(_UNITS):
        size, unit = size / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.1f} {_UNITS[unit]}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> Iterator[str]:
    """Rows in columns under their titles; the columns in ``right`` end together."""
    found = [titles, *rows]
    widths = [max(len(row[column]) for row in found) for column in range(len(titles))]
    for row in found:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


def _as_json(adoption: Adoption) -> dict[str, Any]:
    from ottla_broker.store.keys import encode_uuid

    return {
        "cluster": adoption.folders.cluster_id,
        "broker": adoption.folders.broker_id,
        "folders": adoption.folders.paths,
        "source": adoption.source,
        "next_producer_id": adoption.next_producer_id,
        "broker_configs": adoption.broker_configs,
        "topics": [
            {
                "topic": topic.name,
                "topic_id": encode_uuid(topic.topic_id),
                "partitions": topic.partitions,
                "bytes": topic.bytes,
                "configs": topic.configs,
                "configs_known": not topic.guessed,
                "missing": topic.missing,
                "behind": topic.behind,
            }
            for topic in adoption.topics
        ],
        "problems": adoption.problems,
        "missing": adoption.gaps,
        "not_taken_over": adoption.left_out,
        "notes": adoption.notes,
        "strays": adoption.strays,
        "changes": not adoption.changes_nothing,
    }


@click.command("hand-over")
@click.option(
    "--data-dir",
    "data_dirs",
    multiple=True,
    required=True,
    metavar="FOLDER",
    help="Hand over this folder. Repeat it, or separate by commas, if log.dirs has several.",
)
@click.option(
    "--zookeeper",
    metavar="HOST:PORT[/PATH]",
    help="Write topics and settings into this ZooKeeper, which must have none yet.",
)
@click.option("--kraft", is_flag=True, help="Write them into the folder, for Kafka without ZooKeeper.")
@click.option("--dry-run", is_flag=True, help="Only show what would be done. This is the default.")
@click.option("--execute", is_flag=True, help="Carry it out.")
def hand_over(
    data_dirs: tuple[str, ...], zookeeper: str | None, kraft: bool, dry_run: bool, execute: bool
) -> None:
    """Hand data folders that Ottla used without ZooKeeper over to Apache Kafka 3.9.

    Kafka has to know the topics, their ids and settings, and which producer ids were given out. They go into an empty
    ZooKeeper, or with --kraft into the folder, where Kafka's first start without ZooKeeper reads them. Ottla must be
    stopped. A broker in a cluster on ZooKeeper needs none of this: start Kafka on its folder.

    Only shows what would be done, unless you add --execute. Records are not touched.

    \b
    ottla log hand-over --data-dir ottla-data --zookeeper localhost:2181 --execute
    ottla log hand-over --data-dir ottla-data --kraft --execute
    """
    if dry_run and execute:
        raise click.UsageError("give only one of --dry-run and --execute")
    if kraft == (zookeeper is not None):
        raise click.UsageError("give either --zookeeper or --kraft")
    import asyncio
    from random import SystemRandom

    from ottla_broker.tools.data_folders import DataFolderError, folder_paths, locked
    from ottla_broker.tools.hand_over import plan, write_bootstrap, write_properties, write_topic_ids

    random = SystemRandom()
    aside = None
    try:
        with locked(folder_paths(data_dirs), dry_run=not execute) as files:
            planned = plan(files, folder_paths(data_dirs))
            if zookeeper is not None:
                with _needs_extra():
                    from ottla_broker.tools.zookeeper_nodes import write_nodes

                cluster_id = planned.folders.cluster_id
                asyncio.run(write_nodes(zookeeper, cluster_id, planned.nodes, dry_run=not execute))
            if execute:
                write_topic_ids(files, planned)
                write_properties(files, planned.folders, "1" if kraft else "0", random)
                if kraft:
                    aside = write_bootstrap(files, planned, random)
    except (DataFolderError, OSError) as error:
        raise click.ClickException(str(error)) from None
    for line in _hand_over_lines(planned, zookeeper):
        click.echo(line)
    if aside is not None:
        click.echo(f"the metadata log of Kafka's last run is now {aside}", err=True)
    done = (
        "Kafka can start on the folders" if execute else "nothing was changed; add --execute to carry it out"
    )
    click.echo(done, err=True)


@contextmanager
def _needs_extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"--zookeeper needs the package {missing.name}: pip install 'ottla[broker]'"
        ) from None


def _hand_over_lines(planned: HandOver, zookeeper: str | None) -> Iterator[str]:
    folders, known = planned.folders, planned.known
    partitions = sum(len(topic.partitions) for topic in known.topics.values())
    where = f"ZooKeeper at {zookeeper}" if zookeeper is not None else "bootstrap.checkpoint in each folder"
    yield f"Cluster       {folders.cluster_id}, broker {folders.broker_id}"
    yield f"Folders       {', '.join(folders.paths)}"
    yield f"Target        {where}"
    yield f"Topics        {len(known.topics)}, {partitions} partitions"
    yield f"Producer ids  from {known.next_producer_id}"
    if planned.without_folder:
        yield f"Not here      {', '.join(planned.without_folder)}: Kafka creates them empty"
    for note in planned.notes:
        yield f"Note          {note}"
