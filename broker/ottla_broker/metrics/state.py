"""Collectors for data folders, the controller, the store and coordinators; partitions have their own."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from ottla_broker.coordinator.group.modern.consumer_group import CONSUMER_TYPE, ConsumerGroup
from ottla_broker.coordinator.group.modern.states import ModernState
from ottla_broker.coordinator.group.share.group import SHARE_TYPE
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.coordinator.transaction.states import ONGOING, TransactionState
from ottla_broker.counters import Timings
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.partitions import PURGATORY, WAITING
from ottla_broker.replica.partition import Role
from ottla_broker.store.api import SessionState
from ottla_protocol.prometheus import labels

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.context import Context
    from ottla_broker.metrics.sources import Sources
    from ottla_broker.metrics.windows import Windows

_A_STEP: Final = 25
_RUNNING: Final = 3
"""``BrokerState.RUNNING``."""


@cache
def _version() -> str:
    return version("ottla")


class StateCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources, windows: Windows) -> None:
        self._sources = sources
        self._windows = windows
        self._no_elections = Timings()

    def broker(self, out: Exposition) -> Iterator[None]:
        """Collect which broker this is, and the in-sync replicas' changes."""
        sources = self._sources
        out.gauge("ottla_broker_info", "This broker's version and id; the value is 1.").add(
            1,
            labels(
                version=_version(),
                broker_id=sources.config.broker_id,
                cluster_id=sources.metadata.cluster_id,
            ),
        )
        out.gauge("kafka_server_kafkaserver_brokerstate", "3: running.").add(_RUNNING)
        counters = sources.replicas.counters
        prefix = "kafka_server_replicamanager_"
        out.counter(f"{prefix}isrshrinks_total", "In-sync replicas removed, by partitions led here.").add(
            counters.isr_shrinks
        )
        out.counter(f"{prefix}isrexpands_total", "In-sync replicas added, by partitions led here.").add(
            counters.isr_expands
        )
        out.counter(f"{prefix}failedisrupdates_total", "Changes that the controller has refused.").add(
            counters.failed_isr_updates
        )
        yield

    def disks(self, out: Exposition) -> Iterator[None]:
        """Data folders, fsyncs, compaction."""
        sources = self._sources
        logs = sources.logs
        offline = out.gauge("kafka_log_logmanager_logdirectoryoffline", "1: the data folder has failed.")
        total = out.gauge("ottla_log_dir_total_bytes", "The size of the data folder's volume.")
        usable = out.gauge("ottla_log_dir_usable_bytes", "What is free of it.")
        failed = 0
        for folder in logs.folders:
            at = labels(logDirectory=os.path.abspath(folder.path))
            failed += folder.failed
            offline.add(int(folder.failed), at)
            if not folder.failed:
                try:
                    all_bytes, free = folder.files.space(folder.path)
                except OSError:
                    # The volume is gone; the next write finds out.
                    continue
                total.add(all_bytes, at)
                usable.add(free, at)
        out.gauge("kafka_log_logmanager_offlinelogdirectorycount", "Data folders that have failed.").add(
            failed
        )
        flushes = out.summary(
            "kafka_log_logflushstats_logflushrateandtimems",
            "Time of fsyncs, in ms, over the last one to two minutes.",
        )
        self._windows.add(flushes, "", [logs.flusher.timings], sources.clock.monotonic())
        cleaner = sources.cleaner
        if cleaner is not None:
            out.gauge(
                "kafka_log_logcleanermanager_uncleanable_partitions_count",
                "Logs that are no longer compacted because of a damaged batch.",
            ).add(len(cleaner.uncleanable))
            out.gauge("ottla_cleaner_logs_in_progress", "Logs being compacted.").add(cleaner.in_progress)
            out.counter("ottla_cleaner_cleanings_total", "Compactions done.").add(cleaner.cleanings)
            out.counter("ottla_cleaner_read_bytes_total", "Bytes read by them.").add(cleaner.bytes_read)
            out.counter("ottla_cleaner_written_bytes_total", "Bytes kept by them.").add(cleaner.bytes_written)
        yield

    def controller(self, out: Exposition) -> Iterator[None]:
        """The cluster as its controller sees it; zeros on the other brokers, as in Kafka."""
        member = self._sources.member
        active = None if member is None else member.active_controller
        is_active = member is None or active is not None
        offline = unpreferred = topics = partitions = brokers = deleting = queue = unclean = 0
        if member is None:
            metadata = self._sources.metadata
            brokers, topics = len(metadata.brokers), len(metadata)
            for done, topic in enumerate(list(metadata.topics()), 1):
                partitions += len(topic.partitions)
                if done % _A_STEP == 0:
                    yield
            offline = sum(each.role is Role.OFFLINE for each in self._sources.replicas.partitions())
        elif active is not None:
            context: Context = active.context
            brokers, topics, deleting = len(context.live()), len(context.topics), len(context.deleting)
            queue, unclean = active.events.waiting, context.unclean_elections
            for partition in list(context.partitions()):
                partitions += 1
                if partitions % _A_STEP == 0:
                    yield
                if context.has(partition) and not context.is_deleting(partition):
                    offline += not context.is_led(partition)
                    replicas = context.replicas(partition)
                    unpreferred += bool(replicas) and context.leader(partition) != replicas[0]
        prefix = "kafka_controller_kafkacontroller_"
        for name, value, meaning in (
            (
                "activecontrollercount",
                int(is_active),
                "1 on the controller: the sum over all brokers must be 1.",
            ),
            ("offlinepartitionscount", offline, "Partitions without a leader."),
            ("preferredreplicaimbalancecount", unpreferred, "Partitions not led by their preferred replica."),
            ("globaltopiccount", topics, "Topics of the cluster."),
            ("globalpartitioncount", partitions, "Partitions of the cluster."),
            ("topicstodeletecount", deleting, "Topics that are being deleted."),
            ("activebrokercount", brokers, "Brokers that can lead and follow."),
        ):
            out.gauge(prefix + name, meaning).add(value)
        out.gauge(
            "kafka_controller_controllereventmanager_eventqueuesize",
            "Events that the controller has to work off.",
        ).add(queue)
        out.counter(
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "Leaders elected that may lack committed records, since this broker became controller.",
        ).add(unclean)
        elections = out.summary(
            "kafka_controller_controllerstats_leaderelectionrateandtimems",
            "How long it took the controller to elect leaders, in ms, over the last one to two minutes.",
        )
        timings = self._no_elections if active is None else active.context.elections
        self._windows.add(elections, "", [timings], self._sources.clock.monotonic())
        yield

    def store(self, out: Exposition) -> Iterator[None]:
        """Collect what the embedded store or ZooKeeper takes."""
        stored, member = self._sources.store_timings, self._sources.member
        if stored is not None:
            writes = out.summary(
                "ottla_store_write_seconds",
                "Time until a change of topics, configs or ACLs was durable in the embedded store, over the last one to"
                " two minutes.",
            )
            self._windows.add(writes, "", [stored], self._sources.clock.monotonic(), 1.0)
        if member is not None:
            requests = out.summary(
                "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
                "Time from a request to ZooKeeper to its answer, in ms, over the last one to two minutes.",
            )
            self._windows.add(requests, "", [member.store.timings], self._sources.clock.monotonic())
            out.gauge("ottla_zookeeper_connected", "1: there is a session with ZooKeeper.").add(
                int(member.store.state is SessionState.CONNECTED)
            )
            out.counter(
                "kafka_server_sessionexpirelistener_zookeeperexpires_total",
                "Sessions with ZooKeeper that have ended since the start.",
            ).add(max(0, member.store.sessions - 1))
        yield

    def groups(self, out: Exposition) -> Iterator[None]:
        groups = self._sources.groups.groups
        states: Counter[str] = Counter()
        offsets = members = 0
        generation = out.counter(
            "ottla_group_generations_total", "The group's generation: how often it has rebalanced."
        )
        group_members = out.gauge("ottla_group_members", "Members of the group.")
        for done, group in enumerate(groups, 1):
            states[group.state.value] += 1
            offsets += len(group.offsets)
            members += len(group.members)
            if (group.members or group.generation) and out.room(2):
                at = labels(group=group.group_id)
                generation.add(group.generation, at)
                group_members.add(len(group.members), at)
            if done % _A_STEP == 0:
                yield
        waiting = out.gauge(PURGATORY, WAITING)
        waiting.add(states[GroupState.PREPARING.value], '{delayedOperation="Rebalance"}')
        waiting.add(members, '{delayedOperation="Heartbeat"}')
        prefix = "kafka_coordinator_group_groupmetadatamanager_"
        out.gauge(f"{prefix}numgroups", "Groups that this broker coordinates.").add(len(groups))
        out.gauge(f"{prefix}numoffsets", "Committed offsets of these groups.").add(offsets)
        # Of classic groups and of those that the broker assigns to (KIP-848).
        for name in dict.fromkeys(each.value for each in (*GroupState, *ModernState)):
            out.gauge(f"{prefix}numgroups{name.lower()}", f"Groups in state {name}.").add(states[name])
        shares = self._sources.groups.shares
        protocols = Counter(
            CONSUMER_TYPE if isinstance(each, ConsumerGroup) else "classic" for each in groups
        )
        protocols[SHARE_TYPE] = 0 if shares is None else len(shares.groups)
        by_protocol = out.gauge(
            "kafka_coordinator_group_group_coordinator_metrics_group_count",
            "Groups that this broker coordinates, by protocol: classic, consumer or share.",
        )
        for protocol in ("classic", CONSUMER_TYPE, SHARE_TYPE):
            by_protocol.add(protocols[protocol], labels(protocol=protocol))
        if self._sources.push is not None:
            out.gauge(
                "ottla_coordinated_consumers",
                "Consumers of the coordinator designed in 2012, while it is here.",
            ).add(self._sources.push.coordinator.consumers)
        out.gauge("ottla_groups_loading", "1: groups are being loaded from __consumer_offsets.").add(
            int(self._sources.groups.loading)
        )
        yield

    def transactions(self, out: Exposition) -> Iterator[None]:
        """Transactional ids by state, and how long the oldest open transaction has been open."""
        states: Counter[TransactionState] = Counter()
        now_ms = self._sources.clock.now_ms()
        oldest = 0
        for done, transaction in enumerate(self._sources.transactions.transactions, 1):
            metadata = transaction.metadata
            states[metadata.state] += 1
            if metadata.state is ONGOING and metadata.start_ms >= 0:
                oldest = max(oldest, now_ms - metadata.start_ms)
            if done % _A_STEP == 0:
                yield
        ids = out.gauge(
            "ottla_transactional_ids", "Transactional ids that this broker coordinates, by state."
        )
        for state in TransactionState:
            ids.add(states[state], f'{{state="{state.value}"}}')
        out.gauge(
            "ottla_transaction_open_seconds_max",
            "For how long the oldest transaction has been open; 0: none is.",
        ).add(oldest / 1000)
        yield
