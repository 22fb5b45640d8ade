"""One member's way from the partitions it has to those its target gives it. Kafka: ``CurrentAssignmentBuilder``.

A member first gives up what the target doesn't give it, then takes what is free, then waits for the rest::

    assigned    = what it has ∩ target
    to give up  = what it has - assigned
    to take     = target - assigned - what other members have

Each heartbeat takes one step::

    state                    may move when                        from epoch
    STABLE                   the target is of another epoch       its own
    UNREVOKED_PARTITIONS     it has given up what was asked       its own + 1
    UNRELEASED_PARTITIONS    always                               its own

    then: to give up?   waits for others?   next state               its epoch
    yes                 either              UNREVOKED_PARTITIONS     the one it moves from
    no                  yes                 UNRELEASED_PARTITIONS    the target's
    no                  no                  STABLE                   the target's

So no partition has two owners: it is free only once the member that had it confirms, by naming the partitions that it
still has, that it has given it up, or leaves, or loses its session.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla_broker.coordinator.group.modern.member import ConsumerMember, Partitions
from ottla_broker.coordinator.group.modern.states import MemberState

_NONE: frozenset[int] = frozenset()


def still_has(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether a member that names ``owned`` has any of these partitions; it may have, if it names none (None)."""
    if owned is None:
        return True
    return any(not indexes.isdisjoint(owned.get(topic, _NONE)) for topic, indexes in partitions.items())


class MustRejoin(Exception):
    """The member's state is one that only a newer broker knows: it has to give up all partitions and join again."""


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    is_free: Callable[[bytes, int], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    """The member after one step towards ``target``; the same object if it can't move.

    ``is_free(topic_id, partition)``: no member has the partition. ``owned``: the partitions that the member says it
    has; None if it doesn't say. The module's docstring has the table of steps. Raises MustRejoin.
    """
    if member.state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise MustRejoin
        return _step(member, target_epoch, target_epoch, target, is_free, owned)
    epoch = member.epoch
    if member.state is MemberState.STABLE and epoch == target_epoch:
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if still_has(owned, member.revoking):
            return member
        epoch += 1
    moved = _step(member, epoch, target_epoch, target, is_free, owned)
    is_same = (moved.epoch, moved.state, moved.assigned, moved.revoking) == (
        member.epoch,
        member.state,
        member.assigned,
        member.revoking,
    )
    # Waiting again for the same partitions is no step: the member's previous epoch stays valid.
    return member if is_same and moved.state is MemberState.UNRELEASED_PARTITIONS else moved


def _step(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    is_free: Callable[[bytes, int], bool],
    owned: Partitions | None,
) -> ConsumerMember:
    keep: dict[bytes, frozenset[int]] = {}
    give_up: dict[bytes, frozenset[int]] = {}
    take: dict[bytes, frozenset[int]] = {}
    waits = False
    for topic in {**target, **member.assigned}:
        wanted, has = target.get(topic, _NONE), member.assigned.get(topic, _NONE)
        if kept := has & wanted:
            keep[topic] = kept
        if revoked := has - wanted:
            give_up[topic] = revoked
        missing = wanted - has
        if missing:
            free = frozenset(index for index in missing if is_free(topic, index))
            waits = waits or len(free) < len(missing)
            if free:
                take[topic] = free
    must_give_up = bool(give_up) and still_has(owned, give_up)
    if must_give_up:
        return member.moved_to(epoch, MemberState.UNREVOKED_PARTITIONS, keep, give_up)
    for topic, indexes in take.items():
        keep[topic] = keep.get(topic, _NONE) | indexes
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return member.moved_to(target_epoch, state, keep, {})
