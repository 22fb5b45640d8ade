"""Collectors for partitions, logs, data folders, the controller, coordinators and the store."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from ottla_broker.coordinator.group.modern.consumer_group import CONSUMER_TYPE, ConsumerGroup
from ottla_broker.coordinator.group.modern.states import ModernState
from ottla_broker.coordinator.group.share.group import SHARE_TYPE
from ottla_broker.coordinator.group.states import GroupState
from ottla_broker.coordinator.transaction.states import ONGOING, TransactionState
from ottla_broker.counters import Timings
from ottla_broker.log import names
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.replica.partition import Role
from ottla_broker.store.api import SessionState
from ottla_broker.tasks import unhurried
from ottla_protocol.prometheus import labels

if TYPE_CHECKING:
    from ottla_broker.controller.cluster.context import Context
    from ottla_broker.log.files import Files
    from ottla_broker.metrics.sources import Sources
    from ottla_broker.metrics.windows import Windows
    from ottla_broker.replica.partition import Partition

_A_STEP: Final = 25
_PURGATORY: Final = "kafka_server_delayedoperationpurgatory_purgatorysize"
_WAITING: Final = "What waits, by operation, for each partition, group or member."
_RUNNING: Final = 3
"""``BrokerState.RUNNING``."""


@cache
def _version() -> str:
    return version("ottla")


def closed_sizes(files: Files, logs: Sequence[tuple[tuple[str, int], str]]) -> dict[tuple[str, int], int]:
    """The bytes of the segments in these logs' folders. May run on any thread: it reads names and sizes alone."""
    found = {}
    for key, path in logs:
        try:
            found[key] = sum(
                files.size(f"{path}/{name}") for name in files.names(path) if name.endswith(names.LOG)
            )
        except OSError:
            # Opened, moved or deleted meanwhile.
            continue
    return found


class StateCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources, windows: Windows) -> None:
        self._sources = sources
        self._windows = windows
        self._no_elections = Timings()
        # The sizes of closed logs, which don't change.
        self._closed_sizes: dict[tuple[str, int], int] = {}

    async def prepare(self) -> None:
        """Find out the sizes of closed logs, on a thread: opening thousands of logs for a scrape would be wrong."""
        logs = self._sources.logs
        known = self._closed_sizes
        wanted = []
        async for each in unhurried(list(self._sources.replicas.partitions()), 1_000):
            key = (each.topic, each.partition)
            if each.is_open:
                known.pop(key, None)
            elif key not in known and (log := logs.get(*key)) is not None:
                wanted.append((key, log.path))
        if len(known) > len(self._sources.replicas.partitions()):
            present = {(each.topic, each.partition) for each in self._sources.replicas.partitions()}
            self._closed_sizes = known = {key: size for key, size in known.items() if key in present}
        if wanted:
            known.update(await self._sources.background.run(closed_sizes, logs.files, wanted))

    def broker(self, out: Exposition) -> Iterator[None]:
        """Which broker this is, and the in-sync replicas' changes."""
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

    def partitions(self, out: Exposition) -> Iterator[None]:
        """Replicas in sync, and the logs."""
        sources = self._sources
        part, log_name = "kafka_cluster_partition_", "kafka_log_log_"
        detail = (
            out.gauge(f"{part}underreplicated", "1: not all replicas are in sync."),
            out.gauge(f"{part}insyncreplicascount", "Replicas in sync, where this broker leads."),
            out.gauge(f"{part}replicascount", "Replicas, where this broker leads."),
            out.gauge(f"{part}underminisr", "1: fewer replicas in sync than min.insync.replicas."),
            out.gauge(
                f"{part}laststableoffsetlag",
                "Offsets from the last stable one to the high watermark: an open transaction.",
            ),
        )
        of_log = (
            out.gauge(f"{log_name}size", "Bytes of the log's segments."),
            out.gauge(f"{log_name}logstartoffset", "The first offset; of logs that have been used."),
            out.gauge(f"{log_name}logendoffset", "The next offset; of logs that have been used."),
            out.gauge(f"{log_name}numlogsegments", "Segments; of logs that have been used."),
        )
        # Looked up once, not a hundred thousand times.
        add_under, add_in_sync, add_replicas, add_under_min, add_stable_lag = (f.lines.append for f in detail)
        under_name, in_sync_name, replicas_name, under_min_name, stable_lag_name = (f.name for f in detail)
        add_size, add_start, add_end, add_segments = (f.lines.append for f in of_log)
        size_name, start_name, end_name, segments_name = (f.name for f in of_log)
        lags: Counter[int] = Counter()
        waiting_writes = waiting_fetches = 0
        led = under_count = under_min_count = at_min_count = offline = opened = total = 0
        for partition in list(sources.replicas.partitions()):
            total += 1
            if total % _A_STEP == 0:
                yield
                for family in (*detail, *of_log):
                    family.flush()
            writes, fetches = partition.waiting
            waiting_writes += writes
            waiting_fetches += fetches
            role = partition.role
            is_open = partition.is_open
            opened += is_open
            at = f'{{topic="{partition.topic}",partition="{partition.partition}"}}'
            if role is Role.LEADER:
                led += 1
                count, most = len(partition.isr), len(partition.replicas)
                minimum = self._min_isr(partition)
                is_under, is_below = count < most, count < minimum
                under_count += is_under
                under_min_count += is_below
                at_min_count += count == minimum
                if is_open and partition.followers:
                    log_end = partition.log.log_end_offset
                    for broker, follower in partition.followers.items():
                        if follower.end_offset >= 0:
                            lags[broker] = max(lags[broker], log_end - follower.end_offset)
                if out.room(5 if is_open else 4):
                    add_under(f"{under_name}{at} {is_under:d}\n")
                    add_in_sync(f"{in_sync_name}{at} {count}\n")
                    add_replicas(f"{replicas_name}{at} {most}\n")
                    add_under_min(f"{under_min_name}{at} {is_below:d}\n")
                    if is_open:
                        open_offsets = partition.high_watermark - partition.last_stable_offset
                        add_stable_lag(f"{stable_lag_name}{at} {open_offsets}\n")
            elif role is Role.OFFLINE:
                offline += 1
                continue
            if is_open:
                log = partition.log
                if out.room(4):
                    add_size(f"{size_name}{at} {log.size}\n")
                    add_start(f"{start_name}{at} {log.log_start_offset}\n")
                    add_end(f"{end_name}{at} {log.log_end_offset}\n")
                    add_segments(f"{segments_name}{at} {len(log.segments)}\n")
            else:
                known = self._closed_sizes.get((partition.topic, partition.partition))
                if known is not None and out.room(1):
                    add_size(f"{size_name}{at} {known}\n")
        prefix = "kafka_server_replicamanager_"
        for name, value, meaning in (
            ("partitioncount", total, "Partitions of which this broker has a replica."),
            ("leadercount", led, "Partitions that this broker leads."),
            ("underreplicatedpartitions", under_count, "Led partitions without all replicas in sync."),
            ("underminisrpartitioncount", under_min_count, "Led partitions that acks=all can't write to."),
            ("atminisrpartitioncount", at_min_count, "Led partitions with just min.insync.replicas in sync."),
            ("offlinereplicacount", offline, "Replicas here whose disk has failed."),
        ):
            out.gauge(prefix + name, meaning).add(value)
        lag = out.gauge(
            "ottla_follower_lag_records_max",
            "How far a broker is behind at most, in records of a partition led here.",
        )
        for broker, behind in sorted(lags.items()):
            lag.add(behind, f'{{follower="{broker}"}}')
        purgatory = out.gauge(_PURGATORY, _WAITING)
        purgatory.add(waiting_fetches, '{delayedOperation="Fetch"}')
        purgatory.add(waiting_writes, '{delayedOperation="Produce"}')
        fetchers = sources.replicas.fetchers
        out.gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "By how many records a replica here is behind its leader at most.",
        ).add(0 if fetchers is None else fetchers.behind, '{clientId="Replica"}')
        out.gauge("ottla_logs_open", "Logs that have been used since the start.").add(opened)
        yield

    def _min_isr(self, partition: Partition) -> int:
        """``min.insync.replicas`` of a partition, without opening its log."""
        log = self._sources.logs.get(partition.topic, partition.partition)
        configured = 1 if log is None else log.config.min_insync_replicas
        return min(configured, max(1, len(partition.replicas)))

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
        stored = self._sources.store_timings
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
        waiting = out.gauge(_PURGATORY, _WAITING)
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
