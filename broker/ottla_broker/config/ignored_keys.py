"""Keys of Kafka 3.9 that have no effect here: accepted, with a warning unless they have their default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla_broker.config import message_formats
from ottla_broker.config.model import BOOLEAN, DOUBLE, INT, LONG, LONG_MAX, SHORT, STRING

Row = tuple[str, str, Any, str]
"""Name, type, default, meaning."""

# fmt: off
IGNORED_KEYS: Final[Mapping[str, tuple[Row, ...]]] = {
    "tiered storage is not built yet.": (
        ("remote.fetch.max.wait.ms", INT, 500, "The longest wait of a Fetch for remote storage."),
        ("remote.log.index.file.cache.total.size.bytes", LONG, 1073741824,
         "Disk space for indexes fetched from remote storage."),
        ("remote.log.manager.copier.thread.pool.size", INT, -1, "Threads that copy segments to remote storage."),
        ("remote.log.manager.copy.max.bytes.per.second", LONG, LONG_MAX,
         "The most bytes per second copied to remote storage."),
        ("remote.log.manager.copy.quota.window.num", INT, 11, "Windows over which this rate is measured."),
        ("remote.log.manager.copy.quota.window.size.seconds", INT, 1, "The length of such a window."),
        ("remote.log.manager.expiration.thread.pool.size", INT, -1, "Threads that delete expired remote segments."),
        ("remote.log.manager.fetch.max.bytes.per.second", LONG, LONG_MAX,
         "The most bytes per second fetched from remote storage."),
        ("remote.log.manager.fetch.quota.window.num", INT, 11, "Windows over which this rate is measured."),
        ("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, "The length of such a window."),
        ("remote.log.manager.task.interval.ms", LONG, 30000, "Time between two checks for segments to copy."),
        ("remote.log.manager.task.retry.backoff.max.ms", LONG, 30000,
         "The longest pause before a failed copy is retried."),
        ("remote.log.manager.task.retry.backoff.ms", LONG, 500, "The first pause before a failed copy is retried."),
        ("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, "The random share of these pauses."),
        ("remote.log.manager.thread.pool.size", INT, 10, "Threads for remote storage."),
        ("remote.log.metadata.custom.metadata.max.bytes", INT, 128, "The largest custom metadata of a remote segment."),
        ("remote.log.metadata.manager.class.name", STRING,
         "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
         "The Java class that stores the metadata of remote segments."),
        ("remote.log.metadata.manager.impl.prefix", STRING, "rlmm.config.", "The prefix of that class's own keys."),
        ("remote.log.reader.max.pending.tasks", INT, 100, "The most pending reads from remote storage."),
        ("remote.log.reader.threads", INT, 10, "Threads that read from remote storage."),
        ("remote.log.storage.manager.impl.prefix", STRING, "rsm.config.",
         "The prefix of the remote storage class's own keys."),
    ),
    "there is no KRaft quorum.": (
        ("broker.heartbeat.interval.ms", INT, 2000, "Time between two heartbeats of a KRaft broker."),
        ("broker.session.timeout.ms", INT, 9000, "Time without a heartbeat after which a KRaft broker is fenced."),
        ("controller.quorum.append.linger.ms", INT, 25, "Time for which a KRaft leader collects appends."),
        ("controller.quorum.election.backoff.max.ms", INT, 1000, "The longest pause between two KRaft elections."),
        ("controller.quorum.election.timeout.ms", INT, 1000, "The timeout of a KRaft election."),
        ("controller.quorum.fetch.timeout.ms", INT, 2000,
         "Time without a leader after which a KRaft voter starts an election."),
        ("controller.quorum.request.timeout.ms", INT, 2000, "The timeout of a KRaft request."),
        ("controller.quorum.retry.backoff.ms", INT, 20, "Pause before a KRaft request is retried."),
        ("initial.broker.registration.timeout.ms", INT, 60000, "The timeout of a KRaft broker's registration."),
        ("log.dir.failure.timeout.ms", LONG, 30000,
         "Time after which a broker stops if it can't report a failed data folder."),
        ("metadata.log.max.record.bytes.between.snapshots", LONG, 20971520,
         "Bytes of KRaft metadata between two snapshots."),
        ("metadata.log.max.snapshot.interval.ms", LONG, 3600000,
         "The longest time between two snapshots of KRaft metadata."),
        ("metadata.log.segment.bytes", INT, 1073741824, "The size of a KRaft metadata log's segments."),
        ("metadata.log.segment.min.bytes", INT, 8388608, "The least size of a KRaft metadata log's segments."),
        ("metadata.log.segment.ms", LONG, 604800000, "The age of a KRaft metadata log's segments."),
        ("metadata.max.idle.interval.ms", INT, 500, "Time between two records of an idle KRaft controller."),
        ("metadata.max.retention.bytes", LONG, 104857600, "Bytes of KRaft metadata to keep."),
        ("metadata.max.retention.ms", LONG, 604800000, "Time to keep KRaft metadata."),
        ("server.max.startup.time.ms", LONG, LONG_MAX, "The timeout of a start."),
        ("unclean.leader.election.interval.ms", LONG, 300000,
         "Time between two checks for partitions without a leader."),
        ("zookeeper.metadata.migration.min.batch.size", INT, 200,
         "The batch size for moving state from ZooKeeper to a quorum."),
    ),
    "connections between brokers have fixed settings here.": (
        ("controller.socket.timeout.ms", INT, 30000, "The timeout of a controller's request."),
        ("inter.broker.protocol.version", STRING, "3.9-IV0", "The version of the protocol between brokers."),
        ("replica.socket.receive.buffer.bytes", INT, 65536,
         "The receive buffer (SO_RCVBUF) of a follower's connection."),
        ("request.timeout.ms", INT, 30000, "The timeout of a broker's own requests."),
        ("socket.connection.setup.timeout.max.ms", LONG, 30000, "The longest timeout of the broker's own connections."),
        ("socket.connection.setup.timeout.ms", LONG, 10000, "The first timeout of the broker's own connections."),
    ),
    "moves between data folders have fixed settings here.": (
        ("alter.log.dirs.replication.quota.window.num", INT, 11,
         "Windows over which moves between data folders are measured."),
        ("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, "The length of such a window."),
        ("num.replica.alter.log.dirs.threads", INT, None, "Threads that move replicas between data folders."),
    ),
    "a commit always waits for all in-sync replicas, and loading is paced by time.": (
        ("offsets.commit.required.acks", SHORT, -1,
         "Replicas that must have a commit before it is acknowledged; -1 for all in sync."),
        ("offsets.load.buffer.size", INT, 5242880, "Bytes per read when a partition of the offsets topic is loaded."),
        ("transaction.state.log.load.buffer.size", INT, 5242880, "Bytes per read when transaction state is loaded."),
    ),
    "one group coordinator serves both group protocols here, on the broker's one thread.": (
        ("group.coordinator.new.enable", BOOLEAN, False, "Use Kafka's rewritten group coordinator."),
        ("group.coordinator.append.linger.ms", INT, 10,
         "Time for which Kafka's rewritten coordinator collects writes."),
        ("group.coordinator.threads", INT, 1, "Threads of Kafka's rewritten coordinator."),
    ),
    "as in Kafka since 4.1, the number of share groups has no limit.": (
        ("group.share.max.groups", SHORT, 10, "The most share groups."),
    ),
    "/metrics has fixed windows and no plug-ins.": (
        ("auto.include.jmx.reporter", BOOLEAN, True, "Report metrics to JMX."),
        ("kafka.metrics.polling.interval.secs", INT, 10, "Time between two reports of metrics."),
        ("metrics.num.samples", INT, 2, "Windows over which a metric is measured."),
        ("metrics.recording.level", STRING, "INFO", "The level of detail of metrics."),
        ("metrics.sample.window.ms", LONG, 30000, "The length of such a window."),
    ),
    "it tunes an internal part of Apache Kafka that Ottla doesn't have.": (
        ("num.io.threads", INT, 8, "Threads that serve requests."),
        ("delete.records.purgatory.purge.interval.requests", INT, 1,
         "Completed DeleteRecords requests between two purges."),
        ("fetch.purgatory.purge.interval.requests", INT, 1000, "Completed fetches between two purges."),
        ("producer.purgatory.purge.interval.requests", INT, 1000, "Completed produces between two purges."),
    ),
    "logs have format 2, as in Kafka with inter.broker.protocol.version 3.0 or later.": (
        ("log.message.format.version", STRING, message_formats.DEFAULT, "The Kafka version whose format logs have."),
    ),
}
"""By the reason, which operators see."""
# fmt: on

LEAST: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        (
            "alter.log.dirs.replication.quota.window.num",
            "alter.log.dirs.replication.quota.window.size.seconds",
            "group.coordinator.threads",
            "kafka.metrics.polling.interval.secs",
            "log.dir.failure.timeout.ms",
            "metadata.log.max.record.bytes.between.snapshots",
            "metrics.num.samples",
            "metrics.sample.window.ms",
            "num.io.threads",
            "offsets.load.buffer.size",
            "remote.fetch.max.wait.ms",
            "remote.log.index.file.cache.total.size.bytes",
            "remote.log.manager.copy.max.bytes.per.second",
            "remote.log.manager.copy.quota.window.num",
            "remote.log.manager.copy.quota.window.size.seconds",
            "remote.log.manager.fetch.max.bytes.per.second",
            "remote.log.manager.fetch.quota.window.num",
            "remote.log.manager.fetch.quota.window.size.seconds",
            "remote.log.manager.task.interval.ms",
            "remote.log.manager.task.retry.backoff.max.ms",
            "remote.log.manager.task.retry.backoff.ms",
            "remote.log.manager.thread.pool.size",
            "remote.log.reader.max.pending.tasks",
            "remote.log.reader.threads",
            "transaction.state.log.load.buffer.size",
            "unclean.leader.election.interval.ms",
            "zookeeper.metadata.migration.min.batch.size",
        ),
        1,
    ),
    **dict.fromkeys(
        (
            "group.coordinator.append.linger.ms",
            "metadata.log.max.snapshot.interval.ms",
            "metadata.max.idle.interval.ms",
            "remote.log.metadata.custom.metadata.max.bytes",
            "server.max.startup.time.ms",
        ),
        0,
    ),
    "metadata.log.segment.bytes": 12,
    "metadata.log.segment.min.bytes": 12,
    "offsets.commit.required.acks": -1,
}
"""The least values that Kafka accepts: what stops Kafka is more likely a mistake than wanted."""

NEVER_EMPTY: Final = (
    "remote.log.metadata.manager.class.name",
    "remote.log.metadata.manager.impl.prefix",
    "remote.log.storage.manager.impl.prefix",
)
