"""Builds the coordinators of groups and share groups, and what they need of the broker.

Only :mod:`ottla_broker.coordinators` imports this, and not before they are needed: see
:mod:`ottla_broker.coordinator.on_demand`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ottla_broker.api_parts.share_services import ShareServices
from ottla_broker.config.group_configs import group_times, sets_heartbeat_interval, share_settings
from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.modern.settings import GroupTimes
from ottla_broker.coordinator.group.modern.topics import CachedTopics
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.share.deleted_topics import DeletedTopics
from ottla_broker.coordinator.group.share.groups import ShareGroups
from ottla_broker.coordinator.group.share.offsets import ShareOffsets
from ottla_broker.coordinator.old_consumers import OldConsumers
from ottla_broker.coordinator.on_demand import OnDemand
from ottla_broker.coordinator.share.persister import Persister, ShareCoordinators
from ottla_broker.coordinator.share.sessions import ShareSessions
from ottla_broker.coordinator.share.settings import KeptSettings
from ottla_broker.coordinator.share.share_partitions import SharePartitions
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator, StateSettings
from ottla_broker.coordinator.share.state_logs import StateLogs
from ottla_broker.coordinator_environment import CoordinatorEnvironment
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC


class Groups(NamedTuple):
    """The coordinators of groups; ``shares``, ``deleted_topics``: None if share groups aren't served."""

    coordinator: GroupCoordinator
    shares: ShareServices | None
    deleted_topics: DeletedTopics | None

    def on_partitions_deleted(self, topic: str, partitions: Sequence[int]) -> None:
        """A topic was deleted: forget what groups have of it."""
        if self.deleted_topics is not None:
            self.deleted_topics.on_partitions_deleted(topic, partitions)
        self.coordinator.on_partitions_deleted(topic, partitions)


def make_groups(
    environment: CoordinatorEnvironment, demand: OnDemand[Groups], old_consumers: OldConsumers
) -> Groups:
    """Build the coordinators of groups, and start them unless ``demand`` is closed."""
    config, metadata = environment.config, environment.metadata

    def times_of(group_id: str) -> GroupTimes:
        own = metadata.group_configs.get(group_id, {})
        session, heartbeat = group_times(config, own)
        return GroupTimes(session, heartbeat, not sets_heartbeat_interval(config, own))

    shares, share_groups, deleted = (
        _make_shares(environment, demand) if config.group_share_enable else (None, None, None)
    )
    settings = GroupSettings.from_config(config)
    made = GroupCoordinator(
        settings,
        environment.clock,
        environment.random,
        partial(environment.partitions_of, OFFSETS_TOPIC, settings.topic_partitions),
        CachedTopics(metadata),
        times_of,
        share_groups,
    )
    made.admission.old_consumers = old_consumers
    demand.listeners.append(made)
    if not demand.is_closed:
        made.start()
        demand.stopping.append(made.stop)
    return Groups(made, shares, deleted)


def _make_shares(
    environment: CoordinatorEnvironment, demand: OnDemand[Groups]
) -> tuple[ShareServices, ShareGroups, DeletedTopics]:
    """Build the share coordinator, and what leaders and the group coordinator need for share groups."""
    config, clock, metadata = environment.config, environment.clock, environment.metadata

    def times_of(group_id: str) -> GroupTimes:
        found = share_settings(config, metadata.group_configs.get(group_id, {}))
        return GroupTimes(found.session_timeout_ms, found.heartbeat_interval_ms)

    settings = StateSettings.from_config(config)
    coordinator = ShareStateCoordinator(
        settings,
        clock,
        partial(environment.partitions_of, SHARE_STATE_TOPIC, settings.topic_partitions),
        StateLogs(partial(environment.replicas.partition, SHARE_STATE_TOPIC)).delete_before,
    )
    coordinators: ShareCoordinators = coordinator
    if environment.member is not None:
        coordinators = environment.member.share_state_transport(
            coordinator, partial(environment.leader_of, SHARE_STATE_TOPIC), settings.write_timeout_ms
        )
    persister = Persister(
        coordinators, partial(environment.controller.ensure_topic, SHARE_STATE_TOPIC), clock
    )
    partitions = SharePartitions(
        persister,
        KeptSettings(metadata.group_configs, partial(share_settings, config)),
        clock,
        environment.run,
        environment.in_turns,
    )
    groups = ShareGroups(
        persister, times_of, CachedTopics(metadata), lambda: config.group_share_max_size, clock
    )
    deleted = DeletedTopics(
        groups,
        persister,
        CachedTopics(metadata),
        environment.knows_cluster,
        clock,
        settings.prune_interval_ms,
    )
    shares = ShareServices(
        groups,
        partitions,
        ShareSessions(lambda: config.group_share_max_share_sessions, environment.in_turns),
        coordinator,
        persister,
        ShareOffsets(groups, persister, clock),
        environment.leader_of,
        None if environment.member is None else environment.member.lag_transport(),
    )
    demand.listeners += (coordinator, partitions)
    demand.stopping.append(persister.close)
    if not demand.is_closed:
        coordinator.start()
        deleted.start()
        demand.stopping += (deleted.close, coordinator.stop, partitions.close)
    return shares, groups, deleted
