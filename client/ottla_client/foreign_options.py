"""Options of other Python clients, of librdkafka and of Java that this client lacks, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from .suggestions import did_you_mean, near_names

_METRICS: Final = "metrics() of a producer or consumer returns its counters when you ask"
_LOGGING: Final = 'set the level of logging.getLogger("ottla_client")'
_VERSIONS: Final = "the client asks each broker for its versions"
_CALLBACK: Final = "send returns a Delivery, which has add_done_callback"
_RAISED: Final = "errors are raised where they occur"
_SYSTEM: Final = "the operating system sizes socket buffers"
_CONTEXT: Final = "pass an ssl_context"

_ADVICE: Final = {
    "api_version": _VERSIONS,
    "api_version_auto_timeout_ms": _VERSIONS,
    "api_version_fallback_ms": _VERSIONS,
    "api_version_request": _VERSIONS,
    "auto_commit_enable": "use enable_auto_commit",
    "broker_list": "use bootstrap_servers",
    "brokers": "use bootstrap_servers",
    "batch_num_messages": "use batch_size, in bytes",
    "broker_version_fallback": _VERSIONS,
    "client_dns_lookup": "the client tries all addresses of a name",
    "compression_codec": "use compression_type",
    "consumer_timeout_ms": "poll with timeout_ms returns an empty list when no record comes",
    "debug": _LOGGING,
    "dr_cb": _CALLBACK,
    "dr_msg_cb": _CALLBACK,
    "enable_auto_offset_store": "auto-commit counts a record as processed when you ask for the next one",
    "enable_partition_eof": "compare position with end_offsets",
    "error_cb": _RAISED,
    "fetch_message_max_bytes": "use max_partition_fetch_bytes",
    "fetch_wait_max_ms": "use fetch_max_wait_ms",
    "interceptor_classes": "the client has no interceptors",
    "log_level": _LOGGING,
    "loop": "the client uses the running event loop",
    "max_batch_size": "use batch_size",
    "max_in_flight": "use max_in_flight_requests_per_connection",
    "message_max_bytes": "use max_request_size",
    "message_send_max_retries": "use delivery_timeout_ms, which bounds all attempts",
    "message_timeout_ms": "use delivery_timeout_ms",
    "metadata_broker_list": "use bootstrap_servers",
    "metric_reporters": _METRICS,
    "metrics_enabled": _METRICS,
    "metrics_num_samples": _METRICS,
    "metrics_sample_window_ms": _METRICS,
    "on_commit": _RAISED,
    "on_delivery": _CALLBACK,
    "queue_buffering_max_kbytes": "use buffer_memory, in bytes",
    "queue_buffering_max_messages": "use buffer_memory, in bytes",
    "queue_buffering_max_ms": "use linger_ms",
    "rebalance_timeout_ms": "use max_poll_interval_ms",
    "receive_buffer_bytes": _SYSTEM,
    "request_required_acks": "use acks",
    "retries": "use delivery_timeout_ms, which bounds all attempts",
    "oauth_cb": "use sasl_oauth_token_provider, a function that returns a token",
    "send_buffer_bytes": _SYSTEM,
    "socket_receive_buffer_bytes": _SYSTEM,
    "socket_send_buffer_bytes": _SYSTEM,
    "socket_timeout_ms": "use request_timeout_ms",
    "ssl_ciphers": _CONTEXT,
    "ssl_crlfile": _CONTEXT,
    "statistics_interval_ms": _METRICS,
    "stats_cb": _METRICS,
    "topic_metadata_refresh_interval_ms": "use metadata_max_age_ms",
}
_FOREIGN_SASL: Final = ("sasl_kerberos_", "sasl_login_", "sasl_client_")
"""Beginnings of names that look like some of this client's options, but mean something else."""


_NAMES_OF_JAVA: Final = """
acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
batch.size bootstrap.controllers bootstrap.resolve.timeout.ms buffer.memory
buffer.memory.allocation.strategy check.crcs client.dns.lookup client.id client.rack
compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms
enable.auto.commit enable.idempotence enable.metrics.push exclude.internal.topics fetch.max.bytes
fetch.max.wait.ms fetch.min.bytes group.id group.instance.id group.protocol group.remote.assignor
heartbeat.interval.ms interceptor.classes isolation.level key.deserializer key.serializer linger.ms
max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms
max.poll.records max.request.size metadata.cluster.check.enable metadata.max.age.ms
metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy partitioner.adaptive.partitioning.enable
partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys partitioner.rack.aware
receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries
retry.backoff.max.ms retry.backoff.ms send.buffer.bytes session.timeout.ms
share.acknowledgement.mode share.acquire.mode socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms transaction.timeout.ms transaction.two.phase.commit.enable
transactional.id value.deserializer value.serializer
"""
_NAMES_OF_LIBRDKAFKA: Final = """
api.version.request.timeout.ms broker.address.family broker.address.ttl builtin.features
client.software.name compression.level consume.callback.max.messages coordinator.query.interval.ms
delivery.report.only.error enable.gapless.guarantee enable.random.seed enable.sparse.connections
enabled.events fetch.error.backoff.ms fetch.queue.backoff.ms group.protocol.type
internal.termination.signal log.connection.close log.queue log.thread.name max.in.flight
message.copy.max.bytes metadata.request.timeout.ms offset.store.method offset.store.path
offset.store.sync.interval.ms partitioner plugin.library.paths produce.offset.report
queue.buffering.backpressure.threshold queued.max.messages.kbytes queued.min.messages
queuing.strategy receive.message.max.bytes reconnect.backoff.jitter.ms socket.blocking.max.ms
socket.keepalive.enable socket.max.fails socket.nagle.disable sticky.partitioning.linger.ms
test.mock.broker.rtt test.mock.num.brokers topic.blacklist topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.sparse
"""
_OF_OTHERS: Final = frozenset((_NAMES_OF_JAVA + _NAMES_OF_LIBRDKAFKA).split())
"""The options of Kafka's clients in Java and of librdkafka that don't decide how a connection is secured."""
_SECURITY: Final = ("ssl.", "sasl.", "security.", "enable.ssl.", "enable.sasl.")
_WITHOUT_EFFECT: Final = (
    "sasl.kerberos.",
    "sasl.login.connect.",
    "sasl.login.read.",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.oauthbearer.clock.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
    "ssl.keymanager.",
    "ssl.secure.random.",
    "ssl.trustmanager.",
)
"""Options for security that change neither who is trusted nor who logs in."""


def is_of_others(name: str, known: Collection[str]) -> bool:
    """Whether a file that other clients read, too, has ``name`` for them: no option in ``known``, nor a typo of one.

    All names are Kafka's. An unknown option that decides how a connection is secured isn't for others.
    """
    if name in known:
        return False
    if name.startswith(_SECURITY):
        return name.startswith(_WITHOUT_EFFECT)
    return name in _OF_OTHERS or name.replace(".", "_") in _ADVICE or not near_names(name, known)


def unknown_option(name: str, known: Iterable[str]) -> str:
    """The end of an error about the unknown option ``name``: advice, or the names in ``known`` most like it, or ``""``.

    ``name`` may have dots, as in Kafka, or underscores.
    """
    key = name.lower().replace(".", "_").replace("-", "_")
    if key.startswith("sasl_"):
        of_sasl = [] if key.startswith(_FOREIGN_SASL) else [each for each in known if each.startswith("sasl")]
        close = did_you_mean(name, of_sasl)
        return close or "; of SASL the client has sasl_mechanism, sasl_plain_username and sasl_plain_password"
    advice = _ADVICE.get(key)
    return f"; {advice}" if advice else did_you_mean(name, known)
