"""Collectors for topics, requests, connections, the event loop and the process."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker import events
from ottla_broker.counters import RequestTimes, Timings
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.windows import Windows
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.prometheus import escape, labels

if TYPE_CHECKING:
    from ottla_broker.log.files import Files
    from ottla_broker.metrics.loop_monitor import LoopMonitor
    from ottla_broker.metrics.sources import Sources

_TOPICS_A_STEP: Final = 50
_CONNECTIONS_A_STEP: Final = 500

_TOPIC_COUNTERS: Final = (
    ("messagesin", "messages_in", "Records appended by producers, by the headers of their batches."),
    ("bytesin", "bytes_in", "Bytes appended by producers."),
    ("bytesout", "bytes_out", "Bytes of records sent to consumers."),
    ("bytesrejected", "bytes_rejected", "Bytes of batches larger than max.message.bytes."),
    ("totalproducerequests", "produce_requests", "Produce requests, counted for each partition."),
    ("failedproducerequests", "failed_produce_requests", "Produce requests that failed unexpectedly."),
    ("totalfetchrequests", "fetch_requests", "Fetch requests, counted for each partition that is read."),
    ("failedfetchrequests", "failed_fetch_requests", "Fetch requests that failed unexpectedly."),
)
"""Kafka's ``BrokerTopicMetrics``: once for all topics, and once for each."""

_REQUEST_TIMES: Final = (
    ("totaltimems", "total", "Time from a request's last byte to its encoded response"),
    ("requestqueuetimems", "queue", "Time from a request's last byte until it was handled"),
    ("localtimems", "local", "Time that handlers took"),
    ("remotetimems", "remote", "Time that requests then waited for data, replicas or other brokers"),
)
"""Kafka's ``RequestMetrics``, and where :class:`.RequestTimes` has them."""
_WAITS: Final = frozenset({"queue", "remote"})
"""What a request that was handled and answered at once didn't take."""


def api_label(api_key: int) -> str:
    """An API's name as Kafka's metrics have it: ``Produce``, ``OffsetCommit``."""
    try:
        name = ApiKey(api_key).name
    except ValueError:
        return str(api_key)
    return "".join(part.capitalize() for part in name.split("_"))


class ProcessFacts(NamedTuple):
    """The system's facts about this process: memory, open descriptors, when it started, and what went to disks.

    None: the system doesn't say it.
    """

    resident_bytes: int
    descriptors: int
    started: float | None
    disk: tuple[int, int] | None


def process_facts(files: Files) -> ProcessFacts | None:
    """Ask Linux; None on other systems. On a thread: listing ten thousand descriptors takes 10 ms."""
    try:
        pages = int(files.read_all("/proc/self/statm").split()[1])
        descriptors = len(files.names("/proc/self/fd"))
    except OSError:
        return None
    return ProcessFacts(pages * resource.getpagesize(), descriptors, _started(files), _disk_bytes(files))


def _started(files: Files) -> float | None:
    """Return when the process started, in seconds since 1970."""
    try:
        # Its name may have spaces and parentheses.
        ticks = int(files.read_all("/proc/self/stat").rpartition(b")")[2].split()[19])
        boot = next(line for line in files.read_all("/proc/stat").splitlines() if line.startswith(b"btime "))
    except (OSError, StopIteration):
        return None
    return int(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")


def _disk_bytes(files: Files) -> tuple[int, int] | None:
    """The bytes that the process has caused to be read from disks and written to them."""
    try:
        lines = files.read_all("/proc/self/io").splitlines()
    except OSError:
        return None
    found = dict(line.split(b": ") for line in lines)
    return int(found[b"read_bytes"]), int(found[b"write_bytes"])


class TrafficCollector:
    """See :data:`.sources.Collector`. Owned by the loop thread."""

    def __init__(self, sources: Sources, windows: Windows, monitor: LoopMonitor) -> None:
        self._sources = sources
        self._windows = windows
        self._monitor = monitor
        self._process: ProcessFacts | None = None

    async def prepare(self) -> None:
        """Ask for what takes a thread."""
        self._process = await self._sources.background.run(process_facts, self._sources.logs.files)

    def topics(self, out: Exposition) -> Iterator[None]:
        """Records, bytes and requests by topic."""
        counters = self._sources.replicas.counters
        total = counters.total()
        prefix = "kafka_server_brokertopicmetrics_"
        families = [
            (out.counter(f"{prefix}{name}_total", meaning), attribute)
            for name, attribute, meaning in _TOPIC_COUNTERS
        ]
        for family, attribute in families:
            family.add(getattr(total, attribute))
        out.counter(
            f"{prefix}replicationbytesin_total", "Bytes copied here from the partitions' leaders."
        ).add(counters.replication_bytes_in)
        out.counter(f"{prefix}replicationbytesout_total", "Bytes that followers have copied from here.").add(
            counters.replication_bytes_out
        )
        for done, (topic, counts) in enumerate(counters.topics(), 1):
            if out.room(len(families)):
                at = f'{{topic="{escape(topic)}"}}'
                for family, attribute in families:
                    family.add(getattr(counts, attribute), at)
            if done % _TOPICS_A_STEP == 0:
                yield

    def requests(self, out: Exposition) -> Iterator[None]:
        """Requests and their times by API."""
        prefix = "kafka_network_requestmetrics_"
        requests = out.counter(f"{prefix}requests_total", "Requests answered, by API and version.")
        families = [
            (out.summary(prefix + name, f"{meaning}, in ms, over the last one to two minutes."), part)
            for name, part, meaning in _REQUEST_TIMES
        ]
        by_api: dict[str, list[RequestTimes]] = {}
        for api_key, version, timings, of_followers in self._sources.dispatcher.timings():
            if timings is None:
                continue
            name = api_label(api_key)
            several = [timings] if of_followers is None else [timings, of_followers]
            by_api.setdefault(name, []).extend(several)
            requests.add(sum(each.count for each in several), f'{{request="{name}",version="{version}"}}')
            if of_followers is not None:
                by_api.setdefault("FetchConsumer", []).append(timings)
                by_api.setdefault("FetchFollower", []).append(of_followers)
        now = self._sources.clock.monotonic()
        for name, several in by_api.items():
            label, direct = f'request="{name}"', [each.direct for each in several]
            for family, part in families:
                waited: list[Timings] = [getattr(each, part) for each in several]
                if part in _WAITS:
                    self._windows.add(family, label, waited, now, zeros=direct)
                else:
                    self._windows.add(family, label, [*direct, *waited], now)
            yield
        waits = out.summary(
            f"{prefix}throttletimems",
            "How long clients that exceeded a quota had to wait, in ms, over the last one to two minutes.",
        )
        throttles: dict[str, list[Timings]] = {}
        for api_key, throttled in self._sources.dispatcher.throttles():
            throttles.setdefault(api_label(api_key), []).append(throttled)
        for name, waited in throttles.items():
            if any(each.count for each in waited):
                self._windows.add(waits, f'request="{name}"', waited, now)
                yield

    def connections(self, out: Exposition) -> Iterator[None]:
        """Sockets and the bytes that went through them."""
        prefix = "kafka_server_socket_server_metrics_"
        count = out.gauge(f"{prefix}connection_count", "Open connections.")
        created = out.counter(f"{prefix}connection_creation_total", "Connections accepted.")
        closed = out.counter(f"{prefix}connection_close_total", "Connections closed.")
        received = out.counter(f"{prefix}incoming_byte_total", "Bytes received.")
        sent = out.counter(f"{prefix}outgoing_byte_total", "Bytes sent.")
        by_file = out.counter("ottla_sendfile_bytes_total", "Bytes sent straight from segments, by sendfile.")
        waiting = out.gauge(
            "ottla_requests_waiting", "Requests that wait: for data, replicas, or earlier responses."
        )
        unsent = out.gauge(
            "ottla_response_bytes_in_flight", "Bytes of responses that clients don't take yet."
        )
        succeeded = out.counter(
            f"{prefix}successful_authentication_total",
            "Clients that have authenticated, by SASL or else by TLS.",
        )
        failed = out.counter(f"{prefix}failed_authentication_total", "Clients that could not authenticate.")
        for listener, logins in self._sources.logins.items():
            at = labels(listener=listener)
            succeeded.add(logins.succeeded, at)
            failed.add(logins.failed, at)
        requests = unsent_bytes = 0
        for acceptor in self._sources.acceptors:
            for processor in acceptor.processors:
                at = f'{{listener="{escape(acceptor.name)}",networkProcessor="{processor.number}"}}'
                count.add(len(processor.connections), at)
                created.add(processor.accepted, at)
                closed.add(processor.accepted - len(processor.connections), at)
                received.add(processor.received_bytes, at)
                sent.add(processor.sent_bytes, at)
                by_file.add(processor.sendfile_bytes, at)
                for done, connection in enumerate(list(processor.connections), 1):
                    requests += connection.pending_requests
                    unsent_bytes += connection.unsent_bytes
                    if done % _CONNECTIONS_A_STEP == 0:
                        yield
        waiting.add(requests)
        unsent.add(unsent_bytes)
        out.gauge("ottla_connections_limit", "max.connections.").add(self._sources.quotas.total)
        out.gauge("ottla_request_bytes_in_flight", "Bytes of buffers for requests that arrive.").add(
            sum(memory.used for memory in self._sources.memories)
        )
        out.gauge("ottla_request_bytes_limit", "The bound on these buffers (queued.max.request.bytes).").add(
            sum(memory.limit for memory in self._sources.memories)
        )
        out.gauge(
            "kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions (KIP-227)."
        ).add(len(self._sources.fetch_sessions))
        yield

    def loop(self, out: Exposition) -> Iterator[None]:
        """The event loop, which is Kafka's network and request handler threads in one."""
        idle = self._monitor.idle_share()
        text = (
            "The share of the last half minute in which the event loop's thread computed nothing: 1 is idle."
        )
        out.gauge("kafka_network_socketserver_networkprocessoravgidle_percent", text).add(idle)
        out.gauge("kafka_network_socketserver_networkprocessoravgidlepercent", text).add(idle)
        out.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", text).add(idle)
        lag = out.summary(
            "ottla_event_loop_lag_seconds",
            "How late the event loop was, ten times a second, over the last one to two minutes.",
        )
        self._windows.add(lag, "", [self._monitor.lateness], self._sources.clock.monotonic(), 1.0)
        yield

    def process(self, out: Exposition) -> Iterator[None]:
        """The process, under the names of prometheus-client."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        out.counter("process_cpu_seconds_total", "Processor time used, in user and system mode.").add(
            usage.ru_utime + usage.ru_stime
        )
        facts = self._process
        if facts is not None:
            out.gauge("process_resident_memory_bytes", "Resident memory.").add(facts.resident_bytes)
            out.gauge("process_open_fds", "Open file descriptors.").add(facts.descriptors)
            if facts.started is not None:
                out.gauge("process_start_time_seconds", "When the process started, since 1970.").add(
                    facts.started
                )
            if facts.disk is not None:
                prefix = "kafka_server_kafkaserver_linux_disk_"
                for name, count in zip(("read", "write"), facts.disk, strict=True):
                    out.gauge(f"{prefix}{name}_bytes", f"Bytes of this process's disk {name}s.").add(count)
        out.gauge("process_max_fds", "The limit on open file descriptors.").add(
            resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        )
        logged = out.counter("ottla_log_events_total", "Events of this broker's own log, by level.")
        for level, count in events.counts().items():
            logged.add(count, f'{{level="{level}"}}')
        yield
