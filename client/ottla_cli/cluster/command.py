"""``ottla cluster``: the state of the cluster, once or continuously. `reassign` and `elect` change it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from ottla_client.errors import ClientError
from ottla_protocol.api_keys import api_title

from ..shared.admin import admin_of, count_of, live_view, plural, ranges_of
from ..shared.client_options import option_group
from ..shared.progress import amount_of_bytes
from ..shared.tables import Column
from ..shared.terminal import Console, one_line, options, to_json
from .doctor.command import doctor
from .elect import elect
from .reassign import drain, reassign
from .state import KINDS, ClusterState, document, look

if TYPE_CHECKING:
    from ottla_client.admin import VersionRange

    from ..shared.rich_output import LiveView


_looking = option_group(
    click.option("--apis", is_flag=True, help="Show the APIs that brokers serve, with versions."),
    click.option("--watch", is_flag=True, help="Keep showing the state until Ctrl-C."),
    click.option(
        "--interval",
        type=click.FloatRange(min=0.1),
        default=2,
        show_default=True,
        metavar="SECONDS",
        help="Set the interval of --watch.",
    ),
)


@click.group(invoke_without_command=True)
@_looking
@options
@click.pass_context
async def cluster(context: click.Context, console: Console, apis: bool, watch: bool, interval: float) -> None:
    """Show brokers and unhealthy partitions, move partitions, and elect leaders. The default subcommand is describe.

    \b
    ottla cluster
    ottla cluster --watch
    ottla cluster doctor                      check everything
    ottla cluster reassign --execute          spread partitions evenly
    ottla cluster drain 3 --execute           move everything off broker 3
    ottla cluster elect                       make preferred replicas leaders
    """
    if context.invoked_subcommand is None:
        await _describe(console, apis, watch, interval)


cluster.add_command(reassign)
cluster.add_command(drain)
cluster.add_command(elect)
cluster.add_command(doctor)


@cluster.command(short_help="Show brokers, sizes and unhealthy partitions.")
@_looking
@options
async def describe(console: Console, apis: bool, watch: bool, interval: float) -> None:
    """Show the cluster's id, controller, brokers with their sizes, and unhealthy partitions.

    A partition is offline when it has no leader; below-min-isr when fewer replicas are in sync than the topic's
    min.insync.replicas, so that acks=all fails; under-replicated when not all of its replicas are in sync. On KRaft,
    any broker may be shown as the controller, because brokers forward requests to it.

    With --watch, the view is refreshed at a terminal. Elsewhere one line is printed each time, with --json one
    document per line.

    \b
    ottla cluster describe
    ottla cluster describe --apis -b kafka-1:9092 --json
    ottla cluster describe --watch --interval 1
    """
    await _describe(console, apis, watch, interval)


async def _describe(console: Console, apis: bool, watch: bool, interval: float) -> None:
    if apis and watch:
        raise click.UsageError("--apis and --watch exclude each other: APIs don't change while a broker runs")
    if watch:
        await _watch(console, interval)
        return
    async with admin_of(console) as admin:
        state = await look(admin)
        served = await admin.describe_apis() if apis else {}
    for remark in state.remarks:
        console.note(remark)
    if console.as_json:
        console.emit(document(state, served))
        return
    console.details(_facts(state))
    for columns, rows in _tables(console, state):
        console.print()
        console.table(columns, rows)
    if apis:
        console.print()
        _show_apis(console, served)


Table = tuple[Sequence[Column], Sequence[tuple[Any, ...]]]


def _facts(state: ClusterState) -> dict[str, Any]:
    facts = {
        "Cluster id": state.description.cluster_id,
        "Controller": state.description.controller_id,
        "Brokers": f"{len(state.description.nodes)}" + _not_running(state),
        "Topics": f"{len(state.topics):,}, {plural(state.partitions, 'partition')}",
        "Partitions": _health(state),
    }
    if state.not_preferred:
        facts["Leaders"] = f"{state.not_preferred:,} not the preferred replica"
    if state.moving:
        facts["Moving"] = plural(len(state.moving), "partition")
    return facts


def _not_running(state: ClusterState) -> str:
    """``" (not running: 3)"``, or nothing while all brokers run."""
    return f" (not running: {', '.join(map(str, state.down))})" if state.down else ""


def _health(state: ClusterState) -> str:
    if not state.problems:
        return "all replicas in sync"
    return ", ".join(f"{state.count(kind)} {kind}" for kind in KINDS)


def _tables(console: Console, state: ClusterState) -> list[Table]:
    number = count_of(console)
    brokers: Table = (
        [
            Column("Broker"),
            Column("Address", show=lambda address: address),
            Column("Rack"),
            Column("Leads", show=number, right=True),
            Column("Replicas", show=number, right=True),
            Column("Size", show=amount_of_bytes, right=True),
            Column("Free", show=amount_of_bytes, right=True),
        ],
        [tuple(value for name, value in row.items() if name != "controller") for row in state.brokers],
    )
    problems: Table = (
        [
            Column("Topic"),
            Column("Partition"),
            Column("Problem", style=lambda kind: "" if kind == "under-replicated" else "red"),
            Column("Leader", right=True),
            Column("Replicas"),
            Column("ISR"),
            Column("Min ISR", right=True),
        ],
        state.problems,
    )
    return [brokers, problems] if state.problems else [brokers]


async def _watch(console: Console, interval: float) -> None:
    """Show the state until Ctrl-C. Failures to reach the cluster are shown, and retried."""
    live = live_view(console)
    async with admin_of(console) as admin:
        with live or nullcontext():
            while True:
                try:
                    _show(console, live, await look(admin))
                except ClientError as error:
                    _show_failure(console, live, one_line(error))
                await asyncio.sleep(interval)


def _show(console: Console, live: LiveView | None, state: ClusterState) -> None:
    now = _now()
    if console.as_json:
        console.print(to_json({"time": now, **document(state)}))
    elif live is None:
        facts = [
            plural(len(state.description.nodes), "broker") + _not_running(state),
            f"controller {'-' if state.description.controller_id is None else state.description.controller_id}",
            plural(state.partitions, "partition"),
            _health(state),
        ]
        if state.not_preferred:
            facts.append(f"{state.not_preferred:,} not led by the preferred replica")
        if state.moving:
            facts.append(f"{len(state.moving):,} moving")
        console.print(f"{now}  {', '.join(facts)}")
    else:
        from rich.text import Text

        from ..shared.rich_output import table_of

        facts_shown = _facts(state)
        width = max(map(len, facts_shown))
        lines = [f"{name:<{width}}  {Column(name).text(value)}" for name, value in facts_shown.items()]
        tables = [table_of(columns, rows, "") for columns, rows in _tables(console, state)]
        last = [Text(remark, style="dim") for remark in (*state.remarks, f"{now}, Ctrl-C ends it")]
        live.show(
            [Text("\n".join(lines)), *(part for table in tables for part in (Text(), table)), Text(), *last]
        )


def _show_failure(console: Console, live: LiveView | None, reason: str) -> None:
    now = _now()
    if console.as_json:
        console.print(to_json({"time": now, "error": reason}))
    elif live is None:
        console.print(f"{now}  no answer: {reason}")
    else:
        from rich.text import Text

        live.show(
            [
                Text("no answer", style="red"),
                Text(reason),
                Text(),
                Text(f"{now}, Ctrl-C ends it", style="dim"),
            ]
        )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _show_apis(console: Console, served: Mapping[int, Mapping[int, VersionRange]]) -> None:
    """One column for all brokers that serve the same versions."""
    alike: dict[tuple[tuple[int, VersionRange], ...], list[int]] = {}
    for node, ranges in served.items():
        alike.setdefault(tuple(ranges.items()), []).append(node)
    titles = ["Versions"] if len(alike) == 1 else [f"Broker {ranges_of(nodes)}" for nodes in alike.values()]
    keys = sorted({key for ranges in served.values() for key in ranges})
    console.table(
        [Column("Key"), Column("API"), *(Column(title, show=_show_range) for title in titles)],
        [(key, api_title(key), *(dict(ranges).get(key) for ranges in alike)) for key in keys],
    )


def _show_range(versions: VersionRange) -> str:
    return f"{versions.first}-{versions.last}" if versions.first < versions.last else str(versions.first)
