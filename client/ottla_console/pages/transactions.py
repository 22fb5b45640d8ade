"""Transactions with their states, those that hang, and partitions that move between brokers."""

from __future__ import annotations

from collections import Counter

import click
from aiohttp import web

from ottla_cli.cluster.state import MOVES_UNKNOWN
from ottla_cli.shared.timefmt import now_ms
from ottla_client.errors import ClientError
from ottla_client.types import TopicPartition

from ..failures import failure_of
from ..rendering import View
from ..sessions import Change, Session
from ..site import number_in, page_of

_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")


async def transactions(request: web.Request, session: Session) -> View:
    """A page of transactional ids, those with an open transaction first; and what hangs."""
    from ottla_client.admin import PartialError

    admin, watch = session.admin, session.watch
    listed = await watch.transactions.get()
    watch.checks.advance()
    text = request.query.get("q", "")[:250]
    state = request.query.get("state", "")
    names = sorted(
        (
            name
            for name, each in listed.items()
            if text.lower() in name.lower() and (not state or each.state == state)
        ),
        key=lambda name: (listed[name].state not in _OPEN, name),
    )
    part = page_of(request.query, names)
    try:
        details = await admin.describe_transactions(part.rows) if part.rows else {}
    except PartialError as error:  # some have expired, or moved
        details = error.results
    seen = watch.checks.seen
    return View(
        "transactions.html",
        {
            "part": part,
            "listed": listed,
            "details": details,
            "hanging": () if seen is None else seen.hanging,
            "checked": watch.checks.complete,
            "now": now_ms(),
            "q": text,
            "state": state,
            "states": sorted(Counter(each.state for each in listed.values()).items()),
        },
        live=True,
    )


async def moves(request: web.Request, session: Session) -> View:
    """Reassignments under way: which replicas come and go, and how far the new ones are behind."""
    state = await session.watch.state.get()
    moving = sorted((state.moving or {}).items())
    part = page_of(request.query, moving, 100)
    sizes: dict[tuple[TopicPartition, int], int] = {}
    for broker, folders in state.folders.items():
        for folder in folders:
            for partition, log in folder.replicas.items():
                sizes[partition, broker] = log.size
    rows = []
    for partition, each in part.rows:
        topic = state.topics.get(partition.topic)
        place = None if topic is None else topic.partitions.get(partition.partition)
        whole = sizes.get((partition, place.leader)) if place and place.leader is not None else None
        there = [sizes.get((partition, broker), 0) for broker in each.adding]
        share = min(1.0, sum(there) / (whole * len(there))) if whole and there else None
        rows.append({"partition": partition, "move": each, "isr": place.isr if place else (), "share": share})
    failed = (each for each in state.remarks if each.startswith(MOVES_UNKNOWN))
    unknown = next(failed, "").removeprefix(MOVES_UNKNOWN).removesuffix(".")
    return View(
        "moves.html",
        {"part": part, "rows": rows, "supported": state.moving is not None, "unknown": unknown},
        live=True,
    )


async def abort(request: web.Request, session: Session) -> Change:
    """Ask whether to abort a transaction that hangs, and that still does."""
    form = await request.post()
    values = {name: str(form.get(name, "")) for name in ("partition", "producer")}
    partition = TopicPartition(str(form.get("topic", "")), number_in(values, "partition", 0, 0, 2**31 - 1))
    producer = number_in(values, "producer", 0)
    admin = session.admin
    try:
        found = await admin.find_hanging_transactions([partition])
    except ClientError as error:
        raise click.ClickException(failure_of(error).what) from None
    hanging = next((each.producer for each in found if each.producer.producer_id == producer), None)
    if hanging is None:
        raise click.ClickException(
            f"no transaction of producer {producer} hangs in {partition}: it may have ended"
        )

    async def run() -> None:
        await admin.abort_transaction(
            partition,
            producer_id=hanging.producer_id,
            producer_epoch=hanging.producer_epoch,
            coordinator_epoch=hanging.coordinator_epoch,
        )

    return Change(
        f"Abort the transaction of producer {producer} in {partition}",
        [
            f"{partition}: the records of producer {producer} (epoch {hanging.producer_epoch}) from offset"
            f" {hanging.transaction_start_offset:,} on are aborted"
        ],
        run,
        "/transactions",
        {
            "action": "abort-transaction",
            "partition": str(partition),
            "producer_id": producer,
            "start_offset": hanging.transaction_start_offset,
        },
        "Readers with read_committed go on, and never see these records.",
    )
