"""The three steps that a change of a group may need: look up its topics, compute its target, move a member on.

Kafka: ``GroupMetadataManager.consumerGroupHeartbeat``, ``TargetAssignmentBuilder``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.coordinator.group.modern import records
from ottla_broker.coordinator.group.modern.assignors import ASSIGNORS
from ottla_broker.coordinator.group.modern.change import Change
from ottla_broker.coordinator.group.modern.member import ConsumerMember, Partitions
from ottla_broker.coordinator.group.modern.patterns import Matcher
from ottla_broker.coordinator.group.modern.reconciliation import MustRejoin, reconcile
from ottla_broker.coordinator.group.modern.specs import MemberSpec, TopicSpec
from ottla_broker.coordinator.group.modern.topics import SubscribedTopic, TopicsView
from ottla_broker.events import get_logger
from ottla_protocol.errors import ErrorCode, KafkaError

_log = get_logger()

_MOST_MATCHES: Final = 20_000
"""Names that regular expressions are matched against for one request, beyond the first expression."""


def refresh_topics(
    change: Change,
    topics: TopicsView,
    now_ms: int,
    may_see: Callable[[str], bool] | None = None,
    matcher: Matcher | None = None,
) -> bool:
    """Look up the topics that the group consumes; returns whether they have changed.

    ``may_see`` says which topics the client that asks may know of; ``matcher`` finds those of regular expressions.
    Without it, regular expressions keep what they matched until a member's next heartbeat, as some of very many, or
    slow ones, do. Raises KafkaError: INVALID_REGULAR_EXPRESSION.
    """
    complete = not change.after.used_regexes
    if may_see is not None and matcher is not None:
        complete = _resolve_regexes(change, topics, now_ms, may_see, matcher)
    found: dict[str, SubscribedTopic] = {}
    for name in sorted(change.after.subscribed_names()):
        topic = topics.find(name)
        if topic is not None:
            found[name] = topic
    if complete:
        change.metadata_version = topics.version
    if found == change.after.topics:
        return False
    change.add(records.topics(change.group_id, found))
    return True


def _resolve_regexes(
    change: Change, topics: TopicsView, now_ms: int, may_see: Callable[[str], bool], matcher: Matcher
) -> bool:
    """Match the group's regular expressions against the topics there are, and forget those without a member.

    Returns whether all are matched: of very many, and of slow ones, some are left for the next heartbeat.
    """
    matcher.begin_request()
    after = change.after
    used = set(after.used_regexes)
    for text in [text for text in after.regexes if text not in used]:
        change.add(records.without_regex(change.group_id, text))
    names = list(topics.names())
    looked_at = 0
    # First those that have matched nothing yet: their members wait for partitions.
    for text in sorted(used, key=lambda text: (text in after.regexes, text)):
        before = after.regexes.get(text)
        if before is not None and before.version == topics.version:
            continue
        if looked_at and looked_at + len(names) > _MOST_MATCHES:
            return False
        looked_at += len(names)
        found = matcher.resolve(text, topics.version, names)
        if found is None:
            return False
        matched = tuple(name for name in found if may_see(name))
        if before is None or before.topics != matched:
            change.add(records.regex(change.group_id, text, matched, topics.version, now_ms))
        else:
            after.regexes[text] = before._replace(version=topics.version)
    return True


def update_target(change: Change, default_assignor: str) -> None:
    """Compute the target for the group's epoch if there is none yet, and write the parts of it that have changed."""
    after = change.after
    if after.epoch <= after.assignment_epoch:
        return
    by_subscription: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
    specs = {}
    for member_id, member in after.members.items():
        key = (member.topics, member.regex)
        ids = by_subscription.get(key)
        if ids is None:
            names = after.names_of(member)
            ids = by_subscription[key] = frozenset(
                after.topics[name].topic_id for name in names if name in after.topics
            )
        specs[member_id] = MemberSpec(
            ids, after.target.get(member_id, {}), member.instance_id, member.rack_id
        )
    topics = {topic.topic_id: TopicSpec(topic.partitions, topic.racks) for topic in after.topics.values()}
    assignor = after.preferred_assignor()
    if assignor is None or assignor not in ASSIGNORS:
        assignor = default_assignor
    target = ASSIGNORS[assignor](specs, topics)
    changed = [
        records.target(change.group_id, member_id, partitions)
        for member_id, partitions in target.items()
        if after.target.get(member_id) != partitions
    ]
    change.add(*changed, records.target_epoch(change.group_id, after.epoch))
    _log.info(
        "target assignment computed",
        group=change.group_id,
        epoch=after.epoch,
        assignor=assignor,
        members=len(specs),
        changed=len(changed),
    )


def reconcile_member(change: Change, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
    """Move a member one step towards its target. Raises KafkaError: FENCED_MEMBER_EPOCH."""
    after = change.after
    if member.is_reconciled_to(after.assignment_epoch):
        return member
    target = after.target.get(member.member_id, {})
    try:
        moved = reconcile(member, after.assignment_epoch, target, after.is_free, owned)
    except MustRejoin as error:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and"
            " rejoin.",
        ) from error
    change.move_member(moved)
    return moved
