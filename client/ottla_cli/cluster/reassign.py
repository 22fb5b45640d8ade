"""``ottla cluster reassign`` and ``drain``: move partitions between brokers. Plans are made in `reassignment_plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ottla_client.errors import BrokerError, ClientError
from ottla_protocol.errors import ErrorCode

from ..shared.admin import (
    admin_of,
    known_partitions,
    numbers_in,
    partitions_option,
    plural,
    show_partitions,
    topics_of,
    wanted_partitions,
    without_repeats,
)
from ..shared.client_options import option_group
from ..shared.progress import amount_of_bytes
from ..shared.tables import Column
from ..shared.terminal import Console, options, unknown
from .reassignment_files import read_plan, write_plan
from .reassignment_plan import Move, PlanError, balanced, drained
from .state import log_dirs
from .throttle import lift_if_possible
from .throttle import throttle as throttle_moves

if TYPE_CHECKING:
    from ottla_client.admin import Admin, PartitionReassignment
    from ottla_client.types import TopicMetadata, TopicPartition

    Replicas = tuple[int, ...]

# Seconds between two checks of the moves.
_EVERY: Final = 0.5
# How many times brokers are asked, every _EVERY seconds, whether they know of the last move.
_LOOKS: Final = 10
# How many moving partitions are named beside the progress bar.
_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class _Doing:
    """The ways to use a plan."""

    execute: bool
    wait: bool
    save: str | None
    save_current: str | None
    throttle: int | None

    def __post_init__(self) -> None:
        for option, given in (("--no-wait", not self.wait), ("--throttle", self.throttle is not None)):
            if given and not self.execute:
                raise click.UsageError(f"{option} needs --execute")


_plan_options = option_group(
    click.option("--execute", is_flag=True, help="Carry out the plan. Without it, the plan is only shown."),
    click.option("--no-wait", is_flag=True, help="With --execute, end as soon as all moves have begun."),
    click.option(
        "--throttle",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="With --execute, limit copying from and to each broker to this many bytes per second.",
    ),
    click.option("--save", metavar="FILE", help="Write the plan to FILE in Kafka's JSON."),
    click.option(
        "--save-current", metavar="FILE", help="Write the current assignment to FILE, to go back to."
    ),
)
"""The options of both `reassign` and `drain`."""


@click.command(short_help="Spread partitions evenly over brokers.")
@partitions_option(
    help="Spread this topic, by default all topics. Repeat it for several.",
)
@click.option("--brokers", metavar="1,2,4-7", help="Spread over these brokers, by default all.")
@click.option(
    "--file",
    "source",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Read a plan in the JSON of kafka-reassign-partitions; - is standard input.",
)
@_plan_options
@click.option(
    "--verify",
    is_flag=True,
    help="Only show what is still moving, or how much of the plan in --file is done.",
)
@click.option("--cancel", is_flag=True, help="Stop moves and go back to the replicas before them.")
@options
async def reassign(
    console: Console,
    topics: tuple[str, ...],
    brokers: str | None,
    source: TextIO | None,
    execute: bool,
    no_wait: bool,
    throttle: int | None,
    save: str | None,
    save_current: str | None,
    verify: bool,
    cancel: bool,
) -> None:
    """Move partitions so that all brokers have the same number of replicas and of preferred leaders.

    As few replicas as possible move. Where all brokers have racks, the replicas of a partition are spread over as many
    racks as possible. Without --execute, the plan is only shown. With it, the command waits until all moves are done;
    Ctrl-C ends the wait, not the moves. To make the preferred replicas leaders, use "ottla cluster elect".

    --verify exits with 1 while partitions are moving or differ from the plan in --file. --cancel and --verify apply to
    --topic or --file, and without these to everything. A --throttle is removed at the end of the moves; after
    --no-wait or Ctrl-C, --verify and --cancel remove it once nothing is moving.

    \b
    ottla cluster reassign
    ottla cluster reassign --topic orders --brokers 1,2,4-7 --save plan.json
    ottla cluster reassign --file plan.json --save-current before.json --execute
    ottla cluster reassign --verify
    """
    if verify + cancel + execute > 1:
        raise click.UsageError("give at most one of --execute, --verify and --cancel")
    if source is not None and (topics or brokers):
        raise click.UsageError(
            "a plan from --file names its topics and brokers; leave out --topic and --brokers"
        )
    if (verify or cancel) and (brokers or save or save_current or no_wait):
        raise click.UsageError("--verify and --cancel make no plan; they take only --topic and --file")
    doing = _Doing(execute, not no_wait, save, save_current, throttle)
    wanted = wanted_partitions(topics)
    plan = None if source is None else read_plan(source)
    if verify:
        await _verify(console, wanted, plan)
    elif cancel:
        await _cancel(console, wanted, plan)
    else:
        to = None if brokers is None else numbers_in(brokers, "--brokers", "brokers")
        await _reassign(console, wanted, to, plan, doing)


@click.command(short_help="Move everything off a broker.")
@click.argument("brokers", metavar="BROKER…", nargs=-1, required=True, type=click.IntRange(min=0))
@_plan_options
@options
async def drain(
    console: Console,
    brokers: tuple[int, ...],
    execute: bool,
    no_wait: bool,
    throttle: int | None,
    save: str | None,
    save_current: str | None,
) -> None:
    """Move everything off one or more brokers before they are removed. The brokers may already be dead.

    Their replicas go to the brokers with the fewest, spread over racks; nothing else moves. Without --execute, the
    plan is only shown. With it, the command waits until the brokers are empty; Ctrl-C ends the wait, not the moves.
    New topics may still be placed on a broker while it runs.

    \b
    ottla cluster drain 3
    ottla cluster drain 3 --execute
    ottla cluster drain 3 4 --save-current before.json --execute --no-wait
    """
    doing = _Doing(execute, not no_wait, save, save_current, throttle)
    async with admin_of(console) as admin:
        racks = {node.id: node.rack for node in (await admin.describe_cluster()).nodes}
        topics = await admin.list_topics(include_internal=True)
        current = _replicas(known_partitions(dict.fromkeys(topics), topics), topics)
        holding = {broker for replicas in current.values() for broker in replicas}
        for broker in brokers:
            if broker not in racks and broker not in holding:
                raise unknown("broker", str(broker), map(str, racks))
        for tp, replicas in current.items():
            gone = set(replicas) - racks.keys() - set(brokers)
            if gone and not set(replicas).isdisjoint(brokers):
                raise click.ClickException(
                    f"broker {min(gone)} also has a replica of {tp}, and isn't running"
                )
        moves = _planned(lambda: drained(current, racks, brokers))
        await _carry_out(console, admin, {move.partition: move.old for move in moves}, moves, doing)


async def _reassign(
    console: Console,
    wanted: Mapping[str, Collection[int] | None],
    brokers: Collection[int] | None,
    plan: Mapping[TopicPartition, Replicas] | None,
    doing: _Doing,
) -> None:
    async with admin_of(console) as admin:
        racks = {node.id: node.rack for node in (await admin.describe_cluster()).nodes}
        if plan is not None:
            topics = await topics_of(admin, {tp.topic for tp in plan})
            current = _replicas(known_partitions(_by_topic(plan), topics), topics)
            moves = [Move(tp, current[tp], new) for tp, new in sorted(plan.items()) if new != current[tp]]
            for move in moves:
                _check_there(move.adding, racks)
        else:
            topics = (
                await topics_of(admin, wanted) if wanted else await admin.list_topics(include_internal=True)
            )
            current = _replicas(known_partitions(wanted or dict.fromkeys(topics), topics), topics)
            if brokers is None:
                _refuse_if_down({b for replicas in current.values() for b in replicas} - racks.keys())
                brokers = list(racks)
            _check_there(brokers, racks)
            moves = _planned(lambda: balanced(current, {b: racks[b] for b in sorted(brokers)}))
        await _carry_out(console, admin, current, moves, doing)


def _planned(make: Any) -> list[Move]:
    try:
        moves: list[Move] = make()
    except PlanError as error:
        raise click.ClickException(str(error)) from None
    return moves


def _replicas(
    partitions: Collection[TopicPartition], topics: Mapping[str, TopicMetadata]
) -> dict[TopicPartition, Replicas]:
    return {tp: topics[tp.topic].partitions[tp.partition].replicas for tp in partitions}


def _by_topic(plan: Collection[TopicPartition]) -> dict[str, Collection[int] | None]:
    topics: dict[str, list[int]] = {}
    for topic, partition in plan:
        topics.setdefault(topic, []).append(partition)
    return dict(topics)


def _check_there(brokers: Collection[int], there: Collection[int]) -> None:
    for broker in brokers:
        if broker not in there:
            raise click.ClickException(
                f"broker {broker} isn't running; the cluster has {', '.join(map(str, sorted(there)))}"
            )


def _refuse_if_down(down: Collection[int]) -> None:
    """Refuse to plan while a broker is down: a brief outage would otherwise move everything off it."""
    if down:
        raise click.ClickException(
            f"broker {', '.join(map(str, sorted(down)))} has replicas and isn't running: wait for it, "
            "or name the brokers for its replicas with --brokers"
        )


async def _carry_out(
    console: Console,
    admin: Admin,
    current: Mapping[TopicPartition, Replicas],
    moves: list[Move],
    doing: _Doing,
) -> None:
    """Show a plan, and with --execute carry it out and wait for its end."""
    moving = await admin.list_partition_reassignments(current)
    if moving and moves:
        raise click.ClickException(
            f"{_are(moving)} already moving: wait (ottla cluster reassign --verify), or stop the moves (--cancel)"
        )
    if doing.save_current is not None:
        write_plan(doing.save_current, {move.partition: move.old for move in moves})
    if doing.save is not None:
        write_plan(doing.save, {move.partition: move.new for move in moves})
    copies = sum(len(move.adding) for move in moves)
    size = await _size(admin, moves) if copies else 0
    if not console.as_json:
        _show_plan(console, moves, copies, size)
    if moves and doing.execute:
        await _execute(console, admin, moves, doing)
    elif moves:
        console.note("nothing was changed; add --execute to carry it out")
    if console.as_json:
        listed = [
            {**move.partition._asdict(), "old_replicas": move.old, "replicas": move.new} for move in moves
        ]
        executed = bool(moves) and doing.execute
        console.emit({"executed": executed, "copies": copies, "bytes": size, "moves": listed})


def _show_plan(console: Console, moves: list[Move], copies: int, size: int | None) -> None:
    rows = [(m.partition.topic, m.partition.partition, m.old, m.new) for m in moves]
    console.table(
        ["Topic", "Partition", "Old", "New"],
        without_repeats(console, rows),
        empty="nothing to move",
    )
    if moves:
        if console.is_terminal:
            console.print()
        amount = "" if size is None else f", {amount_of_bytes(size)}"
        what = f"{plural(copies, 'replica')} to copy{amount}" if copies else "only the order of replicas"
        console.note(f"{plural(len(moves), 'partition')} to change: {what}")


async def _execute(console: Console, admin: Admin, moves: list[Move], doing: _Doing) -> None:
    if doing.throttle is not None:
        await throttle_moves(admin, moves, doing.throttle)
    try:
        try:
            await _begin(console, admin, moves)
        except ClientError:
            await _lift(console, admin, {move.partition.topic for move in moves})
            raise
        if not doing.wait:
            console.note("all moves have begun; ottla cluster reassign --verify shows what is still moving")
            return
        await _wait(console, admin, moves)
    except asyncio.CancelledError:
        # Including moves whose start isn't confirmed yet.
        console.note(
            "the moves continue; ottla cluster reassign --cancel stops them, --verify shows their progress"
        )
        raise
    if doing.throttle is not None:
        await _lift(console, admin, {move.partition.topic for move in moves})
    await _look_at_result(console, admin, moves)


async def _lift(console: Console, admin: Admin, topics: Collection[str]) -> None:
    line = await lift_if_possible(admin, topics)
    if line is not None:
        console.note(line)


async def _size(admin: Admin, moves: list[Move]) -> int | None:
    """The bytes that brokers have to copy; None if their brokers don't report sizes."""
    needed = [move for move in moves if move.adding]
    sizes: dict[TopicPartition, int] = {}
    there = {node.id for node in (await admin.describe_cluster()).nodes}
    for folders in (await log_dirs(admin, [], there & {b for move in needed for b in move.old})).values():
        for folder in folders:
            for tp, log in folder.replicas.items():
                sizes[tp] = max(sizes.get(tp, 0), log.size)
    if not all(move.partition in sizes for move in needed):
        return None
    return sum(sizes[move.partition] * len(move.adding) for move in needed)


async def _begin(console: Console, admin: Admin, moves: list[Move]) -> None:
    from ottla_client.admin import PartialError

    try:
        await admin.alter_partition_reassignments({move.partition: move.new for move in moves})
    except PartialError as error:
        if error.results:
            console.note(
                f"{plural(len(error.results), 'partition')} of {len(moves)} began to move; "
                "ottla cluster reassign --cancel stops them"
            )
        raise


async def _wait(console: Console, admin: Admin, moves: list[Move]) -> None:
    """Wait until none of the partitions is moving, however long that takes."""
    partitions = [move.partition for move in moves]
    with console.progress("moving", total=len(moves), unit="partitions") as bar:
        while moving := await admin.list_partition_reassignments(partitions):
            bar.update(len(moves) - len(moving), note=_named(moving))
            await asyncio.sleep(_EVERY)


async def _look_at_result(console: Console, admin: Admin, moves: list[Move]) -> None:
    """Report the result. Brokers learn of the last move a moment after the controller."""
    left: list[Move] = []
    topics: dict[str, TopicMetadata] = {}
    for look in range(_LOOKS):
        if look:
            await asyncio.sleep(_EVERY)
        topics = await topics_of(admin, {move.partition.topic for move in moves})
        left = [move for move in moves if _now(topics, move.partition) != move.new]
        if not left:
            break
    if left:
        raise click.ClickException(
            f"{_are([move.partition for move in left])} elsewhere: another program stopped or changed the moves"
        )
    console.note(f"{plural(len(moves), 'partition')} changed")
    others = sum(
        topics[move.partition.topic].partitions[move.partition.partition].leader != move.new[0]
        for move in moves
    )
    if others:
        console.note(
            f"{plural(others, 'partition')} not yet led by the preferred replica: ottla cluster elect"
        )


def _now(topics: Mapping[str, TopicMetadata], tp: TopicPartition) -> Replicas | None:
    topic = topics.get(tp.topic)
    partition = None if topic is None else topic.partitions.get(tp.partition)
    return None if partition is None else partition.replicas


def _named(partitions: Collection[TopicPartition]) -> str:
    """``orders:0-2``, ``14 partitions``"""
    few = len(partitions) <= _NAMED
    return show_partitions(partitions) if few else plural(len(partitions), "partition")


def _are(partitions: Collection[TopicPartition]) -> str:
    """The partitions as the subject of a sentence, with its verb."""
    return f"{_named(partitions)} {'is' if len(partitions) == 1 else 'are'}"


async def _verify(
    console: Console,
    wanted: Mapping[str, Collection[int] | None],
    plan: Mapping[TopicPartition, Replicas] | None,
) -> None:
    async with admin_of(console) as admin:
        if plan is None:
            moving = await _moving(admin, wanted, None)
            _show_moving(console, moving)
            if moving:
                raise click.ClickException(f"{_are(moving)} still moving")
            await _lift(console, admin, wanted or await admin.list_topics(include_internal=True))
            return
        topics = await topics_of(admin, {tp.topic for tp in plan})
        known_partitions(_by_topic(plan), topics)
        moving = await admin.list_partition_reassignments(plan)
        if not moving:
            await _lift(console, admin, topics)
    rows = []
    for tp, replicas in sorted(plan.items()):
        now = _now(topics, tp)
        state = "done" if now == replicas else "not begun"
        if tp in moving:
            state = "moving" if moving[tp].target == replicas else "moving elsewhere"
        rows.append((tp.topic, tp.partition, replicas, now, state))
    columns = ["Topic", "Partition", "Plan", "Now", "State"]
    console.table(columns, without_repeats(console, rows))
    left = [row for row in rows if row[-1] != "done"]
    if left:
        raise click.ClickException(f"{plural(len(left), 'partition')} of {len(rows)} not as planned")


async def _cancel(
    console: Console,
    wanted: Mapping[str, Collection[int] | None],
    plan: Mapping[TopicPartition, Replicas] | None,
) -> None:
    from ottla_client.admin import PartialError

    async with admin_of(console) as admin:
        moving = await _moving(admin, wanted, plan)
        errors: Mapping[Any, ClientError] = {}
        try:
            if moving:
                await admin.alter_partition_reassignments(dict.fromkeys(moving))
        except PartialError as error:
            errors = error.errors
        except BrokerError as error:
            errors = {next(iter(moving)): error}
        for failure in errors.values():
            # A move that has ended meanwhile can't be stopped.
            code = getattr(failure, "code", None)
            if code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:
                raise failure
        await _lift(console, admin, {tp.topic for tp in moving})
    rows = [
        (tp.topic, tp.partition, each.target, tuple(b for b in each.replicas if b not in each.adding))
        for tp, each in moving.items()
        if tp not in errors
    ]
    columns: list[Column | str] = [
        "Topic",
        "Partition",
        Column("Was to be", "plan"),
        Column("Stays", "replicas"),
    ]
    console.table(columns, without_repeats(console, rows), empty="nothing moves")
    if rows:
        console.note(f"{plural(len(rows), 'move')} stopped")


async def _moving(
    admin: Admin, wanted: Mapping[str, Collection[int] | None], plan: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionReassignment]:
    """The moves of these topics or this plan, or all moves without them."""
    if plan is not None:
        return await admin.list_partition_reassignments(plan)
    partitions = known_partitions(wanted, await topics_of(admin, wanted)) if wanted else None
    return await admin.list_partition_reassignments(partitions)


def _show_moving(console: Console, moving: Mapping[TopicPartition, PartitionReassignment]) -> None:
    console.table(
        ["Topic", "Partition", "Replicas", Column("Come", "adding"), Column("Go", "removing")],
        without_repeats(
            console, [(tp.topic, tp.partition, m.replicas, m.adding, m.removing) for tp, m in moving.items()]
        ),
        empty="nothing moves",
    )
