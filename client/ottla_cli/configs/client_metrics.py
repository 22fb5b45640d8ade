"""``ottla configs client-metrics``: list, describe, alter, delete."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from ottla_client.suggestions import did_you_mean
from ottla_protocol.printable import shown_name

from ..shared.admin import admin_of
from ..shared.terminal import YES, Console, options, unknown

if TYPE_CHECKING:
    from ottla_client.admin import Admin

METRICS, INTERVAL, MATCH = "metrics", "interval.ms", "match"
MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
_MATCH: Final = re.compile(r"([a-z_]+)=([^=,]+)")
_LEAST_MS, _MOST_MS = 100, 3_600_000


@click.group("client-metrics", short_help="Ask clients for their metrics (KIP-714).")
def client_metrics() -> None:
    """Have clients push their metrics to the brokers: list, describe, alter and delete subscriptions (KIP-714).

    A subscription names metrics by prefixes, an interval, and the clients that it is for. Clients of Kafka from 3.7 on
    and librdkafka from 2.5 on push what they are asked for, unless enable.metrics.push is false. An Ottla broker shows
    it on /metrics, if it has metrics.listener.

    \b
    ottla configs client-metrics list
    ottla configs client-metrics alter slow --metrics org.apache.kafka.producer.
    """


@client_metrics.command("list", short_help="List subscriptions.")
@options
async def list_client_metrics(console: Console) -> None:
    """List the subscriptions to clients' metrics.

    \b
    ottla configs client-metrics list --json
    """
    async with admin_of(console) as admin:
        names = await admin.list_client_metrics()
        found = [(name, *(await _settings(admin, name)).values()) for name in names]
    console.table(["Name", "Metrics", "Interval", "Match"], found, empty="no subscriptions")


@client_metrics.command(short_help="Show a subscription.")
@click.argument("name")
@options
async def describe(console: Console, name: str) -> None:
    """Show the metrics, the interval in ms, and the clients of a subscription.

    \b
    ottla configs client-metrics describe slow-producers
    """
    async with admin_of(console) as admin:
        names = await admin.list_client_metrics()
        if name not in names:
            raise unknown("subscription", name, names)
        found = await _settings(admin, name)
    console.details({"Name": name, **found})


async def _settings(admin: Admin, name: str) -> dict[str, str | int | None]:
    from ottla_client.admin import ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    configs = (await admin.describe_configs([resource]))[resource]
    return {
        "Metrics": configs[METRICS].value or None,
        "Interval": int(configs[INTERVAL].value or 0),
        "Match": configs[MATCH].value or None,
    }


@client_metrics.command(short_help="Create or change a subscription.")
@click.argument("name")
@click.option(
    "--metrics",
    multiple=True,
    metavar="PREFIX",
    help="Subscribe to the metrics whose names begin like this; * for all. Repeat it for several.",
)
@click.option(
    "--interval",
    type=click.IntRange(_LEAST_MS, _MOST_MS),
    metavar="MS",
    help="Set how often clients push; new subscriptions have 300000.",
)
@click.option(
    "--match",
    multiple=True,
    metavar="WHAT=REGEX",
    help="Subscribe only clients that match, such as client_id=billing-.*. Repeat it for several conditions.",
)
@options
async def alter(
    console: Console, name: str, metrics: tuple[str, ...], interval: int | None, match: tuple[str, ...]
) -> None:
    """Create a subscription, or change one; what isn't named stays.

    WHAT is client_id, client_instance_id, client_software_name, client_software_version, client_source_address or
    client_source_port. A client has to meet all conditions, and gets the metrics of all subscriptions that match it, at
    the shortest of their intervals.

    \b
    ottla configs client-metrics alter slow-producers --metrics org.apache.kafka.producer. --interval 60000
    ottla configs client-metrics alter java --metrics '*' --match client_software_name=apache-kafka-java
    """
    from ottla_client.admin import AlterConfig, ConfigResource, ResourceType

    for condition in match:
        found = _MATCH.fullmatch(condition)
        if found is None or found[1] not in MATCHED:
            hint = did_you_mean(condition.partition("=")[0], MATCHED)
            raise click.BadParameter(
                f"{condition!r}: write one of {', '.join(MATCHED)}, =, and an expression{hint}",
                param_hint="--match",
            )
    values: dict[str, str | None] = {}
    if metrics:
        values[METRICS] = ",".join(metrics)
    if interval is not None:
        values[INTERVAL] = str(interval)
    if match:
        values[MATCH] = ",".join(match)
    if not values:
        raise click.UsageError("say what to change: --metrics, --interval or --match")
    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    async with admin_of(console) as admin:
        await admin.alter_configs({resource: [AlterConfig(key, value) for key, value in values.items()]})
    console.report({"name": name, "set": values}, f"subscription {shown_name(name)} set", aside=True)


@client_metrics.command(short_help="Delete a subscription.")
@click.argument("name")
@YES
@options
async def delete(console: Console, name: str, yes: bool) -> None:
    """Delete a subscription: clients stop pushing for it. Without --yes, the command asks first.

    \b
    ottla configs client-metrics delete slow-producers --yes
    """
    from ottla_client.admin import AlterConfig, AlterOperation, ConfigResource, ResourceType

    resource = ConfigResource(ResourceType.CLIENT_METRICS, name)
    async with admin_of(console) as admin:
        names = await admin.list_client_metrics()
        if name not in names:
            raise unknown("subscription", name, names)
        console.confirm(f"Delete subscription {shown_name(name)}?", yes=yes)
        await admin.alter_configs(
            {resource: [AlterConfig(key, None, AlterOperation.DELETE) for key in (METRICS, INTERVAL, MATCH)]}
        )
    console.report({"deleted": [name]}, f"subscription {shown_name(name)} deleted", aside=True)
