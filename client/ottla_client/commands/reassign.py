"""``ottla cluster reassign`` and ``drain``: move partitions between brokers. Plans are made in `reassignment_plan`."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from ottla_protocol.errors import ErrorCode

from ..errors import BrokerError, ClientError
from .admin_common import (
    admin_of,
    known_partitions,
    numbers_in,
    plural,
    show_partitions,
    topics_of,
    without_repeats,
)
from .cluster_state import log_dirs
from .completion import complete_topics
from .console import Console, options, run, unknown
from .elect import wanted_partitions
from .progress import amount_of_bytes
from .reassignment_files import read_plan, write_plan
from .reassignment_plan import Move, PlanError, balanced, drained
from .tables import Column
from .throttle import lift_if_possible
from .throttle import throttle as throttle_moves

if TYPE_CHECKING:
    from ..admin import Admin, PartitionReassignment
    from ..types import TopicMetadata, TopicPartition

    Replicas = tuple[int, ...]

# Seconds between two looks at what still moves.
_EVERY: Final = 0.5
# How often brokers are asked whether they have learnt of the last move, in pauses of _EVERY.
_LOOKS: Final = 10
# How many partitions that still move are named beside the progress bar.
_NAMED: Final = 3


def _plan_options(command: Any) -> Any:
    """What `reassign` and `drain` have in common."""
    for option in (
        click.option("--execute", is_flag=True, help="Do it; without it, only show what would be done."),
        click.option("--no-wait", is_flag=True, help="With --execute: end when all moves have begun."),
        click.option(
            "--throttle",
            type=click.IntRange(min=1),
            metavar="BYTES",
            help="With --execute: copy no more than so many bytes a second from and to each broker.",
        ),
        click.option("--save", metavar="FILE", help="Write the plan to FILE, in Kafka's JSON."),
        click.option("--save-current", metavar="FILE", help="Write what there is now to FILE: the way back."),
    )[::-1]:
        command = option(command)
    return command


@click.command(short_help="Spread partitions over brokers.")
@click.option(
    "--topic",
    "--topics",
    "topics",
    multiple=True,
    metavar="TOPIC[:0,2,4-7]",
    shell_complete=complete_topics,
    help="What to spread, by default all topics; may be repeated.",
)
@click.option("--brokers", metavar="1,2,4-7", help="The brokers to be on, by default all there are.")
@click.option(
    "--file",
    "source",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="A plan in the JSON of kafka-reassign-partitions; - is standard input.",
)
@_plan_options
@click.option("--verify", is_flag=True, help="Only tell what still moves, or how far the plan of --file is.")
@click.option("--cancel", is_flag=True, help="Stop what moves, back to the replicas there were before.")
@options
def reassign(
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
    """Move partitions, so that brokers have equally many replicas and lead equally many of them.

    As few replicas move as that takes; where all brokers have racks, the replicas of a partition are in as many
    racks as can be. Without --execute, the plan is only shown. With it, the command waits until all replicas are
    where they should be; Ctrl-C ends the waiting, not the moving. A preferred replica, the first one, leads when it
    is elected: see "ottla cluster elect".

    --verify ends with 1 as long as something moves, or isn't as the plan of --file says. --cancel and --verify are
    for what --topic or --file say, else for all. A --throttle is removed when all has moved; after --no-wait and
    Ctrl-C that is for --verify or --cancel to do, once nothing moves any more.

    \b
    ottla cluster reassign
    ottla cluster reassign --topic orders --brokers 1,2,4-7 --save plan.json
    ottla cluster reassign --file plan.json --save-current before.json --execute
    ottla cluster reassign --verify
    """
    if verify + cancel + execute > 1:
        raise click.UsageError("one of --execute, --verify and --cancel, at most")
    if source is not None and (topics or brokers):
        raise click.UsageError(
            "a plan from --file has its topics and brokers; leave out --topic and --brokers"
        )
    if (verify or cancel) and (brokers or save or save_current or no_wait):
        raise click.UsageError(
            "--verify and --cancel make no plan: --topic and --file are all that goes with them"
        )
    _check_goes_with_execute(execute, no_wait, throttle)
    wanted = wanted_partitions(topics)
    plan = None if source is None else read_plan(source)
    if verify:
        run(_verify(console, wanted, plan))
    elif cancel:
        run(_cancel(console, wanted, plan))
    else:
        to = None if brokers is None else numbers_in(brokers, "--brokers", "brokers")
        run(_reassign(console, wanted, to, plan, _Doing(execute, not no_wait, save, save_current, throttle)))


def _check_goes_with_execute(execute: bool, no_wait: bool, throttle: int | None) -> None:
    for option, given in (("--no-wait", no_wait), ("--throttle", throttle is not None)):
        if given and not execute:
            raise click.UsageError(f"{option} goes with --execute")


@click.command(short_help="Move everything off a broker.")
@click.argument("brokers", metavar="BROKER…", nargs=-1, required=True, type=click.IntRange(min=0))
@_plan_options
@options
def drain(
    console: Console,
    brokers: tuple[int, ...],
    execute: bool,
    no_wait: bool,
    throttle: int | None,
    save: str | None,
    save_current: str | None,
) -> None:
    """Move everything off a broker, or several, before they are taken away; they may be dead already.

    What is on them goes to the brokers with the fewest replicas, with racks kept apart; nothing else moves. Without
    --execute, the plan is only shown. With it, the command waits until the broker has nothing any more; Ctrl-C ends
    the waiting, not the moving. New topics may be put on the broker as long as it runs.

    \b
    ottla cluster drain 3
    ottla cluster drain 3 --execute
    ottla cluster drain 3 4 --save-current before.json --execute --no-wait
    """
    _check_goes_with_execute(execute, no_wait, throttle)
    run(_drain(console, brokers, _Doing(execute, not no_wait, save, save_current, throttle)))


class _Doing:
    """What to do with a plan."""

    def __init__(
        self, execute: bool, wait: bool, save: str | None, save_current: str | None, throttle: int | None
    ) -> None:
        self.execute, self.wait, self.save, self.save_current = execute, wait, save, save_current
        self.throttle = throttle


# Making plans ---------------------------------------------------------------------------------------------------------


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


async def _drain(console: Console, leaving: Collection[int], doing: _Doing) -> None:
    async with admin_of(console) as admin:
        racks = {node.id: node.rack for node in (await admin.describe_cluster()).nodes}
        topics = await admin.list_topics(include_internal=True)
        current = _replicas(known_partitions(dict.fromkeys(topics), topics), topics)
        holding = {broker for replicas in current.values() for broker in replicas}
        for broker in leaving:
            if broker not in racks and broker not in holding:
                raise unknown("broker", str(broker), map(str, racks))
        for tp, replicas in current.items():
            gone = set(replicas) - racks.keys() - set(leaving)
            if gone and not set(replicas).isdisjoint(leaving):
                raise click.ClickException(f"broker {min(gone)} has a replica of {tp} too, and is not there")
        moves = _planned(lambda: drained(current, racks, leaving))
        await _carry_out(console, admin, {move.partition: move.old for move in moves}, moves, doing)


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
                f"broker {broker} is not there; the cluster has {', '.join(map(str, sorted(there)))}"
            )


def _refuse_if_down(down: Collection[int]) -> None:
    """A broker that is down for a moment would lose all that it has, if nobody said that it should."""
    if down:
        raise click.ClickException(
            f"broker {', '.join(map(str, sorted(down)))} has replicas and is not there: wait for it, "
            "or say by --brokers where they are to go"
        )


# Carrying them out ----------------------------------------------------------------------------------------------------


async def _carry_out(
    console: Console,
    admin: Admin,
    current: Mapping[TopicPartition, Replicas],
    moves: list[Move],
    doing: _Doing,
) -> None:
    """Show a plan, and if that is wished begin it and wait for its end."""
    moving = await admin.list_partition_reassignments(current)
    if moving and moves:
        raise click.ClickException(
            f"{_are(moving)} moving already: wait (ottla cluster reassign --verify), or stop it (--cancel)"
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
        console.note("nothing is changed; add --execute to do it")
    if console.as_json:
        console.emit(
            {
                "executed": bool(moves) and doing.execute,
                "copies": copies,
                "bytes": size,
                "moves": [
                    {
                        "topic": move.partition.topic,
                        "partition": move.partition.partition,
                        "old_replicas": move.old,
                        "replicas": move.new,
                    }
                    for move in moves
                ],
            }
        )


def _show_plan(console: Console, moves: list[Move], copies: int, size: int | None) -> None:
    rows = [(m.partition.topic, m.partition.partition, m.old, m.new) for m in moves]
    console.table(
        [Column("Topic"), Column("Partition"), Column("Old"), Column("New")],
        without_repeats(console, rows),
        empty="everything is where it should be",
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
            console.note("all moves have begun; ottla cluster reassign --verify tells what still moves")
            return
        await _wait(console, admin, moves)
    except asyncio.CancelledError:
        # Those too whose beginning has not been confirmed yet.
        console.note(
            "the moves go on; ottla cluster reassign --cancel stops them, --verify tells how far they are"
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
    """The bytes that brokers have to copy; None if those that have them don't tell."""
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
    from ..admin import PartialError

    try:
        await admin.alter_partition_reassignments({move.partition: move.new for move in moves})
    except PartialError as error:
        if error.results:
            console.note(
                f"{plural(len(error.results), 'partition')} of {len(moves)} began to move; "
                "ottla cluster reassign --cancel stops that"
            )
        raise


async def _wait(console: Console, admin: Admin, moves: list[Move]) -> None:
    """Until nothing of it moves any more, however long that takes."""
    partitions = [move.partition for move in moves]
    with console.progress("moving", total=len(moves), unit="partitions") as bar:
        while moving := await admin.list_partition_reassignments(partitions):
            bar.update(len(moves) - len(moving), note=_named(moving))
            await asyncio.sleep(_EVERY)


async def _look_at_result(console: Console, admin: Admin, moves: list[Move]) -> None:
    """Say how it ended. Brokers learn of the last move a moment after the controller."""
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
            f"{_are([move.partition for move in left])} elsewhere: somebody else has stopped or changed that"
        )
    console.note(f"{plural(len(moves), 'partition')} changed")
    others = sum(
        topics[move.partition.topic].partitions[move.partition.partition].leader != move.new[0]
        for move in moves
    )
    if others:
        console.note(
            f"{plural(others, 'partition')} not led by the preferred replica yet: ottla cluster elect"
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
    """The same as the subject of a sentence."""
    return f"{_named(partitions)} {'is' if len(partitions) == 1 else 'are'}"


# --verify and --cancel ------------------------------------------------------------------------------------------------


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
    rows = [
        (
            tp.topic,
            tp.partition,
            replicas,
            _now(topics, tp),
            _progress_of(moving.get(tp), replicas, _now(topics, tp)),
        )
        for tp, replicas in sorted(plan.items())
    ]
    columns = [Column("Topic"), Column("Partition"), Column("Plan"), Column("Now"), Column("State")]
    console.table(columns, without_repeats(console, rows))
    left = [row for row in rows if row[-1] != "done"]
    if left:
        raise click.ClickException(f"{plural(len(left), 'partition')} of {len(rows)} not as planned")


def _progress_of(moving: PartitionReassignment | None, plan: Replicas, now: Replicas | None) -> str:
    if moving is not None:
        return "moving" if moving.target == plan else "moving elsewhere"
    return "done" if now == plan else "not begun"


async def _cancel(
    console: Console,
    wanted: Mapping[str, Collection[int] | None],
    plan: Mapping[TopicPartition, Replicas] | None,
) -> None:
    from ..admin import PartialError

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
            # What has come to its end meanwhile has nothing to be stopped.
            if (
                not isinstance(failure, BrokerError)
                or failure.code is not ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            ):
                raise failure
        await _lift(console, admin, {tp.topic for tp in moving})
    rows = [
        (tp.topic, tp.partition, each.target, tuple(b for b in each.replicas if b not in each.adding))
        for tp, each in moving.items()
        if tp not in errors
    ]
    columns = [Column("Topic"), Column("Partition"), Column("Was to be", "plan"), Column("Stays", "replicas")]
    console.table(columns, without_repeats(console, rows), empty="nothing moves")
    if rows:
        console.note(f"{plural(len(rows), 'move')} stopped")


async def _moving(
    admin: Admin, wanted: Mapping[str, Collection[int] | None], plan: Collection[TopicPartition] | None
) -> dict[TopicPartition, PartitionReassignment]:
    """What moves, of these topics or this plan if there are any, else of all."""
    if plan is not None:
        return await admin.list_partition_reassignments(plan)
    partitions = known_partitions(wanted, await topics_of(admin, wanted)) if wanted else None
    return await admin.list_partition_reassignments(partitions)


def _show_moving(console: Console, moving: Mapping[TopicPartition, PartitionReassignment]) -> None:
    console.table(
        [
            Column("Topic"),
            Column("Partition"),
            Column("Replicas"),
            Column("Come", "adding"),
            Column("Go", "removing"),
        ],
        without_repeats(
            console, [(tp.topic, tp.partition, m.replicas, m.adding, m.removing) for tp, m in moving.items()]
        ),
        empty="nothing moves",
    )
