"""The composition root: builds a broker out of its rooms, starts and stops them in order.

Start: listeners are bound first, so that a port in use is told before anything is touched; then the data folders are
locked and loaded, the controller has the partitions led, and only then clients are accepted. Stop is the other way
round: no new connections, answers under way are finished, those who wait are told, and the logs are closed with the
clean-shutdown marker last.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ottla_broker import events
from ottla_broker.background import Background
from ottla_broker.clock import Clock, SystemClock
from ottla_broker.config.topics import log_config
from ottla_broker.controller.standalone import StandaloneController
from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.events import get_logger
from ottla_broker.handlers import served_apis
from ottla_broker.handlers.authorization import Authorizer
from ottla_broker.handlers.dispatch import Dispatcher
from ottla_broker.handlers.services import Services
from ottla_broker.log.folder import LogDirError
from ottla_broker.log.maintenance import Intervals
from ottla_broker.log.manager import LogManager
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.network.acceptor import Acceptor, ListenError, open_listener
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.processor import SocketSettings
from ottla_broker.network.request_memory import RequestMemory, request_memory_bound
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.fetch_session import FetchSessions
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.store.api import StoreError
from ottla_broker.store.embedded import EmbeddedStore
from ottla_broker.store.keys import BadNodeError
from ottla_protocol.errors import KafkaError

if TYPE_CHECKING:
    import socket

    from ottla_broker.cluster.member import ClusterMember
    from ottla_broker.config import BrokerConfig, Endpoint
    from ottla_broker.controller.api import Controller

log = get_logger()

START_SECONDS = 3.0
"""How long a broker that is told to stop while it starts may take to get that far; then it just ends."""
QUIET_SECONDS = 1.0
"""How long after the start the log of events is loaded."""
DRAIN_SECONDS = 1.0
"""How long answers under way may take when the broker stops."""


class StartError(Exception):
    """The broker can't start; the message is one line that says why and what to do."""


class Broker:
    """A running broker. Owned by the loop thread."""

    def __init__(self, config: BrokerConfig, clock: Clock, rng: random.Random) -> None:
        self.config = config
        self.clock = clock
        self.random = rng
        self.background = Background(config.background_threads)
        self.metadata = MetadataCache()
        self.controller: Controller
        self.member: ClusterMember | None = None
        self.replicas: ReplicaManager
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock, rng)
        self.logs = LogManager(
            config.data_dirs,
            log_config(config, {}),
            clock,
            self.background,
            rng,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            intervals=_intervals(config),
        )
        # What has been started, to be stopped in the opposite order.
        self._stopping: list[Callable[[], Awaitable[None]]] = []
        self._loaded = False
        self._quotas = ConnectionQuotas(
            config.max_connections, config.max_connections_per_ip, config.connection_limits
        )

    # ---- start

    async def start(self) -> None:
        """Come up to where clients are accepted.

        Raises:
            StartError: with one line for the operator. What was started by then is stopped again.
        """
        try:
            await self._start()
        except (ListenError, LogDirError, StoreError, BadNodeError, KafkaError) as error:
            await self.stop()
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._stopping.append(self._close_background)
        sockets = self._bind()
        if self.config.zookeeper_connect:
            await self._start_member(sockets)
            return
        await self._open_data()
        self._start_groups(self.standalone.on_topic_deleted, self.standalone.on_broker_configs)
        await self.standalone.start()
        self._run(self.logs.run(), "log maintenance")
        self._run(self._checkpoint_high_watermarks(), "high watermarks")
        self._start_cleaner(self.standalone.on_broker_configs)
        self._listen(sockets)
        await self.standalone.register(self.endpoints)
        for acceptor in self._acceptors:
            acceptor.start()

    async def _start_member(self, sockets: list[socket.socket]) -> None:
        """The same in a cluster: the controller tells what is led here, once this broker is registered."""
        from ottla_broker.cluster.member import ClusterMember

        config = self.config
        self.logs.lock()
        self._stopping.append(self._close_logs)
        member = self.member = ClusterMember(config, self.logs, self.metadata, self.clock, self.random)
        self._stopping.append(member.close)
        await member.open(*self.logs.identity())
        self.logs.claim(self.metadata.cluster_id, config.broker_id)
        await self.logs.load(lambda topic: member.in_force(member.configs.topic(topic)))
        self._loaded = True
        self.replicas = member.replicas
        member.replicas.on_all_failed = partial(_halt, "all data folders have failed")
        member.on_failed = partial(_halt, "it can't be a member of its cluster any more")
        self._stopping.append(self._checkpoint_last)
        self.controller = member.controller
        self._start_groups(member.controller_requests.on_topic_deleted, member.on_broker_configs)
        self._run(self.logs.run(), "log maintenance")
        self._run(self._checkpoint_high_watermarks(), "high watermarks")
        self._start_cleaner(member.on_broker_configs)
        self._listen(sockets)
        for acceptor in self._acceptors:
            acceptor.start()
        await member.join(self.endpoints)
        self._stopping.append(member.leave)

    def _bind(self) -> list[socket.socket]:
        """Take the listeners' ports; nobody is accepted yet."""
        config = self.config
        sockets: list[socket.socket] = []

        async def close_sockets() -> None:
            for sock in sockets:
                sock.close()

        self._stopping.append(close_sockets)
        # One by one, so that those which are open already are closed when the next one fails.
        sockets.extend(
            open_listener(
                endpoint.host,
                endpoint.port,
                config.socket_listen_backlog_size,
                config.socket_receive_buffer_bytes,
            )
            for endpoint in config.endpoints
        )
        return sockets

    async def _open_data(self) -> None:
        """Lock and load the data folders, with what the store says of their topics."""
        config = self.config
        self.logs.lock()
        self._stopping.append(self._close_logs)
        cluster_id, broker_id = self.logs.identity()
        if broker_id is not None and not config.broker_id_given:
            config.use_broker_id(broker_id)
        self.store = EmbeddedStore.open(config.data_dirs, self.background)
        self._stopping.append(self.store.close)
        self.replicas = ReplicaManager(ReplicaEnvironment(config.broker_id, self.logs, self.clock))
        self._stopping.append(self._checkpoint_last)
        self.controller = self.standalone = StandaloneController(
            config, self.store, self.metadata, self.replicas, self.logs, self.clock, self.random
        )
        await self.standalone.load(cluster_id)
        self.logs.claim(self.metadata.cluster_id, config.broker_id)
        await self.logs.load(self.metadata.log_config)
        self._loaded = True

    def _start_groups(
        self,
        on_topic_deleted: list[Callable[[str, Sequence[int]], None]],
        on_broker_configs: list[Callable[[], None]],
    ) -> None:
        """The lists are where to be told of deleted topics, and of changed settings."""
        settings = GroupSettings.from_config(self.config)

        def partitions() -> int:
            topic = self.metadata.topic(OFFSETS_TOPIC)
            return settings.topic_partitions if topic is None else len(topic.partitions)

        self.groups = GroupCoordinator(settings, self.clock, self.random, partitions)
        self.replicas.listeners.append(self.groups)
        on_topic_deleted.append(self.groups.on_partitions_deleted)
        on_broker_configs.append(self._take_connection_limits)
        self.groups.start()
        self._stopping.append(self._stop_groups)

    def _start_cleaner(self, on_broker_configs: list[Callable[[], None]]) -> None:
        config = self.config
        if not config.log_cleaner_enable:
            return
        from ottla_broker.log.cleaner.service import CleanerSettings, LogCleaner

        settings = CleanerSettings(
            enable=True,
            threads=config.log_cleaner_threads,
            dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
            io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
            io_buffer_size=config.log_cleaner_io_buffer_size,
            io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
            backoff_ms=config.log_cleaner_backoff_ms,
        )
        cleaner = LogCleaner(self.logs, self.clock, settings, self.replicas.last_stable_offset)
        cleaner.start()
        on_broker_configs.append(lambda: cleaner.set_backoff(config.log_cleaner_backoff_ms))
        self._stopping.append(cleaner.close)

    def _services(self) -> Services:
        member = self.member
        return Services(
            config=self.config,
            clock=self.clock,
            served=served_apis(in_cluster=member is not None, log_dirs=len(self.config.data_dirs)),
            # A broker that stands alone takes no requests of other brokers.
            authorizer=Authorizer(None if member is None else member.listener),
            metadata=self.metadata,
            controller=self.controller,
            replicas=self.replicas,
            groups=self.groups,
            logs=self.logs,
            fetch_sessions=self.fetch_sessions,
            joined=None if member is None else member.controller_requests.joined,
            cluster_member=member,
        )

    def _listen(self, sockets: list[socket.socket]) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        dispatcher = Dispatcher(self._services(), loop)
        memory = RequestMemory(
            request_memory_bound(config.queued_max_request_bytes, config.socket_request_max_bytes)
        )
        settings = SocketSettings(
            max_request_bytes=config.socket_request_max_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            max_parked=config.queued_max_requests,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        self._acceptors = [
            Acceptor(
                endpoint.name,
                sock,
                config.num_network_threads,
                loop,
                self.clock,
                dispatcher,
                self._quotas,
                memory,
                settings,
            )
            for endpoint, sock in zip(config.endpoints, sockets, strict=True)
        ]
        self.endpoints: list[Endpoint] = [
            endpoint.bound(acceptor.port)
            for endpoint, acceptor in zip(config.endpoints, self._acceptors, strict=True)
        ]

        async def close() -> None:
            dispatcher.close()
            for acceptor in self._acceptors:
                await acceptor.close()

        self._stopping.append(close)
        self._stopping.append(self._drain)

    # ---- while it runs

    def _run(self, work: Awaitable[None], name: str) -> None:
        """Have a chore run until the broker stops; one that dies is logged, the broker goes on."""
        task = asyncio.ensure_future(work)

        def ended(task: asyncio.Future[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                log.error("a background task died", task=name, exc_info=task.exception())

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        task.add_done_callback(ended)
        self._stopping.append(end)

    async def _checkpoint_high_watermarks(self) -> None:
        while True:
            await asyncio.sleep(self.config.replica_high_watermark_checkpoint_interval_ms / 1000)
            try:
                await self.replicas.checkpoint_high_watermarks()
            except KafkaError as error:
                log.error("high watermarks not written", reason=error.message)

    def _take_connection_limits(self) -> None:
        """Dynamic configs of connections have changed."""
        config = self.config
        self._quotas.update(config.max_connections, config.max_connections_per_ip, config.connection_limits)

    # ---- stop

    async def stop(self) -> None:
        """Stop cleanly, in the opposite order of the start, whatever part of that was reached."""
        while self._stopping:
            step = self._stopping.pop()
            try:
                await step()
            except Exception as error:
                # The other rooms must be closed all the same.
                log.error(
                    "stopping went wrong", step=getattr(step, "__qualname__", str(step)), exc_info=error
                )

    async def _drain(self) -> None:
        for acceptor in self._acceptors:
            acceptor.stop_accepting()
        self.groups.stop()
        self.replicas.answer_fetches()
        await asyncio.gather(*(acceptor.drain(DRAIN_SECONDS) for acceptor in self._acceptors))

    async def _stop_groups(self) -> None:
        self.groups.stop()

    async def _close_logs(self) -> None:
        if self._loaded:
            await self.logs.close()
        else:
            # The marker of a clean stop would vouch for logs that nobody has looked at.
            for folder in self.logs.folders:
                folder.unlock()

    async def _checkpoint_last(self) -> None:
        await self.replicas.checkpoint_high_watermarks()

    async def _close_background(self) -> None:
        self.background.close()


def _halt(why: str) -> None:
    """End at once, with status 1: no data folder can be used any more (Kafka's ``LogManager`` does the same), say.

    There is nothing that could still be written down; and the controller, whose connection breaks, lets others lead.
    """
    log.error("the broker ends", reason=why)
    events.release()
    os._exit(1)


def _intervals(config: BrokerConfig) -> Intervals:
    return Intervals(
        retention_ms=config.log_retention_check_interval_ms,
        flush_ms=config.log_flush_scheduler_interval_ms,
        recovery_point_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        producers_ms=config.producer_id_expiration_check_interval_ms,
        initial_delay_ms=config.log_initial_task_delay_ms,
    )


def run(
    config: BrokerConfig,
    *,
    prepare: Callable[[Broker], Awaitable[None]] | None = None,
    announce: Callable[[Broker], None] | None = None,
    lifeline: int | None = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT.

    ``prepare`` has its turn when the broker is up, before ``announce`` tells so (else a line is printed).
    ``lifeline`` is a descriptor whose end (EOF) stops the broker as a signal does: somebody's end of a pipe.

    Raises:
        StartError: it can't start.
    """
    try:
        import uvloop
    except ImportError as missing:
        raise StartError(
            f"the broker needs a package that isn't installed ({missing.name}): pip install 'ottla[broker]'"
        ) from missing

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(config, prepare, announce or _print_line, lifeline))
    finally:
        events.release()


async def _serve(
    config: BrokerConfig,
    prepare: Callable[[Broker], Awaitable[None]] | None,
    announce: Callable[[Broker], None],
    lifeline: int | None,
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    started = False

    def on_signal(number: int) -> None:
        # A second one changes nothing: terminals and supervisors often send both at once.
        if not started and not stopping.is_set():
            loop.call_later(START_SECONDS, give_up, number)
        stopping.set()

    def give_up(number: int) -> None:
        if not started:
            log.warning("stopped while starting, the next start recovers", seconds=START_SECONDS)
            # Recovery runs on threads that can't be interrupted. No client has been accepted, and what is on the
            # disk bears a kill at any point.
            os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    if lifeline is not None:
        _watch(lifeline, loop, lambda: on_signal(signal.SIGTERM))
    events.hold()
    for warning in config.warnings:
        log.warning("configuration", what=warning)
    broker = Broker(config, SystemClock(loop), random.SystemRandom())
    await broker.start()
    started = True
    # What has been made by now lives as long as the broker does: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    try:
        if prepare is not None:
            await prepare(broker)
        announce(broker)
        # By now the first clients are being served; the log of events is loaded beside them.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), QUIET_SECONDS)
        if not stopping.is_set():
            await broker.background.run(events.load)
            events.release()
        await stopping.wait()
    finally:
        await broker.stop()


def _watch(lifeline: int, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
    """Have ``ended`` called on the loop when the descriptor has come to its end; what is written to it is nothing.

    By a thread, as the loop can't wait for every kind of file: a redirected ``/dev/null`` is one that it can't.
    """

    def read() -> None:
        # One that can't be read (any more) has come to its end as well.
        with contextlib.suppress(OSError):
            while os.read(lifeline, 4096):
                pass
        # The broker may have stopped for another reason, and its loop with it.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(ended)

    threading.Thread(target=read, name="lifeline", daemon=True).start()


def _print_line(broker: Broker) -> None:
    config = broker.config
    say(
        f"ottla: broker {config.broker_id} accepts clients at {', '.join(e.advertised for e in broker.endpoints)}"
        f" (cluster {broker.metadata.cluster_id}, data in {', '.join(map(str, config.data_dirs))})"
    )


def say(line: str) -> None:
    """Print the line that tells of a started broker; that nobody reads it is no reason not to run."""
    try:
        print(line, flush=True)
    except OSError as error:
        log.warning("standard output is closed", error=str(error))
        # What is in its buffer would fail once more when the interpreter ends.
        sys.stdout = None
