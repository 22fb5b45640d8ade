"""Groups of every generation: lag over time, members, resetting offsets, deleting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from aiohttp import web

from ottla_cli.groups import reset_plans
from ottla_cli.groups.places import (
    Kept,
    as_description,
    check_stopped,
    in_zookeeper,
    kept,
    places_of,
    set_places,
)
from ottla_cli.shared.admin import duration_in, known_partitions, partitions_in
from ottla_cli.shared.timefmt import now_ms
from ottla_client.errors import ClientError
from ottla_client.types import IN_ZOOKEEPER, TopicPartition
from ottla_protocol.printable import shown_name

from ..failures import Failure
from ..rendering import View, link
from ..search import local_time, zone
from ..sessions import Change, Session
from ..site import number_in, page_of

if TYPE_CHECKING:
    from ottla_client.admin import GroupDescription, PartitionLag

_MOST_MEMBERS = 200
_READS_ON = "The group reads on from these offsets: records are read again, or skipped."
_WARNINGS = {
    Kept.OFFSETS: _READS_ON,
    Kept.STARTS: f"{_READS_ON} What is known of single records after them is forgotten.",
    Kept.EITHER: _READS_ON,
    Kept.ZOOKEEPER: f"{_READS_ON} Brokers don't know whether consumers of Kafka 0.8 run: stop them first.",
}
RESETS = ("earliest", "latest", "offset", "time", "duration", "shift")


async def groups(request: web.Request, session: Session) -> View:
    """A page of groups with their lags, those with members first."""
    watch = session.watch
    listed = await watch.groups.get()
    text = request.query.get("q", "")[:250]
    state = request.query.get("state", "")
    names = sorted(
        (
            name
            for name, group in listed.items()
            if text.lower() in name.lower() and (not state or group.state == state)
        ),
        key=lambda name: (listed[name].state in ("Empty", "Dead"), name),
    )
    part = page_of(request.query, names)
    lags = await watch.lags_of({name: kept(listed[name]) for name in part.rows})
    rows = [
        {
            "name": name,
            "group": listed[name],
            "failed": str(lags[name]) if isinstance(lags[name], ClientError) else "",
            "history": watch.histories.get(name),
            "trace": watch.traces.get(name),
        }
        for name in part.rows
    ]
    return View(
        "groups.html",
        {
            "part": part,
            "rows": rows,
            "q": text,
            "state": state,
            "states": sorted(Counter(group.state for group in listed.values()).items()),
        },
        live=True,
    )


async def group(request: web.Request, session: Session) -> View:
    """One group: partitions with lag, members, and forms to change it."""
    name = request.query.get("id")
    if name is None:
        raise click.BadParameter("which group? Its name is missing behind /group?id=")
    watch = session.watch
    described, where = await _described(session, name)
    if described is None:
        action = "It may have been deleted. The list of groups has all that you may see."
        failure = Failure(404, f"unknown group {name[:250]!r}", action)
        return View("failed.html", {"failure": failure}, status=failure.status)
    is_listed = bool(described.state)
    found: Mapping[TopicPartition, PartitionLag] | ClientError
    if is_listed:
        found = (await watch.lags_of({name: where}))[name]
    else:
        found = await session.admin.group_lag(name, offsets=await in_zookeeper(session.admin, name))
    if isinstance(found, ClientError):
        raise found
    owners = {p: member for member in described.members for p in member.assignment}
    lags = sorted(found.items(), key=lambda item: (-(item[1].records or 0), item[0]))
    part = page_of(request.query, lags, 100)
    return View(
        "group.html",
        {
            "name": name,
            "group": described,
            "is_listed": is_listed,
            "is_unlisted": described.protocol_type == IN_ZOOKEEPER,
            "where": where,
            "members": described.members[:_MOST_MEMBERS],
            "more_members": max(0, len(described.members) - _MOST_MEMBERS),
            "part": part,
            "owners": owners,
            "history": watch.histories.get(name),
            "trace": watch.traces.get(name),
            "topics": sorted({p.topic for p in found}),
            "zone": zone(),
        },
        # Asking for offsets in ZooKeeper takes brokers too long to do it again and again.
        live=is_listed,
    )


async def _described(session: Session, name: str) -> tuple[GroupDescription | None, Kept]:
    """A group, and where its offsets are. One that has only offsets in ZooKeeper is without a state.

    None: there is no such group.
    """
    from ottla_client.admin import GroupDescription, is_unknown_group

    admin, unlisted = session.admin, session.watch.unlisted.get(name)
    if unlisted is not None:
        return as_description(name, unlisted), Kept.ZOOKEEPER
    try:
        described = (await admin.describe_groups([name]))[name]
    except ClientError as error:
        if not is_unknown_group(error):
            raise
    else:
        return described, kept(described)
    if not await in_zookeeper(admin, name):
        return None, Kept.ZOOKEEPER
    return GroupDescription(name, "", IN_ZOOKEEPER, "", -1, (), ""), Kept.ZOOKEEPER


def _plan(form: Any) -> tuple[reset_plans.Plan, str]:
    """The way in which offsets are to be reset, and its words."""
    kind = str(form.get("to", ""))
    text = str(form.get("value", "")).strip()
    if kind == "earliest":
        return reset_plans.to_earliest, "to the first record"
    if kind == "latest":
        return reset_plans.to_latest, "to the end"
    if kind == "offset":
        offset = number_in({"offset": text}, "offset", 0)
        return reset_plans.to_offset(offset), f"to offset {offset:,}"
    if kind == "time":
        return reset_plans.to_time(local_time(text)), f"to {text}"
    if kind == "duration":
        return reset_plans.to_time(now_ms() - duration_in(text, "value")), f"to {text} ago"
    if kind == "shift":
        digits = text.removeprefix("-").removeprefix("+")
        if not digits.isdecimal() or not digits.isascii() or len(digits) > 18:
            raise click.BadParameter(f"value is {text[:40]!r}; a number such as -100 is needed")
        return reset_plans.shift(int(text)), f"by {int(text):+,}"
    raise click.BadParameter(f"to is {kind[:40]!r}; it is one of {', '.join(RESETS)}")


async def reset(request: web.Request, session: Session) -> Change:
    """Compute the new offsets, and ask whether to set them. Exactly those that were shown are set."""
    form = await request.post()
    name = str(form.get("id", ""))
    plan, how = _plan(form)
    admin = session.admin
    described, where = await _described(session, name)
    if described is None:
        raise click.BadParameter(f"unknown group {name[:250]!r}")
    committed = await places_of(admin, name, where)
    chosen = str(form.get("topic", "")).strip()
    there = await admin.list_topics(include_internal=True)
    if chosen:
        topic, numbers = partitions_in(chosen, "topic")
        if topic not in there:
            raise click.BadParameter(f"unknown topic {topic[:250]!r}")
        partitions = known_partitions({topic: numbers}, there)
    else:
        partitions = reset_plans.still_there(committed, there)
    if not partitions:
        raise click.BadParameter(f"group {shown_name(name)} has not committed any offsets; name a topic")
    check_stopped(described, "reset its offsets")
    now = await reset_plans.gather_now(admin, committed, partitions)
    new = reset_plans.within(now, await plan(now))
    lags = await reset_plans.lag_after(now, new)

    async def run() -> None:
        await set_places(admin, name, where, new)

    def line(p: TopicPartition, offset: int) -> str:
        before = f"{committed[p].offset:,}" if p in committed else "none"
        return f"{p}: {before} → {offset:,} (lag then {lags[p]:,})"

    return Change(
        f"Reset the offsets of group {shown_name(name)} {how}",
        [line(p, offset) for p, offset in sorted(new.items())],
        run,
        link("/group", id=name),
        {
            "action": "reset-offsets",
            "group": name,
            "offsets": {str(p): offset for p, offset in sorted(new.items())},
            "before": {str(p): committed[p].offset for p in sorted(new) if p in committed},
        },
        _WARNINGS[where],
    )


async def delete(request: web.Request, session: Session) -> Change:
    name = str((await request.post()).get("id", ""))
    unlisted = session.watch.unlisted.get(name)
    described = (
        (await session.admin.describe_groups([name]))[name]
        if unlisted is None
        else as_description(name, unlisted)
    )
    check_stopped(described, "delete it")
    committed = await session.admin.list_group_offsets(name)

    async def run() -> None:
        await session.admin.delete_groups([name])

    return Change(
        f"Delete group {shown_name(name)}",
        [f"{p}: committed offset {each.offset:,} is lost" for p, each in sorted(committed.items())]
        or ["It has no committed offsets."],
        run,
        "/groups",
        {"action": "delete-group", "group": name},
        "Its committed offsets can't be brought back.",
    )
