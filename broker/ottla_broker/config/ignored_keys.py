"""Keys of Kafka 3.9 that can change nothing here: accepted, with a warning unless they say the default."""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.config.model import BOOLEAN, DOUBLE, INT, INT_MAX, LIST, LONG, LONG_MAX, SHORT, STRING

Row = tuple[str, str, Any, str]
"""Name, type, default, meaning."""

# Tiered storage.
REMOTE: Final[tuple[Row, ...]] = (
    ("remote.fetch.max.wait.ms", INT, 500, "How long a Fetch waits for remote storage."),
    (
        "remote.log.index.file.cache.total.size.bytes",
        LONG,
        1073741824,
        "Disk space for indexes fetched from remote storage.",
    ),
    ("remote.log.manager.copier.thread.pool.size", INT, -1, "Threads that copy segments to remote storage."),
    (
        "remote.log.manager.copy.max.bytes.per.second",
        LONG,
        LONG_MAX,
        "How many bytes a second are copied to remote storage.",
    ),
    ("remote.log.manager.copy.quota.window.num", INT, 11, "Samples that this rate is measured by."),
    ("remote.log.manager.copy.quota.window.size.seconds", INT, 1, "The length of such a sample."),
    (
        "remote.log.manager.expiration.thread.pool.size",
        INT,
        -1,
        "Threads that delete expired remote segments.",
    ),
    (
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG,
        LONG_MAX,
        "How many bytes a second are fetched from remote storage.",
    ),
    ("remote.log.manager.fetch.quota.window.num", INT, 11, "Samples that this rate is measured by."),
    ("remote.log.manager.fetch.quota.window.size.seconds", INT, 1, "The length of such a sample."),
    ("remote.log.manager.task.interval.ms", LONG, 30000, "How often segments are looked at for copying."),
    (
        "remote.log.manager.task.retry.backoff.max.ms",
        LONG,
        30000,
        "The longest wait before a failed copy is tried again.",
    ),
    (
        "remote.log.manager.task.retry.backoff.ms",
        LONG,
        500,
        "The first wait before a failed copy is tried again.",
    ),
    ("remote.log.manager.task.retry.jitter", DOUBLE, 0.2, "How much chance goes into these waits."),
    ("remote.log.manager.thread.pool.size", INT, 10, "Threads for remote storage."),
    (
        "remote.log.metadata.custom.metadata.max.bytes",
        INT,
        128,
        "The largest custom metadata of a remote segment.",
    ),
    (
        "remote.log.metadata.manager.class.name",
        STRING,
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "The Java class that keeps the metadata of remote segments.",
    ),
    (
        "remote.log.metadata.manager.impl.prefix",
        STRING,
        "rlmm.config.",
        "The prefix of that class's own keys.",
    ),
    ("remote.log.reader.max.pending.tasks", INT, 100, "How many reads from remote storage may wait."),
    ("remote.log.reader.threads", INT, 10, "Threads that read from remote storage."),
    (
        "remote.log.storage.manager.impl.prefix",
        STRING,
        "rsm.config.",
        "The prefix of the remote storage class's own keys.",
    ),
)

# More brokers than one.
CLUSTER: Final[tuple[Row, ...]] = (
    (
        "alter.log.dirs.replication.quota.window.num",
        INT,
        11,
        "Samples that moves between data folders are measured by.",
    ),
    ("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, "The length of such a sample."),
    ("broker.heartbeat.interval.ms", INT, 2000, "How often a KRaft broker reports to its controller."),
    ("broker.session.timeout.ms", INT, 9000, "How long a KRaft broker lives without reporting."),
    ("controller.quorum.append.linger.ms", INT, 25, "How long a KRaft leader gathers appends."),
    ("controller.quorum.election.backoff.max.ms", INT, 1000, "The longest wait between two KRaft elections."),
    ("controller.quorum.election.timeout.ms", INT, 1000, "How long a KRaft election may take."),
    ("controller.quorum.fetch.timeout.ms", INT, 2000, "How long a KRaft voter does without its leader."),
    ("controller.quorum.request.timeout.ms", INT, 2000, "How long a KRaft request may take."),
    ("controller.quorum.retry.backoff.ms", INT, 20, "The wait between two attempts at a KRaft request."),
    ("controller.quota.window.num", INT, 11, "Samples that changes of topics are measured by."),
    ("controller.quota.window.size.seconds", INT, 1, "The length of such a sample."),
    ("controller.socket.timeout.ms", INT, 30000, "How long a request of the controller may take."),
    ("initial.broker.registration.timeout.ms", INT, 60000, "How long a KRaft broker tries to register."),
    ("inter.broker.protocol.version", STRING, "3.9-IV0", "The version of the protocol between brokers."),
    (
        "log.dir.failure.timeout.ms",
        LONG,
        30000,
        "How long a broker lives whose controller doesn't hear of its failed folder.",
    ),
    (
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        20971520,
        "How much KRaft metadata goes by between two snapshots.",
    ),
    (
        "metadata.log.max.snapshot.interval.ms",
        LONG,
        3600000,
        "The longest time between two snapshots of KRaft metadata.",
    ),
    ("metadata.log.segment.bytes", INT, 1073741824, "The size of a KRaft metadata log's segments."),
    ("metadata.log.segment.min.bytes", INT, 8388608, "The least size of a KRaft metadata log's segments."),
    ("metadata.log.segment.ms", LONG, 604800000, "The age of a KRaft metadata log's segments."),
    ("metadata.max.idle.interval.ms", INT, 500, "How often an idle KRaft controller writes a record."),
    ("metadata.max.retention.bytes", LONG, 104857600, "How much KRaft metadata is kept."),
    ("metadata.max.retention.ms", LONG, 604800000, "How long KRaft metadata is kept."),
    ("num.replica.alter.log.dirs.threads", INT, None, "Threads that move replicas between data folders."),
    ("replica.socket.receive.buffer.bytes", INT, 65536, "SO_RCVBUF of a follower's socket."),
    ("request.timeout.ms", INT, 30000, "How long a broker's own requests may take."),
    ("server.max.startup.time.ms", LONG, LONG_MAX, "How long a start may take."),
    (
        "socket.connection.setup.timeout.max.ms",
        LONG,
        30000,
        "The longest wait for a connection of the broker's own.",
    ),
    (
        "socket.connection.setup.timeout.ms",
        LONG,
        10000,
        "The first wait for a connection of the broker's own.",
    ),
    (
        "unclean.leader.election.interval.ms",
        LONG,
        300000,
        "How often partitions without leader are looked for.",
    ),
    (
        "zookeeper.metadata.migration.min.batch.size",
        INT,
        200,
        "The batches in which state moves from ZooKeeper to a quorum.",
    ),
)

# Details of security.
SECURITY: Final[tuple[Row, ...]] = (
    (
        "connection.failed.authentication.delay.ms",
        INT,
        100,
        "How long a failed authentication is answered late.",
    ),
    (
        "delegation.token.expiry.check.interval.ms",
        LONG,
        3600000,
        "How often expired delegation tokens are looked for.",
    ),
    (
        "delegation.token.expiry.time.ms",
        LONG,
        86400000,
        "How long a delegation token lives unless it is renewed.",
    ),
    ("delegation.token.max.lifetime.ms", LONG, 604800000, "How long a delegation token may live at all."),
    (
        "password.encoder.cipher.algorithm",
        STRING,
        "AES/CBC/PKCS5Padding",
        "The cipher for dynamic passwords.",
    ),
    ("password.encoder.iterations", INT, 4096, "The iterations for dynamic passwords."),
    ("password.encoder.key.length", INT, 128, "The key length for dynamic passwords."),
    ("password.encoder.keyfactory.algorithm", STRING, None, "The key derivation for dynamic passwords."),
)

# Groups of the classic protocol.
CLASSIC_GROUPS: Final[tuple[Row, ...]] = (
    (
        "offsets.commit.required.acks",
        SHORT,
        -1,
        "How many replicas must have a commit before it is answered; -1 for all in sync.",
    ),
    (
        "offsets.load.buffer.size",
        INT,
        5242880,
        "How much is read at a time when a partition of the offsets topic is loaded.",
    ),
)

# Details of the newer group protocols.
GROUPS: Final[tuple[Row, ...]] = (
    (
        "group.consumer.assignors",
        LIST,
        (
            "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
            "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
        ),
        "Assignors for groups of the consumer protocol (KIP-848).",
    ),
    ("group.consumer.heartbeat.interval.ms", INT, 5000, "Their members' heartbeat interval."),
    (
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        15000,
        "The longest heartbeat interval of such a group.",
    ),
    ("group.consumer.max.session.timeout.ms", INT, 60000, "The longest session timeout of such a group."),
    ("group.consumer.max.size", INT, INT_MAX, "How many members such a group may have."),
    ("group.consumer.migration.policy", STRING, "disabled", "How groups move between the two protocols."),
    (
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        5000,
        "The shortest heartbeat interval of such a group.",
    ),
    ("group.consumer.min.session.timeout.ms", INT, 45000, "The shortest session timeout of such a group."),
    ("group.consumer.session.timeout.ms", INT, 45000, "Their members' session timeout."),
    (
        "group.coordinator.append.linger.ms",
        INT,
        10,
        "How long Kafka's rewritten coordinator gathers its writes.",
    ),
    ("group.coordinator.threads", INT, 1, "Threads of Kafka's rewritten coordinator."),
    ("group.share.delivery.count.limit", INT, 5, "How often a share group delivers a record."),
    ("group.share.heartbeat.interval.ms", INT, 5000, "The heartbeat interval of a share group's members."),
    ("group.share.max.groups", SHORT, 10, "How many share groups there may be."),
    ("group.share.max.heartbeat.interval.ms", INT, 15000, "The longest heartbeat interval of a share group."),
    (
        "group.share.max.record.lock.duration.ms",
        INT,
        60000,
        "The longest time a share group's record may be held.",
    ),
    ("group.share.max.session.timeout.ms", INT, 60000, "The longest session timeout of a share group."),
    ("group.share.max.size", SHORT, 200, "How many members a share group may have."),
    ("group.share.min.heartbeat.interval.ms", INT, 5000, "The shortest heartbeat interval of a share group."),
    (
        "group.share.min.record.lock.duration.ms",
        INT,
        15000,
        "The shortest time a share group's record may be held.",
    ),
    ("group.share.min.session.timeout.ms", INT, 45000, "The shortest session timeout of a share group."),
    (
        "group.share.partition.max.record.locks",
        INT,
        200,
        "How many records of a partition a share group holds.",
    ),
    ("group.share.record.lock.duration.ms", INT, 30000, "How long a share group's record is held."),
    ("group.share.session.timeout.ms", INT, 45000, "The session timeout of a share group's members."),
)

# Transactions.
TRANSACTIONS: Final[tuple[Row, ...]] = (
    (
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10000,
        "How often transactions that took too long are looked for.",
    ),
    (
        "transaction.max.timeout.ms",
        INT,
        900000,
        "The longest timeout that a transactional producer may ask for.",
    ),
    (
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        "Whether a produce checks that its transaction knows the partition.",
    ),
    (
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3600000,
        "How often expired transactional ids are looked for.",
    ),
    (
        "transaction.state.log.load.buffer.size",
        INT,
        5242880,
        "How much is read at a time when transaction state is loaded.",
    ),
    ("transaction.state.log.min.isr", INT, 2, "How many in-sync replicas the transaction topic needs."),
    ("transaction.state.log.num.partitions", INT, 50, "How many partitions the transaction topic gets."),
    ("transaction.state.log.replication.factor", SHORT, 3, "How many replicas the transaction topic gets."),
    ("transaction.state.log.segment.bytes", INT, 104857600, "The size of the transaction topic's segments."),
    ("transactional.id.expiration.ms", INT, 604800000, "How long an unused transactional id is kept."),
)

# Metrics, quotas and rates.
METERS: Final[tuple[Row, ...]] = (
    ("auto.include.jmx.reporter", BOOLEAN, True, "Whether metrics are reported to JMX."),
    ("kafka.metrics.polling.interval.secs", INT, 10, "How often metrics are reported."),
    ("metrics.num.samples", INT, 2, "Samples that a metric is measured by."),
    ("metrics.recording.level", STRING, "INFO", "How much is measured."),
    ("metrics.sample.window.ms", LONG, 30000, "The length of such a sample."),
    ("quota.window.num", INT, 11, "Samples that clients' quotas are measured by."),
    ("quota.window.size.seconds", INT, 1, "The length of such a sample."),
    ("telemetry.max.bytes", INT, 1048576, "The largest metrics that clients may push."),
    ("max.connection.creation.rate", INT, INT_MAX, "How many connections a second are accepted."),
)

# The inside of Apache Kafka.
INNER: Final[tuple[Row, ...]] = (
    ("num.io.threads", INT, 8, "Threads that serve requests."),
    (
        "delete.records.purgatory.purge.interval.requests",
        INT,
        1,
        "How often waiting DeleteRecords are tidied up.",
    ),
    ("fetch.purgatory.purge.interval.requests", INT, 1000, "How often waiting fetches are tidied up."),
    ("producer.purgatory.purge.interval.requests", INT, 1000, "How often waiting produces are tidied up."),
    (
        "log.message.format.version",
        STRING,
        "3.0-IV1",
        "The record format that topics are written in; ignored by Kafka since 3.0 too.",
    ),
)
