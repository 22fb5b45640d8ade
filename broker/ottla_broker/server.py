"""The composition root: builds the parts of a broker, starts them in order, and stops them in reverse order.

The start binds the listeners first, so that a port in use is reported before anything is touched. Then it locks and
loads the data folders, makes the partitions available, and only then accepts clients. The stop refuses new connections,
finishes responses, answers waiting requests, and closes the logs, with the clean-shutdown marker last.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ottla_broker import events
from ottla_broker.access import Access
from ottla_broker.background import Background
from ottla_broker.clock import Clock
from ottla_broker.config.topics import log_config
from ottla_broker.controller.features import FeatureAdmin
from ottla_broker.controller.standalone import StandaloneController
from ottla_broker.coordinator.on_demand import import_in_steps
from ottla_broker.coordinator.zookeeper_offsets import ZooKeeperOffsets
from ottla_broker.coordinator_environment import CoordinatorEnvironment
from ottla_broker.coordinators import Coordinators
from ottla_broker.events import get_logger
from ottla_broker.handlers import served_apis
from ottla_broker.listeners import Listeners
from ottla_broker.log.folder import LogDirError
from ottla_broker.log.maintenance import Intervals
from ottla_broker.log.manager import LogManager
from ottla_broker.log.producer_limit import ProducerLimit
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_broker.network.acceptor import ListenError
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.fetch_session import FetchSessions
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.requests.dispatch import Dispatcher
from ottla_broker.requests.services import Services
from ottla_broker.requests.turns import Turns
from ottla_broker.store.api import StoreError, children_of
from ottla_broker.store.embedded import EmbeddedStore
from ottla_broker.store.keys import BadNodeError
from ottla_broker.tasks import Step, undo
from ottla_protocol.errors import KafkaError
from ottla_protocol.partitioning import LAG_TOPIC

if TYPE_CHECKING:
    import socket

    from ottla_broker.api_parts.client_telemetry import ClientTelemetry
    from ottla_broker.cluster.member import ClusterMember
    from ottla_broker.config import BrokerConfig, Endpoint
    from ottla_broker.controller.api import Controller
    from ottla_broker.counters import Timings
    from ottla_broker.log.cleaner.service import LogCleaner
    from ottla_broker.metrics.lag_history import LagHistory
    from ottla_broker.metrics.service import MetricsService
    from ottla_broker.push_coordination import PushCoordination
    from ottla_broker.store.api import Store

_log = get_logger()


class StartError(Exception):
    """The broker can't start; the message is one line with the reason and what to do."""


class Broker:
    """A running broker. Owned by the loop thread."""

    def __init__(self, config: BrokerConfig, clock: Clock, random: Random) -> None:
        self.config = config
        self.clock = clock
        self.random = random
        self.background = Background(config.background_threads)
        self._turns = Turns()
        self.metadata = MetadataCache()
        self.controller: Controller
        self.member: ClusterMember | None = None
        self.access: Access
        self.metrics: MetricsService | None = None
        self.push: PushCoordination | None = None
        self.lag_history: LagHistory | None = None
        self.telemetry: ClientTelemetry | None = None
        self._store: Store
        # A broker alone is the controller.
        self._is_controller: Callable[[], bool] = lambda: True
        self._store_timings: Timings | None = None
        self._cleaner: LogCleaner | None = None
        self.replicas: ReplicaManager
        self.fetch_sessions = FetchSessions(config.max_incremental_fetch_session_cache_slots, clock, random)
        self.logs = LogManager(
            config.data_dirs,
            log_config(config, {}),
            clock,
            self.background,
            random,
            recovery_threads=config.num_recovery_threads_per_data_dir,
            producer_id_expiration_ms=config.producer_id_expiration_ms,
            intervals=_intervals(config),
        )
        self.logs.environment.max_producers = config.max_producers_per_partition
        self.logs.environment.producer_limit = ProducerLimit(
            config.max_producers, self.logs.producer_states, clock.monotonic
        )
        # Undo the steps of the start, last first.
        self._stopping: list[Step] = []
        self._loaded = False
        self.listeners = Listeners(config, clock, random, self._stopping)

    async def start(self) -> None:
        """Start everything, and accept clients. Raises StartError if a step fails; earlier ones are undone."""
        try:
            await self._start()
        except (ListenError, LogDirError, StoreError, BadNodeError, KafkaError) as error:
            await self.stop()
            raise StartError(str(error)) from error
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self._stopping.append(self.background.close)
        self._load_retention_policies()
        self.listeners.bind()
        is_new = not (
            self.config.zookeeper_connect or any(folder.exists() for folder in self.config.data_dirs)
        )
        if is_new:
            # Nothing was set at runtime yet, so what is wrong is reported before anything is made.
            await self.listeners.load()
        push_socket = self._bind_push()
        await self._open_metrics()
        self.logs.lock()
        self._stopping.append(self._close_logs)
        if self.config.zookeeper_connect:
            await self._start_in_cluster()
        else:
            await self._start_standalone(is_new)
        if push_socket is not None:
            await self._start_push(push_socket)
        self._serve_metrics()

    def _load_retention_policies(self) -> None:
        settings = self.config.retention_policies
        if settings:
            from ottla_broker.log.user_retention import PolicyError, UserRetention, load_policies

            try:
                self.logs.user_retention = UserRetention(load_policies(settings), self.clock)
            except PolicyError as error:
                raise StartError(str(error)) from error

    async def _start_standalone(self, is_new: bool) -> None:
        """Load topics from the embedded store, lead all partitions, and accept clients."""
        config = self.config
        cluster_id, broker_id = self.logs.identity()
        if broker_id is not None and not config.broker_id_given:
            config.use_broker_id(broker_id)
        store = self._store = EmbeddedStore.open(config.data_dirs, self.background, self.clock.monotonic)
        self._store_timings = store.timings
        self._stopping.append(store.close)
        self.zookeeper_offsets = ZooKeeperOffsets(store)
        self.replicas = ReplicaManager(ReplicaEnvironment(config.broker_id, self.logs, self.clock))
        self._stopping.append(self.replicas.checkpoint_high_watermarks)
        controller = StandaloneController(
            config, store, self.metadata, self.replicas, self.logs, self.clock, self.random
        )
        self.controller = controller
        await controller.load(cluster_id)
        if not is_new:
            await self.listeners.load()
        await self._load_access(store)
        self.logs.claim(self.metadata.cluster_id, config.broker_id)
        self._apply_settings()
        await self.logs.load(self.metadata.log_config)
        self._loaded = True
        await self._start_coordinators(store, controller.on_topic_deleted)
        await controller.start()
        self._start_maintenance(controller.on_broker_configs)
        self._listen()
        await controller.register(self.endpoints)
        self.listeners.accept()

    async def _start_in_cluster(self) -> None:
        """Connect to ZooKeeper, accept clients, and register; then the controller says which partitions to lead."""
        from ottla_broker.cluster.member import ClusterMember

        config = self.config
        member = self.member = ClusterMember(
            config, self.logs, self.metadata, self.clock, self.random, self.listeners.tls_between_brokers()
        )
        self._stopping.append(member.close)
        store = self._store = member.store
        self._is_controller = member.is_controller
        self.zookeeper_offsets = ZooKeeperOffsets(store)
        await member.open(*self.logs.identity())
        # At once: a start that fails later must not use up another id.
        self.logs.claim(self.metadata.cluster_id, config.broker_id)
        self.replicas = member.replicas
        await self.listeners.load()
        await self._load_access(store)
        self._apply_settings()
        await self.logs.load(lambda topic: member.in_force(member.configs.topic(topic)))
        self._loaded = True
        member.replicas.on_all_failed = partial(_halt, "all data folders have failed")
        member.on_failed = partial(_halt, "it can't rejoin its cluster")
        member.on_stall.append(self.listeners.cut)
        self._stopping.append(self.replicas.checkpoint_high_watermarks)
        self.controller = member.controller
        await self._start_coordinators(store, member.controller_requests.on_topic_deleted)
        self._start_maintenance(member.on_broker_configs)
        self._listen()
        self.listeners.accept()
        await member.join(self.endpoints)
        self._stopping.append(member.leave)

    async def _load_access(self, store: Store) -> None:
        self.features = FeatureAdmin(store, self.clock, alone=self.member is None)
        await self.features.load()
        if self.member is not None:
            self.features.start()
            self._stopping.append(self.features.close)
        self.access = Access(self.config, self.clock, self.random, store, self.member)
        await self.access.load(self.listeners.rates.set_ip, self._stopping)

    async def _open_metrics(self) -> None:
        """Open ``metrics.listener``, which reports that the broker is starting."""
        if not self.config.metrics_listener:
            return
        # Imported here because most brokers, such as those in tests, serve no metrics.
        from ottla_broker.metrics.service import MetricsService
        from ottla_protocol.prometheus import parse_address

        address = parse_address(self.config.metrics_listener)
        assert address is not None
        self.metrics = MetricsService(
            *address, self.config.metrics_max_series, self.clock, self.listeners.quotas
        )
        self._stopping.append(self.metrics.close)
        await self.metrics.start()

    def _serve_metrics(self) -> None:
        """Show the metrics, now that there is something to show."""
        if self.metrics is None:
            return
        from ottla_broker.metrics.sources import Sources

        coordinators = self.coordinators
        self.metrics.serve(
            Sources(
                config=self.config,
                clock=self.clock,
                cpu_seconds=time.thread_time,
                background=self.background,
                metadata=self.metadata,
                logs=self.logs,
                replicas=self.replicas,
                groups=coordinators.groups,
                transactions=coordinators.transactions,
                dispatcher=self._dispatcher,
                acceptors=self.listeners.acceptors,
                memories=self.listeners.memories,
                quotas=self.listeners.quotas,
                fetch_sessions=self.fetch_sessions,
                cleaner=self._cleaner,
                member=self.member,
                store_timings=self._store_timings,
                lag_history=lambda: self.lag_history,
                telemetry=self.telemetry,
                logins=self.listeners.logins,
                push=self.push,
                shares=lambda: None if coordinators.shares is None else coordinators.shares.partitions,
            )
        )
        self._stopping.append(self.metrics.stopping)

    def _bind_push(self) -> socket.socket | None:
        """Bind ``coordinator.listener``, if there is one."""
        if not self.config.coordinator_listener:
            return None
        from ottla_broker.push_coordination import bind

        sock = bind(self.config)
        self._stopping.append(sock.close)
        return sock

    async def _start_push(self, sock: socket.socket) -> None:
        """Serve the consumers of the coordinator designed in 2012."""
        from ottla_broker.push_coordination import PushCoordination

        member = self.member
        elsewhere = None if member is None else member.group_holders(self.coordinators.group_coordinator)
        self.push = PushCoordination(
            self.config,
            self.clock,
            self._store,
            self.metadata,
            self.coordinators.groups,
            self.access.authorizer(),
            sock,
            self.listeners.quotas,
            elsewhere,
        )
        self._stopping.append(self.push.close)
        await self.push.start()

    async def _start_coordinators(
        self, store: Store, on_topic_deleted: list[Callable[[str, Sequence[int]], None]]
    ) -> None:
        """Have groups and transactions coordinated. Raises StoreError."""
        # A broker in a cluster is soon elected to lead the coordinators' topics.
        are_needed = (
            self.member is not None or self.metrics is not None or bool(self.config.coordinator_listener)
        )
        self._environment = CoordinatorEnvironment(
            config=self.config,
            clock=self.clock,
            random=self.random,
            metadata=self.metadata,
            replicas=self.replicas,
            controller=self.controller,
            member=self.member,
            run=self.background.run,
            in_turns=partial(self._turns.start, client=None),
        )
        self.coordinators = Coordinators(self._environment, store, are_needed=are_needed)
        await self.coordinators.start(on_topic_deleted, self._stopping)

    def _start_maintenance(self, on_broker_configs: list[Callable[[], None]]) -> None:
        """Start the log's background tasks, checkpoints of high watermarks, and compaction."""
        self._run(self.logs.run(), "log maintenance")
        self._run(self._checkpoint_high_watermarks(), "high watermarks")
        if self.config.ottla_lag_history_enable:
            self._run(self._keep_lag_history(), "lag history")
        config = self.config
        self._stopping.append(self.replicas.moves.close)
        on_broker_configs.append(self.listeners.configs_changed)
        on_broker_configs.append(self._apply_settings)
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
        cleaner = self._cleaner = LogCleaner(
            self.logs, self.clock, settings, self.replicas.last_stable_offset
        )
        self.logs.future.on_replaced.append(cleaner.log_moved)
        cleaner.start()
        self._stopping.append(cleaner.close)

    def _apply_settings(self) -> None:
        """Adopt those settings of logs and replicas that change at runtime."""
        config, environment = self.config, self.logs.environment
        environment.verifies_transactions = config.transaction_partition_verification_enable
        environment.producer_id_expiration_ms = config.producer_id_expiration_ms
        self.replicas.moves.quota.limit = config.replica_alter_log_dirs_io_max_bytes_per_second
        if self._cleaner is not None:
            self._cleaner.set_backoff(config.log_cleaner_backoff_ms)

    def _services(self) -> Services:
        member, coordinators = self.member, self.coordinators
        return Services(
            config=self.config,
            clock=self.clock,
            served=served_apis(
                in_cluster=member is not None,
                consumer_protocol="consumer" in self.config.group_coordinator_rebalance_protocols,
                share_groups=self.config.group_share_enable,
                client_telemetry=self.telemetry is not None,
            ),
            authorizer=self.access.authorizer(),
            metadata=self.metadata,
            controller=self.controller,
            replicas=self.replicas,
            find_groups=lambda: coordinators.groups,
            turns=self._turns,
            logs=self.logs,
            fetch_sessions=self.fetch_sessions,
            find_transactions=lambda: coordinators.transactions,
            zookeeper_offsets=self.zookeeper_offsets,
            txn_markers=coordinators.txn_markers,
            scram=self.access.credentials,
            features=self.features,
            is_controller=self._is_controller,
            transaction_verifier=coordinators.transaction_verifier,
            joined=None if member is None else member.controller_requests.joined,
            quotas=self.access.quotas,
            quota_admin=self.access.quota_admin,
            acls=self.access.acls,
            tokens=self.access.tokens,
            cluster_member=member,
            find_shares=lambda: coordinators.shares,
            load_coordinators=None if coordinators.are_needed else coordinators.load,
            telemetry=self.telemetry,
            coordinated=lambda: None if self.push is None else self.push.groups,
            zookeeper_groups=lambda: self.coordinators.zookeeper_groups,
        )

    def _listen(self) -> None:
        self._start_telemetry()
        services = self._services()
        dispatcher = self._dispatcher = Dispatcher(services)
        dispatcher.times_requests = self.metrics is not None
        inter_broker = None if self.member is None else self.member.listener
        access = self.access
        self.listeners.listen(
            dispatcher, access.credentials, access.login_secret, access.tokens, inter_broker
        )

        async def close() -> None:
            dispatcher.close()
            await self.listeners.close()
            services.conversions.close()

        self._stopping.append(close)
        self._stopping.append(self._drain)

    @property
    def endpoints(self) -> list[Endpoint]:
        """The listeners, with the ports that the system has chosen."""
        return self.listeners.endpoints

    def _start_telemetry(self) -> None:
        """Take the metrics that clients push, if there is a listener that shows them."""
        if self.metrics is None:
            return
        from ottla_broker.api_parts.client_telemetry import ClientTelemetry

        config = self.config
        self.telemetry = ClientTelemetry(
            self.metadata,
            self.background,
            self.clock,
            self.random,
            config.telemetry_max_bytes,
            config.ottla_telemetry_max_series,
        )

    def _run(self, work: Awaitable[None], name: str) -> None:
        """Run a task until the broker stops. If it fails, log that; the broker continues."""
        task = asyncio.ensure_future(work)

        def ended(task: asyncio.Future[None]) -> None:
            if not task.cancelled() and task.exception() is not None:
                _log.error("a background task died", task=name, exc_info=task.exception())

        async def end() -> None:
            task.cancel()
            await asyncio.wait([task])

        task.add_done_callback(ended)
        self._stopping.append(end)

    async def _keep_lag_history(self) -> None:
        """Sample how far groups are behind, from the second interval on."""
        config, member, coordinators = self.config, self.member, self.coordinators
        interval_ms = config.ottla_lag_history_interval_ms
        await self.clock.sleep(interval_ms / 1000)
        while not coordinators.has_groups and not await children_of(self._store, "/consumers"):
            await self.clock.sleep(interval_ms / 1000)
        await coordinators.load_groups()
        # Imported here because a start shouldn't wait for it.
        await import_in_steps(("ottla_protocol.group_lag", "ottla_broker.metrics.lag_reader"))
        from ottla_broker.metrics.lag_history import LagEnvironment, LagHistory, Settings

        configured = {
            OFFSETS_TOPIC: config.offsets_topic_num_partitions,
            LAG_TOPIC: config.ottla_lag_history_num_partitions,
        }
        environment = LagEnvironment(
            broker_id=config.broker_id,
            clock=self.clock,
            replicas=self.replicas,
            logs=self.logs,
            groups=coordinators.groups,
            partitions_of=lambda topic: self._environment.partitions_of(topic, configured[topic]),
            leader_of=self._environment.leader_of,
            ensure_topic=self.controller.ensure_topic,
            leaders=None if member is None else member.lag_transport(),
            share_state=None if coordinators.shares is None else coordinators.shares.persister.summary,
            store=self._store,
            reads_store=self._is_controller,
        )
        self.lag_history = LagHistory(Settings(interval_ms, config.ottla_lag_history_max_groups), environment)
        await self.lag_history.run()

    async def _checkpoint_high_watermarks(self) -> None:
        while True:
            await self.clock.sleep(self.config.replica_high_watermark_checkpoint_interval_ms / 1000)
            try:
                await self.replicas.checkpoint_high_watermarks()
            except KafkaError as error:
                _log.error("high watermarks not written", reason=error.message)

    async def stop(self) -> None:
        """Stop cleanly, undoing every step of the start that was reached."""
        await undo(self._stopping)

    async def _drain(self) -> None:
        self.listeners.stop_accepting()
        await self.coordinators.stop()
        self.replicas.answer_fetches()
        await self.listeners.drain()

    async def _close_logs(self) -> None:
        if self._loaded:
            await self.logs.close()
        else:
            # A clean-shutdown marker would vouch for logs that were never loaded.
            for folder in self.logs.folders:
                folder.unlock()


def _halt(why: str) -> None:
    """Exit at once with status 1, as Kafka's ``LogManager`` does when all data folders have failed.

    Nothing could be written any more. The controller notices the broken connection and elects other leaders.
    """
    _log.error("the broker ends", reason=why)
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
