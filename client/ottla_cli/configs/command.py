"""``ottla configs``: describe and alter configs of topics, brokers and groups, and what metrics clients push."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from html import unescape
from shutil import get_terminal_size
from time import monotonic
from typing import TYPE_CHECKING, Final

import click

from ottla_client.errors import BrokerError, UnknownTopicError
from ottla_protocol.errors import ErrorCode
from ottla_protocol.printable import printable

from ..shared.admin import admin_of, plural
from ..shared.client_options import pair
from ..shared.completion import complete_groups
from ..shared.tables import Column
from ..shared.terminal import Console, options, unknown, unknown_topic
from ..shared.timefmt import unit_hint
from ..shared.topic_checks import TOPIC
from .client_metrics import client_metrics

if TYPE_CHECKING:
    from ottla_client.admin import Admin, AlterConfig, ConfigEntry, ConfigResource

# Kafka's own texts are HTML.
_TAG: Final = re.compile(r"</?[a-z][^>]*>", re.IGNORECASE)
_WIDEST: Final = 100
_SETTLE_SECONDS: Final = 1.0
"""The longest wait for a change to show. Changes that have no effect take this long."""

_BROKER_HELP = "Use a broker instead of a topic: its id, or `default` for the settings of all brokers."
_GROUP_HELP = "Use a group of the consumer protocol or a share group instead of a topic."


@click.group()
def configs() -> None:
    """Show and change the configs of topics, brokers and groups, and which metrics clients push.

    \b
    ottla configs describe orders
    ottla configs alter orders --set retention.ms=86400000
    ottla configs client-metrics list
    """


configs.add_command(client_metrics)


def _resource(topic: str | None, broker: str | None, group: str | None) -> ConfigResource:
    from ottla_client.admin import ConfigResource, ResourceType

    if sum(each is not None for each in (topic, broker, group)) != 1:
        raise click.UsageError("give one of TOPIC, --broker ID and --group GROUP")
    if topic is not None:
        return ConfigResource.topic(topic)
    if group is not None:
        return ConfigResource(ResourceType.GROUP, group)
    if broker != "default" and not str(broker).isdecimal():
        raise click.BadParameter(f"{broker!r} is neither a broker's id nor `default`", param_hint="--broker")
    return ConfigResource.broker(None if broker == "default" else int(str(broker)))


async def _checked(admin: Admin, resource: ConfigResource) -> None:
    """An unknown broker ends the command, with the ids of the brokers."""
    if resource.node is not None:
        nodes = [str(node.id) for node in (await admin.describe_cluster()).nodes]
        if resource.name not in nodes:
            raise click.ClickException(f"unknown broker {resource.name}; the cluster has {', '.join(nodes)}")


async def _configs_of(
    admin: Admin, resource: ConfigResource, *, documentation: bool = False
) -> dict[str, ConfigEntry]:
    await _checked(admin, resource)
    try:
        found = await admin.describe_configs([resource], include_documentation=documentation)
    except UnknownTopicError:
        pass  # raised below, with the nearest name that exists
    else:
        return found[resource]
    raise unknown_topic(resource.name, await admin.list_topics(include_internal=True))


@configs.command(short_help="Show configs that aren't defaults, or all of them.")
@click.argument("topic", required=False, type=TOPIC)
@click.option("--broker", metavar="ID", help=_BROKER_HELP)
@click.option("--group", metavar="GROUP", help=_GROUP_HELP, shell_complete=complete_groups)
@click.option(
    "--all", "everything", is_flag=True, help="Show configs at their defaults as well, after the others."
)
@click.option("--docs", is_flag=True, help="Print what each config means, where the broker says so.")
@options
async def describe(
    console: Console,
    topic: str | None,
    broker: str | None,
    group: str | None,
    everything: bool,
    docs: bool,
) -> None:
    """Show the configs of a topic, broker or group that aren't at their defaults. --all adds the others.

    SOURCE says where a value was set: topic and group mean on it itself, static_broker in the broker's configuration
    file, dynamic_broker and dynamic_default_broker by `ottla configs alter --broker`.

    \b
    ottla configs describe orders
    ottla configs describe orders --all --docs
    ottla configs describe --broker 1 --json
    """
    from ottla_client.admin import ResourceType

    resource = _resource(topic, broker, group)
    async with admin_of(console) as admin:
        found = await _configs_of(admin, resource, documentation=docs)
    entries = sorted(found.values(), key=lambda entry: (entry.is_default, entry.name))
    shown = [entry for entry in entries if everything or not entry.is_default]
    if docs and shown and not console.as_json:
        for entry in shown:
            _explain(console, entry)
        return
    of_brokers = resource.type is ResourceType.BROKER or console.as_json
    console.table(
        [
            "Config",
            "Value",
            Column("Source", style=lambda source: "dim" if source == "default" else ""),
            *(["Read-only"] if of_brokers else []),
            *([Column("Meaning", "documentation")] if docs else []),
        ],
        [
            (
                entry.name,
                _value(console, entry),
                entry.source.name.lower(),
                *([entry.is_read_only] if of_brokers else []),
                *([entry.documentation] if docs else []),
            )
            for entry in shown
        ],
        empty=f"{resource}: all configs are at their defaults; --all shows them" if entries else "no configs",
    )
    if shown and len(shown) < len(entries) and not console.as_json:
        if console.is_terminal:
            console.print()
        console.note(f"{plural(len(entries) - len(shown), 'config')} at the default; --all shows them too")


def _explain(console: Console, entry: ConfigEntry) -> None:
    """A config with its documentation, as text: a table would be too wide."""
    value = Column("").text(_value(console, entry))
    console.print(f"{entry.name} = {value}  ({entry.source.name.lower()})")
    if entry.documentation:
        text = unescape(_TAG.sub("", entry.documentation))
        width = min(get_terminal_size().columns, _WIDEST)
        console.write(click.wrap_text(printable(" ".join(text.split())), width, "    ", "    ") + "\n")
    console.print()


def _value(console: Console, entry: ConfigEntry) -> str | None:
    return "(hidden)" if entry.is_sensitive and not console.as_json else entry.value


@configs.command(short_help="Change single configs.")
@click.argument("topic", required=False, type=TOPIC)
@click.option("--broker", metavar="ID", help=_BROKER_HELP)
@click.option("--group", metavar="GROUP", help=_GROUP_HELP, shell_complete=complete_groups)
@click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Set a config.")
@click.option("--delete", "deletes", multiple=True, metavar="KEY", help="Reset a config to its default.")
@click.option(
    "--append", "appends", multiple=True, metavar="KEY=VALUE", help="Add values to a config that is a list."
)
@click.option(
    "--subtract",
    "subtracts",
    multiple=True,
    metavar="KEY=VALUE",
    help="Remove values from a config that is a list.",
)
@click.option("--dry-run", is_flag=True, help="Let the broker validate the changes without making them.")
@options
async def alter(
    console: Console,
    topic: str | None,
    broker: str | None,
    group: str | None,
    sets: tuple[str, ...],
    deletes: tuple[str, ...],
    appends: tuple[str, ...],
    subtracts: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Change configs of a topic, broker or group. Those that aren't named stay as they are. Repeat options for several.

    \b
    ottla configs alter orders --set retention.ms=86400000 --delete segment.bytes
    ottla configs alter orders --append cleanup.policy=compact
    ottla configs alter --broker 1 --set log.cleaner.threads=2 --dry-run
    ottla configs alter --group packers --set share.auto.offset.reset=earliest
    """
    from ottla_client.admin import AlterConfig, AlterOperation, ResourceType

    changes = [
        *(AlterConfig(*pair(text, "--set")) for text in sets),
        *(AlterConfig(key, None, AlterOperation.DELETE) for key in deletes),
        *(AlterConfig(*pair(text, "--append"), AlterOperation.APPEND) for text in appends),
        *(AlterConfig(*pair(text, "--subtract"), AlterOperation.SUBTRACT) for text in subtracts),
    ]
    if not changes:
        raise click.UsageError("nothing to do: give --set, --delete, --append or --subtract")
    resource = _resource(topic, broker, group)
    async with admin_of(console) as admin:
        before = await _configs_of(admin, resource)
        # For all brokers Kafka lists only what is set, so an absent name says nothing.
        known = before if resource.name else await _broker_configs(admin)
        for change in changes:
            # Brokers list no settings of listeners that aren't set; they check the names themselves.
            of_listener = resource.type is ResourceType.BROKER and change.name.startswith("listener.name.")
            if change.name not in known and not of_listener:
                raise unknown("config", change.name, known)
        try:
            await admin.alter_configs({resource: changes}, validate_only=dry_run)
        except BrokerError as error:
            if error.code is ErrorCode.INVALID_CONFIG and (
                hint := unit_hint({change.name: change.value for change in changes})
            ):
                raise click.ClickException(f"{resource}: {hint}") from None
            raise
        after = before if dry_run else await _configs_after(admin, resource, before, changes)
    names = dict.fromkeys(change.name for change in changes)
    if dry_run:
        console.note("the broker accepts this; nothing was changed")
        return
    console.table(
        ["Config", "Before", "Now"],
        [
            (name, *(_value(console, e) if (e := each.get(name)) else None for each in (before, after)))
            for name in names
        ],
    )


async def _configs_after(
    admin: Admin,
    resource: ConfigResource,
    before: Mapping[str, ConfigEntry],
    changes: Sequence[AlterConfig],
) -> dict[str, ConfigEntry]:
    """The configs after the changes. Kafka's brokers apply them a moment later, when their controller reports them."""
    deadline = monotonic() + _SETTLE_SECONDS
    while True:
        after = await _configs_of(admin, resource)
        if monotonic() > deadline or all(
            (now := after.get(change.name)) != before.get(change.name)
            or (now is not None and now.value == change.value)
            for change in changes
        ):
            return after
        await asyncio.sleep(0.05)


async def _broker_configs(admin: Admin) -> dict[str, ConfigEntry]:
    """The configs that brokers know."""
    from ottla_client.admin import ConfigResource

    nodes = (await admin.describe_cluster()).nodes
    some = ConfigResource.broker(nodes[0].id)
    return (await admin.describe_configs([some]))[some]
