"""``ottla cluster``: brokers, and what is wrong with partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from ottla_protocol.api_keys import ApiKey

from ..errors import ClientError
from .console import Column, Console, options, run
from .looking import admin_of, count_of, plural, ranges_of
from .progress import amount_of_bytes

if TYPE_CHECKING:
    from ..admin import Admin, ClusterDescription, LogDir, VersionRange
    from ..types import PartitionMetadata, TopicMetadata

_MIN_ISR: Final = "min.insync.replicas"


class Problem(NamedTuple):
    """A partition with something wrong; ``problem`` is one of offline, below-min-isr, under-replicated."""

    topic: str
    partition: int
    problem: str
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    min_isr: int | None


def _with_apis(command: Any) -> Any:
    return click.option("--apis", is_flag=True, help="The APIs that brokers serve, with versions.")(command)


@click.group(invoke_without_command=True)
@_with_apis
@options
@click.pass_context
def cluster(context: click.Context, console: Console, apis: bool) -> None:
    """The cluster: brokers, sizes, and partitions with something wrong. Without a subcommand: describe.

    \b
    ottla cluster
    ottla cluster describe --apis
    """
    if context.invoked_subcommand is None:
        run(_describe(console, apis))


@cluster.command(short_help="Show brokers, sizes, and what is wrong.")
@_with_apis
@options
def describe(console: Console, apis: bool) -> None:
    """Show the cluster's id, controller, brokers with their sizes, and partitions with something wrong.

    A partition is offline without a leader; below-min-isr with fewer replicas in sync than the topic's
    min.insync.replicas, so that acks=all fails; under-replicated with fewer in sync than it has. On KRaft, any
    broker may be named as the controller: it passes requests on.

    \b
    ottla cluster describe
    ottla cluster describe --apis -b kafka-1:9092 --json
    """
    run(_describe(console, apis))


async def _describe(console: Console, apis: bool) -> None:
    async with admin_of(console) as admin:
        told = await admin.describe_cluster()
        topics = await admin.list_topics(include_internal=True)
        minimums = await _minimums(console, admin, topics)
        folders = await _log_dirs(console, admin)
        served = await admin.describe_apis() if apis else {}
    problems = list(_problems(topics, minimums))
    brokers = _brokers(told, topics, folders)
    if console.as_json:
        console.emit(_document(told, topics, problems, brokers, folders, served))
        return
    _show(console, told, topics, problems, brokers)
    if apis:
        console.print()
        _show_apis(console, served)


async def _minimums(console: Console, admin: Admin, topics: Collection[str]) -> dict[str, int]:
    """min.insync.replicas by topic; empty, with a note, if the cluster doesn't tell it to this user."""
    from ..admin import ConfigResource

    if not topics:
        return {}
    resources = [ConfigResource.topic(name) for name in topics]
    try:
        found = await admin.describe_configs(resources, keys=[_MIN_ISR])
    except ClientError as error:
        console.note(f"{_MIN_ISR} of topics is not known: {error}")
        return {}
    return {
        resource.name: int(entry.value)
        for resource, entries in found.items()
        if (entry := entries.get(_MIN_ISR)) and entry.value
    }


async def _log_dirs(console: Console, admin: Admin) -> dict[int, tuple[LogDir, ...]]:
    try:
        return await admin.describe_log_dirs()
    except ClientError as error:
        console.note(f"sizes of logs are not known: {error}")
        return {}


def _problems(topics: Mapping[str, TopicMetadata], minimums: Mapping[str, int]) -> Iterator[Problem]:
    for name, topic in topics.items():
        for number, partition in sorted(topic.partitions.items()):
            minimum = minimums.get(name)
            if (problem := _problem(partition, minimum)) is not None:
                yield Problem(
                    name, number, problem, partition.leader, partition.replicas, partition.isr, minimum
                )


def _problem(partition: PartitionMetadata, minimum: int | None) -> str | None:
    if partition.leader is None:
        return "offline"
    if minimum is not None and len(partition.isr) < minimum:
        return "below-min-isr"
    return "under-replicated" if len(partition.isr) < len(partition.replicas) else None


def _brokers(
    told: ClusterDescription, topics: Mapping[str, TopicMetadata], folders: Mapping[int, tuple[LogDir, ...]]
) -> list[dict[str, Any]]:
    leads: dict[int, int] = {}
    holds: dict[int, int] = {}
    for topic in topics.values():
        for partition in topic.partitions.values():
            if partition.leader is not None:
                leads[partition.leader] = leads.get(partition.leader, 0) + 1
            for replica in partition.replicas:
                holds[replica] = holds.get(replica, 0) + 1
    known = {node.id: node for node in told.nodes}
    rows = []
    for node_id in sorted({*known, *holds}):
        node = known.get(node_id)
        its = folders.get(node_id)
        usable = [folder.usable_bytes for folder in its or () if folder.usable_bytes is not None]
        rows.append(
            {
                "broker": node_id,
                "address": None if node is None else f"{node.host}:{node.port}",
                "rack": None if node is None else node.rack,
                "controller": node_id == told.controller_id,
                "leads": leads.get(node_id, 0),
                "replicas": holds.get(node_id, 0),
                "size": None
                if its is None
                else sum(log.size for folder in its for log in folder.replicas.values()),
                "free": min(usable) if usable else None,
            }
        )
    return rows


def _show(
    console: Console,
    told: ClusterDescription,
    topics: Mapping[str, TopicMetadata],
    problems: list[Problem],
    brokers: list[dict[str, Any]],
) -> None:
    partitions = sum(len(topic.partitions) for topic in topics.values())
    down = [str(row["broker"]) for row in brokers if row["address"] is None]
    kinds = [f"{sum(p.problem == kind for p in problems)} {kind}" for kind in _KINDS]
    console.details(
        {
            "Cluster id": told.cluster_id,
            "Controller": told.controller_id,
            "Brokers": f"{len(told.nodes)}" + (f", and not there: {', '.join(down)}" if down else ""),
            "Topics": f"{len(topics):,}, {plural(partitions, 'partition')}",
            "Partitions": ", ".join(kinds) if problems else "all replicas in sync",
        }
    )
    number = count_of(console)
    console.print()
    console.table(
        [
            Column("Broker"),
            Column("Address", show=lambda address: address),
            Column("Rack"),
            Column("Leads", show=number, right=True),
            Column("Replicas", show=number, right=True),
            Column("Size", show=amount_of_bytes, right=True),
            Column("Free", show=amount_of_bytes, right=True),
        ],
        [tuple(value for name, value in row.items() if name != "controller") for row in brokers],
    )
    if problems:
        console.print()
        console.table(
            [
                Column("Topic"),
                Column("Partition"),
                Column("Problem", style=lambda kind: "" if kind == "under-replicated" else "red"),
                Column("Leader", right=True),
                Column("Replicas"),
                Column("ISR"),
                Column("Min ISR", right=True),
            ],
            problems,
        )


_KINDS: Final = ("offline", "below-min-isr", "under-replicated")


def _document(
    told: ClusterDescription,
    topics: Mapping[str, TopicMetadata],
    problems: list[Problem],
    brokers: list[dict[str, Any]],
    folders: Mapping[int, tuple[LogDir, ...]],
    served: Mapping[int, Mapping[int, VersionRange]],
) -> dict[str, Any]:
    for row in brokers:
        row["log_dirs"] = [
            {
                "path": folder.path,
                "replicas": len(folder.replicas),
                "size": sum(log.size for log in folder.replicas.values()),
                "total": folder.total_bytes,
                "free": folder.usable_bytes,
                "error": folder.error,
            }
            for folder in folders.get(row["broker"], ())
        ]
        if row["broker"] in served:
            row["apis"] = {_api_name(key): list(versions) for key, versions in served[row["broker"]].items()}
    return {
        "cluster_id": told.cluster_id,
        "controller": told.controller_id,
        "topics": len(topics),
        "partitions": sum(len(topic.partitions) for topic in topics.values()),
        **{kind.replace("-", "_"): sum(p.problem == kind for p in problems) for kind in _KINDS},
        "brokers": brokers,
        "problems": [problem._asdict() for problem in problems],
    }


def _show_apis(console: Console, served: Mapping[int, Mapping[int, VersionRange]]) -> None:
    """A column for all brokers that serve the same; usually that is one."""
    alike: dict[tuple[tuple[int, VersionRange], ...], list[int]] = {}
    for node, ranges in served.items():
        alike.setdefault(tuple(ranges.items()), []).append(node)
    titles = ["Versions"] if len(alike) == 1 else [f"Broker {ranges_of(nodes)}" for nodes in alike.values()]
    keys = sorted({key for ranges in served.values() for key in ranges})
    console.table(
        [Column("Key"), Column("API"), *(Column(title, show=_show_range) for title in titles)],
        [(key, _api_name(key), *(dict(ranges).get(key) for ranges in alike)) for key in keys],
    )


def _api_name(key: int) -> str:
    """``ListOffsets``; for one that is newer than this client, its number."""
    try:
        return "".join(map(str.capitalize, ApiKey(key).name.split("_")))
    except ValueError:
        return f"#{key}"


def _show_range(versions: VersionRange) -> str:
    return f"{versions.first}-{versions.last}" if versions.first < versions.last else str(versions.first)
