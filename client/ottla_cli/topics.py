"""``ottla topics``: list, describe, create, alter, delete, truncate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from ottla_client.errors import BrokerError, ClientError, UnknownTopicError
from ottla_client.suggestions import did_you_mean
from ottla_client.types import TopicPartition
from ottla_protocol.errors import ErrorCode

from .shared.admin import (
    admin_of,
    count_of,
    known_partitions,
    matches,
    none_of,
    numbers_in,
    plural,
    topics_of,
)
from .shared.client_options import pair
from .shared.progress import amount_of_bytes
from .shared.tables import Column
from .shared.terminal import YES, Console, options, unknown_topic
from .shared.timefmt import unit_hint
from .shared.topic_checks import PARTITIONS, TOPIC

if TYPE_CHECKING:
    from ottla_client.admin import Admin, ConfigEntry, CreatedTopic, NewTopic
    from ottla_client.types import TopicMetadata


@click.group()
def topics() -> None:
    """List, create, change and delete topics.

    \b
    ottla topics create orders --partitions 6 -c retention.ms=86400000
    ottla topics list
    ottla topics describe orders
    """


@topics.command("list", short_help="List topics with partitions and replication.")
@click.argument("pattern", required=False)
@click.option("--internal", is_flag=True, help="List internal topics as well, such as __consumer_offsets.")
@options
async def list_topics(console: Console, pattern: str | None, internal: bool) -> None:
    """List topics, or those whose names match PATTERN (* and ? as in a shell).

    \b
    ottla topics list
    ottla topics list 'orders-*' --json
    """
    async with admin_of(console) as admin:
        found = await admin.list_topics(include_internal=internal)
    columns: list[Column | str] = [
        "Topic",
        "Partitions",
        Column("Replication", "replication_factor"),
        "Internal",
    ]
    shown = len(columns) if internal or console.as_json else 3
    console.table(
        columns[:shown],
        [
            (name, len(topic.partitions), _replication(topic), topic.is_internal)[:shown]
            for name, topic in found.items()
            if pattern is None or matches(name, pattern)
        ],
        empty=none_of("topic", pattern),
    )


def _replication(topic: TopicMetadata) -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


@topics.command(short_help="Show partitions, offsets, sizes and configs.")
@click.argument("names", nargs=-1, required=True, metavar="NAME…", type=TOPIC)
@options
async def describe(console: Console, names: tuple[str, ...]) -> None:
    """Show the partitions of topics, with leader, replicas, offsets and size, and the configs that aren't defaults.

    ISR lists the replicas in sync. The number of records is the latest offset less the earliest, so it includes gaps
    left by compaction and transactions. The size is that of the leader's log on disk.

    \b
    ottla topics describe orders
    ottla topics describe orders payments --json
    """
    from ottla_client.admin import OffsetSpec

    async with admin_of(console) as admin:
        found = await topics_of(admin, names)
        led = {
            TopicPartition(topic.name, number): partition.leader
            for topic in found.values()
            for number, partition in topic.partitions.items()
            if partition.leader is not None
        }
        earliest = await admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
        latest = await admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST))
        sizes = await _sizes(console, admin, led, found)
        configs = await _configs(console, admin, found)
    described = []
    for topic in found.values():
        partitions = []
        for number, partition in sorted(topic.partitions.items()):
            key = TopicPartition(topic.name, number)
            first = earliest[key].offset if key in earliest else None
            end = latest[key].offset if key in latest else None
            partitions.append(
                {
                    "partition": number,
                    "leader": partition.leader,
                    "replicas": partition.replicas,
                    "isr": partition.isr,
                    "earliest": first,
                    "latest": end,
                    "records": None if first is None or end is None else end - first,
                    "size": sizes.get(key),
                }
            )
        entries = configs.get(topic.name)
        shown = None if entries is None else {n: e for n, e in sorted(entries.items()) if not e.is_default}
        described.append((topic, partitions, shown))
    if console.as_json:
        console.emit([_document(*each) for each in described])
        return
    for index, each in enumerate(described):
        if index:
            console.print()
        _show(console, *each)


async def _sizes(
    console: Console, admin: Admin, led: Mapping[TopicPartition, int], topics: Mapping[str, TopicMetadata]
) -> dict[TopicPartition, int]:
    """Bytes of each partition at its leader; none, with a note, where this user may not see them."""
    if not led:
        return {}
    try:
        of_node = await admin.describe_log_dirs(sorted(set(led.values())), topics=topics)
    except ClientError as error:
        console.note(f"sizes are not known: {error}")
        return {}
    return {
        partition: replica.size
        for node, folders in of_node.items()
        for folder in folders
        for partition, replica in folder.replicas.items()
        if led.get(partition) == node and not replica.is_future
    }


async def _configs(
    console: Console, admin: Admin, names: Iterable[str]
) -> dict[str, Mapping[str, ConfigEntry]]:
    """The configs by topic, without those that this user may not read, which a note says."""
    from ottla_client.admin import ConfigResource, PartialError

    resources = [ConfigResource.topic(name) for name in names]
    try:
        found = await admin.describe_configs(resources)
    except ClientError as error:
        results, failed = (
            (error.results, error.errors)
            if isinstance(error, PartialError)
            else ({}, dict.fromkeys(resources, error))
        )
        if not all(_is_refused(why) for why in failed.values()):
            raise
        for resource in failed:
            console.note(
                f"the configs of {resource.name} can't be read without the permission describe-configs on the topic"
            )
        found = results
    return {resource.name: entries for resource, entries in found.items()}


def _is_refused(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _only_compacted(error: ClientError) -> bool:
    from ottla_client.admin import PartialError

    errors = error.errors.values() if isinstance(error, PartialError) else (error,)
    return all(isinstance(each, BrokerError) and each.code == ErrorCode.POLICY_VIOLATION for each in errors)


def _document(
    topic: TopicMetadata, partitions: list[dict[str, Any]], configs: Mapping[str, ConfigEntry] | None
) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "id": _id(topic),
        "internal": topic.is_internal,
        "replication_factor": _replication(topic),
        "partitions": partitions,
        "configs": None if configs is None else {name: entry.value for name, entry in configs.items()},
    }


def _show(
    console: Console,
    topic: TopicMetadata,
    partitions: list[dict[str, Any]],
    configs: Mapping[str, ConfigEntry] | None,
) -> None:
    number = count_of(console)
    head = [plural(len(partitions), "partition"), f"replication {_replication(topic)}"]
    head += [f"id {_id(topic)}"] if topic.id else []
    head += ["internal"] if topic.is_internal else []
    if short := sum(len(row["isr"]) < len(row["replicas"]) for row in partitions):
        head.append(f"{plural(short, 'partition')} under-replicated")
    console.table(
        [
            "Partition",
            Column("Leader", right=True),
            "Replicas",
            "ISR",
            *(Column(name, right=True, show=number) for name in ("Earliest", "Latest", "Records")),
            Column("Size", right=True, show=amount_of_bytes),
        ],
        [tuple(row.values()) for row in partitions],
        title=f"{topic.name}: {', '.join(head)}",
    )
    if configs:
        console.print()
        console.table(
            ["Config", "Value", Column("Source", show=lambda source: source.name.lower())],
            [(name, entry.value, entry.source) for name, entry in configs.items()],
        )


def _id(topic: TopicMetadata) -> str | None:
    """A topic's id as Kafka's tools write it: base64 for URLs, without padding."""
    from base64 import urlsafe_b64encode

    return None if topic.id is None else urlsafe_b64encode(topic.id).decode().rstrip("=")


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…", type=TOPIC)
@click.option(
    "--partitions",
    type=click.IntRange(1, 2**31 - 1),
    metavar="N",
    help="Set the number of partitions. Without it, the broker's default applies.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(min=1, max=32767),
    metavar="N",
    help="Set the replication factor. Without it, the broker's default applies.",
)
@click.option(
    "-c",
    "--config",
    "configs",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a config of the topics. Repeat it for several.",
)
@click.option(
    "--if-not-exists", is_flag=True, help="Succeed if a topic already exists, even with different settings."
)
@options
async def create(
    console: Console,
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create topics, one after the other, up to the first that fails.

    \b
    ottla topics create orders --partitions 6 --replication-factor 3
    ottla topics create state -c cleanup.policy=compact -c min.insync.replicas=2
    """
    from ottla_client.admin import NewTopic

    given = dict(pair(config, "--config") for config in configs)
    async with admin_of(console) as admin:
        for name in names:
            topic = NewTopic(name, partitions or -1, replication_factor or -1, given)
            found, is_new = await _create(admin, topic, if_not_exists)
            document = {
                "topic": name,
                "created": is_new,
                "partitions": found.partitions,
                "replication_factor": found.replication_factor,
            }
            size = f"{plural(found.partitions, 'partition')}, replication {found.replication_factor}"
            done = f"created topic {name}: {size}" if is_new else f"topic {name} already exists: {size}"
            console.report(document, done)


async def _create(admin: Admin, topic: NewTopic, if_not_exists: bool) -> tuple[CreatedTopic, bool]:
    """The topic, and whether it is new. Raises click.ClickException, ClientError."""
    from ottla_client.admin import CreatedTopic

    name, configs = topic.name, dict(topic.configs or {})
    try:
        found, is_new = (await admin.create_topics([topic]))[name], True
    except BrokerError as error:
        if error.code is ErrorCode.INVALID_CONFIG and (hint := await _config_hint(admin, name, configs)):
            raise click.ClickException(hint) from None
        if error.code is ErrorCode.INVALID_CONFIG and (hint := unit_hint(configs)):
            raise click.ClickException(f"topic {name}: {hint}") from None
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        if not if_not_exists:
            raise click.ClickException(f"topic {name} already exists") from None
        found, is_new = CreatedTopic(name, None, -1, -1), False
    if found.partitions < 0:  # it existed, or the broker is older than Kafka 2.4
        known = (await topics_of(admin, [name]))[name]
        found = CreatedTopic(name, known.id, len(known.partitions), _replication(known))
    return found, is_new


async def _config_hint(admin: Admin, topic: str, configs: Mapping[str, object]) -> str:
    """The error for a config that the broker doesn't know, with a suggestion from those that the topic would have."""
    from ottla_client.admin import NewTopic

    try:
        known = (await admin.create_topics([NewTopic(topic)], validate_only=True))[topic].config_names
    except BrokerError:
        return ""  # the broker's own error says enough
    for name in configs if known else ():
        if name not in known:
            return f"unknown config {name}{did_you_mean(name, known)}"
    return ""


def _configs_elsewhere(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(f"configs are changed by: ottla configs alter TOPIC --set {value}", context)


@topics.command(short_help="Add partitions to a topic.")
@click.argument("name", type=TOPIC)
@click.option(
    "--partitions",
    type=click.IntRange(1, 2**31 - 1),
    required=True,
    metavar="N",
    help="Set the new number of partitions, including the existing ones.",
)
@click.option(
    "-c", "--config", "_", hidden=True, expose_value=False, callback=_configs_elsewhere, is_eager=True
)
@options
async def alter(console: Console, name: str, partitions: int) -> None:
    """Add partitions to a topic. Their number can't be reduced.

    Existing records stay where they are, but new records with the same key may go to another partition, so their order
    by key is lost. To change configs, use `ottla configs alter`.

    \b
    ottla topics alter orders --partitions 12
    """
    async with admin_of(console) as admin:
        before = len((await topics_of(admin, [name]))[name].partitions)
        if partitions == before:
            raise click.ClickException(f"topic {name} already has {plural(before, 'partition')}")
        if partitions < before:
            raise click.ClickException(
                f"topic {name} has {plural(before, 'partition')}, and can't have fewer"
            )
        await admin.create_partitions({name: partitions})
    console.report(
        {"topic": name, "before": before, "partitions": partitions},
        f"topic {name} has {plural(partitions, 'partition')} now, {before} before",
    )


@topics.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME…", type=TOPIC)
@click.option("--if-exists", is_flag=True, help="Ignore topics that don't exist.")
@YES
@options
async def delete(console: Console, names: tuple[str, ...], if_exists: bool, yes: bool) -> None:
    """Delete topics with all their records. Without --yes, the command asks first.

    \b
    ottla topics delete orders
    ottla topics delete test-1 test-2 --if-exists --yes
    """
    async with admin_of(console) as admin:
        known = await admin.list_topics(include_internal=True)
        missing = [name for name in names if name not in known]
        if missing and not if_exists:
            raise unknown_topic(missing[0], known)
        doomed = [name for name in dict.fromkeys(names) if name in known]
        if doomed:
            console.confirm(f"Delete {', '.join(doomed)} with all records?", yes=yes)
            gone = await _delete(admin, doomed, if_exists)
            missing += gone
            doomed = [name for name in doomed if name not in gone]
    for name in dict.fromkeys(missing):
        console.note(f"topic {name} doesn't exist")
    console.report(
        {"deleted": doomed}, *(f"deleted topic {name}" for name in doomed), empty="nothing was deleted"
    )


async def _delete(admin: Admin, names: list[str], if_exists: bool) -> list[str]:
    """Delete topics. Returns those that another program has deleted meanwhile. Raises ClientError."""
    from ottla_client.admin import PartialError

    try:
        await admin.delete_topics(names)
    except ClientError as error:
        errors = error.errors if isinstance(error, PartialError) else {names[0]: error}
        if not if_exists or not all(isinstance(each, UnknownTopicError) for each in errors.values()):
            raise
        return list(errors)
    return []


@topics.command(short_help="Delete records but keep the topic.")
@click.argument("name", type=TOPIC)
@click.option(
    "--before", type=click.IntRange(min=0), metavar="OFFSET", help="Delete the records below this offset."
)
@click.option("--all", "everything", is_flag=True, help="Delete all records.")
@click.option(
    "--partitions", metavar=PARTITIONS, help="Delete records of these partitions only, such as 0,2,4-7."
)
@YES
@options
async def truncate(
    console: Console, name: str, before: int | None, everything: bool, partitions: str | None, yes: bool
) -> None:
    """Delete all records of a topic, or those below an offset. Without --yes, the command asks first.

    Partitions that already start beyond the offset are left unchanged. Kafka refuses this for topics that are only
    compacted.

    \b
    ottla topics truncate orders --all
    ottla topics truncate orders --before 1000 --partitions 0-2
    """
    from ottla_client.admin import OffsetSpec

    if (before is None) is not everything:
        raise click.UsageError("give --before OFFSET or --all")
    numbers = None if partitions is None else numbers_in(partitions, "--partitions")
    async with admin_of(console) as admin:
        wanted = known_partitions({name: numbers}, await topics_of(admin, [name]))
        starts = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.EARLIEST))
        ends = await admin.list_offsets(dict.fromkeys(wanted, OffsetSpec.LATEST))
        cuts = {
            partition: end.offset if before is None else before
            for partition, end in ends.items()
            if starts[partition].offset < (end.offset if before is None else before)
        }
        beyond = [partition for partition, cut in cuts.items() if cut > ends[partition].offset]
        if beyond:
            end = ends[beyond[0]].offset
            raise click.ClickException(f"partition {beyond[0]} ends at offset {end}, before {before}")
        count = sum(cut - starts[partition].offset for partition, cut in cuts.items())
        if cuts:
            console.confirm(f"Delete {plural(count, 'record')} of {name}?", yes=yes)
        try:
            now = await admin.delete_records(cuts) if cuts else {}
        except ClientError as error:
            if not _only_compacted(error):
                raise
            raise click.ClickException(
                f"records of {name} can't be deleted: its cleanup.policy lacks delete; add it by"
                f" `ottla configs alter {name} --append cleanup.policy=delete`, or let compaction remove records"
            ) from None
    number = count_of(console)
    rows = []
    for partition in wanted:
        start = starts[partition].offset
        moved = now.get(partition, start)
        rows.append((partition.partition, start, moved, moved - start))
    console.table(
        ["Partition", *(Column(name, show=number) for name in ("Start before", "Start now", "Deleted"))], rows
    )
