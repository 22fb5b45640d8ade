"""The parts of a cluster's member that a standalone broker lacks, and its life with ZooKeeper.

At start: a session, the cluster's id, this broker's number, the topics' settings; once the listeners are bound, the
registration and the election. When ZooKeeper ends the session, the broker begins another one and registers again. To
the controller it is a new broker then, with a new epoch. Meanwhile it keeps serving the partitions that it leads, until
the controller says who leads them now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.cluster.broker_login import broker_login
from ottla_broker.cluster.configs import ClusterConfigs, Settings
from ottla_broker.cluster.controller_requests import ControllerRequests
from ottla_broker.cluster.identity import generate_broker_id, register
from ottla_broker.cluster.leader_discovery import discover_leaders
from ottla_broker.cluster.lease_monitor import watch_lease
from ottla_broker.cluster.log_dir_failures import report_failed_dir
from ottla_broker.cluster.loop_guard import LoopGuard
from ottla_broker.cluster.marker_transport import MarkerTransport
from ottla_broker.cluster.peer_monitor import PeerMonitor
from ottla_broker.cluster.reconnecting_store import ReconnectingStore
from ottla_broker.cluster.share_state_transport import ShareStateTransport
from ottla_broker.cluster.verification_transport import VerificationTransport
from ottla_broker.config.broker import shown_settings
from ottla_broker.config.client_metrics import check_client_metrics_config
from ottla_broker.config.cluster_keys import RACK_AWARE
from ottla_broker.config.group_configs import check_group_config
from ottla_broker.config.topics import check_topic_config, log_config
from ottla_broker.controller.bootstrap import ensure_paths, registration_of, settle_cluster_id
from ottla_broker.controller.cluster.cluster_controller import ClusterController
from ottla_broker.controller.cluster.context import Context
from ottla_broker.controller.cluster.controller import ActiveController
from ottla_broker.controller.cluster.controller_election import ControllerElection
from ottla_broker.controller.stored_passwords import StoredPasswords, without_passwords
from ottla_broker.events import get_logger
from ottla_broker.metadata.epoch_fencing import EpochFence
from ottla_broker.network.peer import PeerConnection, Peers, Purpose
from ottla_broker.replica.alter_partition import AlterPartitionManager
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.fetcher import Fetcher, FetcherSettings
from ottla_broker.replica.fetcher_manager import FetcherManager
from ottla_broker.replica.leader_lease import DOUBT_SECONDS, LeaderLease
from ottla_broker.replica.manager import ReplicaManager
from ottla_broker.replica.replication_quota import ReplicationQuota
from ottla_broker.replica.selector import RackAwareSelector
from ottla_broker.replica.state_changes import ReplicaStateChanges
from ottla_broker.store.api import Lease, StoreError
from ottla_broker.store.keys import (
    DEFAULT_ENTITY,
    PERSISTENT_PATHS,
    BrokerRegistration,
    ConfigChangeNode,
    ConfigNode,
    ControllerEpochNode,
    encode_uuid,
)
from ottla_broker.store.zookeeper import SaslUser, Tls, ZooKeeperSettings, ZooKeeperStore
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest

if TYPE_CHECKING:
    import ssl
    from random import Random

    from ottla_broker.clock import Clock
    from ottla_broker.cluster.group_holders import GroupHolders
    from ottla_broker.cluster.lag_transport import LagTransport
    from ottla_broker.config import BrokerConfig, Endpoint
    from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
    from ottla_broker.log.config import LogConfig
    from ottla_broker.log.manager import LogManager
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.replica.txn_markers import TxnMarkers

_log = get_logger()

_RETRY_SECONDS: Final = 0.5
_CONNECT_SECONDS: Final = 10.0
_SHUTDOWN_SECONDS: Final = 10.0
_GRACE_SECONDS: Final = 0.1


class ClusterMember:
    """Owned by the loop thread. :meth:`open`, then :meth:`join`; :meth:`leave` and :meth:`close` at the end.

    Attributes:
        replicas, controller, controller_requests: what handlers use.
        on_broker_configs: called when dynamic configs of the broker have changed.
        on_failed: called when this member can't go on because of a defect.
        on_stall: called on a thread when the event loop has stood still for so long that others are to lead instead.
    """

    def __init__(
        self,
        config: BrokerConfig,
        logs: LogManager,
        metadata: MetadataCache,
        clock: Clock,
        random: Random,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """``tls`` returns the context for connections to other brokers, if they use TLS."""
        self._config = config
        self._tls = tls
        self._logs = logs
        self._metadata = metadata
        self._clock = clock
        self._random = random
        self.on_broker_configs: list[Callable[[], None]] = []
        self.on_failed: Callable[[], None] = lambda: None
        self.on_stall: list[Callable[[], None]] = [lambda: self._session.abandon()]
        self.fence = EpochFence(clock, self._latest_controller_epoch)
        self.store = ReconnectingStore()
        self._settings = _zookeeper_settings(config, random)
        self._session: ZooKeeperStore
        self._election: ControllerElection | None = None
        self._active: ActiveController | None = None
        self._registration: BrokerRegistration | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[MarkerTransport | VerificationTransport | ShareStateTransport] = []
        # The brokers that the last metadata has.
        self._alive: frozenset[int] = frozenset()
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}

    async def open(self, cluster_id: str | None, broker_id: int | None) -> None:
        """Begin a session and settle the ids. Both arguments are the data folder's.

        Raises StoreError, BadNodeError: with a one-line message.
        """
        config = self._config
        session = await self._new_session()
        await ensure_paths(session, (*PERSISTENT_PATHS, ConfigChangeNode.OWN_PARENT))
        self._metadata.cluster_id = await settle_cluster_id(
            session,
            cluster_id,
            lambda: encode_uuid(self._random.getrandbits(128).to_bytes(16, "big")),
            "check zookeeper.connect and log.dirs; a folder whose data is not needed can be emptied",
        )
        if not config.broker_id_given:
            number = broker_id
            if number is None:
                number = await generate_broker_id(session, config.reserved_broker_max_id)
            config.use_broker_id(number)
        self.configs = ClusterConfigs(self.store, self._configured, self._check_setting, self._clock)
        self.configs.decrypt = self._decrypted
        await self.configs.load_topics()
        default = await self.configs.in_force(ConfigNode.BROKERS, DEFAULT_ENTITY)
        own = await self.configs.in_force(ConfigNode.BROKERS, str(config.broker_id))
        config.apply_dynamic(default, own)
        self._metadata.group_configs.update(await self.configs.named(ConfigNode.GROUPS))
        for name, settings in (await self.configs.named(ConfigNode.CLIENT_METRICS)).items():
            self._metadata.put_client_metrics(name, settings)
        self._create_parts()

    def _create_parts(self) -> None:
        config = self._config
        number = config.broker_id
        self._peers = Peers(
            f"broker-{number}",
            self._clock,
            tls=self._tls,
            login=broker_login(self._config, self._clock, self._random),
        )
        self._peer_monitor = PeerMonitor(
            number, self._peers, self._clock, self._place, self._on_dead, self._metadata.set_reachable
        )
        self._metadata.check_brokers = self._peer_monitor.check_closed
        self._leader_lease = LeaderLease(
            Lease(), config.replica_fetch_wait_max_ms / 1000 + DOUBT_SECONDS, self._peer_monitor.is_dead
        )
        self._alter_partition = AlterPartitionManager(
            number, self._broker_epoch, self._to_controller, self._clock
        )
        self._create_replicas()
        self.controller_requests = ControllerRequests(
            self.fence,
            self._metadata,
            self.replicas,
            ReplicaStateChanges(self.replicas, self._fetchers, self._logs),
            self.configs,
            self.in_force,
            self._peers.set_address,
            self.store,
            self._clock,
        )
        self.controller_requests.on_leaders = self._on_leaders
        self.controller_requests.on_brokers.append(self._update_addresses)
        self.controller_requests.on_brokers.append(self.replicas.brokers_changed)
        self.controller = ClusterController(
            config=config,
            metadata=self._metadata,
            clock=self._clock,
            random=self._random,
            configs=self.configs,
            to_controller=self._to_controller,
            wait_for=self.controller_requests.wait_for,
            broker_epoch=self._broker_epoch,
            active=lambda: self._active,
        )

    def _create_replicas(self) -> None:
        """The replicas here, and what fetches them from their leaders."""
        config, number = self._config, self._config.broker_id
        self.replicas = ReplicaManager(
            ReplicaEnvironment(
                number,
                self._logs,
                self._clock,
                max_lag_seconds=config.replica_lag_time_max_ms / 1000,
                is_eligible=lambda broker, _: broker in self._metadata.brokers,
                propose=self._alter_partition.propose,
                leader_lease=self._leader_lease,
            )
        )
        self.replicas.share_with_cluster()
        self.replicas.leader_quota = self._replication_quota("leader")
        self._follower_quota = self._replication_quota("follower")
        fetcher_settings = FetcherSettings(
            wait_max_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_max_bytes,
            response_max_bytes=config.replica_fetch_response_max_bytes,
            backoff_ms=config.replica_fetch_backoff_ms,
            socket_timeout_ms=config.replica_socket_timeout_ms,
        )
        self._fetchers = self.replicas.fetchers = FetcherManager(
            config.num_replica_fetchers,
            lambda leader: Fetcher(
                leader,
                number,
                self._broker_epoch,
                # A connection for each fetcher: its requests wait at the leader, and others would wait behind them.
                lambda broker: self._peers.connect(broker, _CONNECT_SECONDS),
                fetcher_settings,
                self._clock,
                self.replicas.partition_failed,
                self._follower_quota,
            ),
        )
        self._apply_rates()
        self.on_broker_configs.append(self._apply_rates)
        self.replicas.on_folder_failed.append(
            lambda folder, _: self._start(report_failed_dir(self.store, number, folder, self._clock))
        )
        if config.replica_selector_class == RACK_AWARE:
            self.replicas.selector = RackAwareSelector(number, self._rack_of)

    @property
    def active_controller(self) -> ActiveController | None:
        """The cluster's controller, while this broker is it."""
        return self._active

    def marker_transport(self, local: TxnMarkers) -> MarkerTransport:
        """Delivers transaction markers to this broker, where ``local`` writes them, and to the others."""
        made = MarkerTransport(self._config.broker_id, local, self._peers)
        self._transports.append(made)
        return made

    def verification_transport(self) -> VerificationTransport:
        """Asks other brokers to verify transactions."""
        made = VerificationTransport(self._peers)
        self._transports.append(made)
        return made

    def share_state_transport(
        self, local: ShareStateCoordinator, leader_of: Callable[[int], int | None], timeout_ms: int
    ) -> ShareStateTransport:
        """Reaches the share coordinators: ``local``, this broker's own, and those of the others."""
        made = ShareStateTransport(
            self._config.broker_id, local, leader_of, self._peers, self._clock, timeout_ms
        )
        self._transports.append(made)
        return made

    def lag_transport(self) -> LagTransport:
        """Reaches the leaders of partitions without a replica here."""
        # Imported here because a start should not wait for it.
        from ottla_broker.cluster.lag_transport import LagTransport

        return LagTransport(self._peers)

    def group_holders(self, coordinator_of: Callable[[str], int | None]) -> GroupHolders:
        """Asks other brokers whether groups have members."""
        # Imported here because few brokers have the coordinator of 2012.
        from ottla_broker.cluster.group_holders import GroupHolders

        return GroupHolders(self._config.broker_id, self._peers, coordinator_of)

    async def _new_session(self) -> ZooKeeperStore:
        self._session = await ZooKeeperStore.open(self._settings, self._clock)
        self.store.use(self._session)
        return self._session

    async def join(self, endpoints: Sequence[Endpoint]) -> None:
        """Register, now that the ports are known, and take part in the election.

        Raises StoreError: the number is in use, or ZooKeeper can't be reached.
        """
        self._registration = registration_of(endpoints, self._config.broker_rack, self._clock.now_ms())
        await self._register(self._session)
        self._leader_lease.lease = self._lease()
        self._start(self._live())
        self._start(self._shrink_isrs())
        self._start(watch_lease(self._lease, self._clock, self._on_lease_expired, self._on_lease_renewed))
        self._start(self._guard_loop())
        self.configs.start()

    async def _guard_loop(self) -> None:
        guard = LoopGuard(
            asyncio.get_running_loop().call_soon_threadsafe,
            self._config.zookeeper_session_timeout_ms / 2000,
            [*self.on_stall, lambda: _log.error("the event loop stood still; others lead now")],
        )
        guard.start()
        try:
            await asyncio.Event().wait()
        finally:
            guard.stop()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task until :meth:`close`."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("cluster membership failed", exc_info=error)
            self.on_failed()

    async def _register(self, session: ZooKeeperStore) -> None:
        assert self._registration is not None
        self.fence.broker_epoch = await register(session, self._config.broker_id, self._registration)

    async def _live(self) -> None:
        """Keep a session with ZooKeeper, beginning another when one ends."""
        while True:
            self._election = ControllerElection(
                self._session,
                self._config.broker_id,
                self._clock,
                self._on_elected,
                self._on_resigned,
                lambda _: self._watch_others(),
            )
            await self._election.run()
            _log.warning("the session with ZooKeeper has ended; beginning another one")
            await self._session.close()
            while True:
                try:
                    await self._register(await self._new_session())
                    break
                except StoreError as error:
                    _log.error("no session with ZooKeeper", reason=str(error))
                    await self._clock.sleep(_RETRY_SECONDS)

    async def _on_elected(self, epoch: int, epoch_version: int) -> None:
        self._active = ActiveController(
            self._session,
            self._config.broker_id,
            epoch,
            epoch_version,
            config=self._config,
            connect=lambda broker, timeout: self._peers.connection(broker, Purpose.CONTROL, timeout),
            clock=self._clock,
            listener=self.listener,
            unclean_allowed=lambda topic: (
                self.in_force(self.configs.topic(topic)).unclean_leader_election_enable
            ),
            on_moved=self._on_controller_moved,
            on_brokers=self._update_addresses_early,
        )
        self._active.start()

    async def _on_resigned(self) -> None:
        active, self._active = self._active, None
        if active is not None:
            await active.close()

    def is_controller(self) -> bool:
        """Whether this broker is the cluster's controller."""
        return self._active is not None

    def _lease(self) -> Lease:
        return self._session.lease

    def _on_leaders(self, broker_epoch: int) -> None:
        """Lead under the new session's lease once the controller has sent LeaderAndIsr for its registration.

        Not before: other brokers may lead by now what this one led under an earlier session.
        """
        if broker_epoch in (-1, self.fence.broker_epoch):
            self._leader_lease.lease = self._lease()

    async def _on_lease_expired(self) -> None:
        if self._election is not None:
            await self._election.step_down()
        doubtful = self.replicas.fail_doubtful()
        self._metadata.set_doubtful({key for key in doubtful if self._leads_by_metadata(*key)})
        if self._metadata.doubtful:
            topics = {topic for topic, _ in self._metadata.doubtful}
            await discover_leaders(
                self._metadata,
                self._peers,
                self._config.broker_id,
                topics,
                self.controller_requests.learn_leaders,
            )

    def _leads_by_metadata(self, topic: str, partition: int) -> bool:
        known = self._metadata.topic(topic)
        info = None if known is None else known.partitions.get(partition)
        return info is None or info.leader == self._config.broker_id

    def _on_lease_renewed(self) -> None:
        # In a new session the controller says what this broker leads; in the old one nothing has changed.
        self._metadata.set_doubtful(frozenset())
        if self._election is not None:
            self._election.stand()

    def _on_controller_moved(self) -> None:
        if self._election is not None:
            self._election.resign()

    def _on_dead(self, broker: int) -> None:
        election = self._election
        if election is not None and not election.is_controller and election.controller == broker:
            _log.warning("the controller's process is gone", controller=broker)
            election.take_over(broker)

    def _watch_others(self) -> None:
        controller = self.controller_id()
        self._peer_monitor.watch({*self._metadata.brokers, *([controller] if controller >= 0 else [])})

    def controller_id(self) -> int:
        """The controller's broker id as far as known, or -1."""
        election = self._election
        if election is not None and election.controller >= 0:
            return election.controller
        return self.fence.controller_id

    async def _to_controller(self) -> PeerConnection:
        """The connection to the controller. Raises ConnectionError."""
        controller = self.controller_id()
        if controller < 0:
            raise ConnectionError("no broker is the controller now")
        return await self._peers.connection(controller, Purpose.OTHER, _CONNECT_SECONDS)

    def _place(self, controller: int) -> int:
        others = sorted(broker for broker in self._metadata.brokers if broker != controller)
        return others.index(self._config.broker_id) if self._config.broker_id in others else len(others)

    @property
    def listener(self) -> str:
        """The name of the inter-broker listener."""
        return self._config.inter_broker_endpoint.name

    def _update_addresses(self) -> None:
        """Use the brokers' addresses in the metadata, and stop waiting for brokers that aren't alive."""
        brokers = self._metadata.brokers
        for broker in brokers.values():
            host, port = broker.listeners.get(self.listener, (broker.host, broker.port))
            self._peers.set_address(broker.id, host, port)
        for broker_id in self._alive - brokers.keys():
            # One that is frozen or cut off answers nothing, and holds up what other brokers can do by now.
            self._peers.hang_up(broker_id, (Purpose.MARKERS, Purpose.VERIFICATION, Purpose.SHARE_STATE))
        self._alive = frozenset(brokers)
        self._watch_others()

    def _update_addresses_early(self, context: Context) -> None:
        """Use the addresses that the controller on this broker has read, before its UpdateMetadata arrives."""
        from ottla_broker.controller.cluster.batch import endpoints_of

        for broker in context.brokers.values():
            for endpoint in endpoints_of(broker):
                if endpoint.name == self.listener:
                    self._peers.set_address(broker.id, endpoint.host, endpoint.port)

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._metadata.brokers.get(broker_id)
        return None if broker is None else broker.rack

    async def _latest_controller_epoch(self) -> int:
        """Raises StoreError, BadNodeError."""
        # The server that answers may lag behind the one that a new controller has written to.
        await self.store.sync(ControllerEpochNode.PATH)
        data, _ = await self.store.get(ControllerEpochNode.PATH)
        return ControllerEpochNode.decode(data)

    def _broker_epoch(self) -> int:
        return self.fence.broker_epoch

    async def _decrypted(self, kind: str, name: str, settings: Settings) -> Settings:
        if kind != ConfigNode.BROKERS:
            return settings
        if name != str(self._config.broker_id):
            # Other brokers may have another secret.
            return without_passwords(settings)
        return await StoredPasswords(self._config, self._random).decrypted(settings)

    def _check_setting(self, kind: str, name: str, text: str) -> None:
        if kind == ConfigNode.TOPICS:
            check_topic_config(name, text)
        elif kind == ConfigNode.GROUPS:
            check_group_config(name, text)
        elif kind == ConfigNode.CLIENT_METRICS:
            check_client_metrics_config(name, text)
        else:
            self._config.check_dynamic({name: text})

    def in_force(self, settings: Settings) -> LogConfig:
        """The config in force for a topic with these settings; equal settings share one object."""
        key = frozenset(settings.items())
        found = self._log_configs.get(key)
        if found is None:
            found = self._log_configs[key] = log_config(self._config, settings)
        return found

    async def _configured(self, kind: str, name: str, settings: Settings) -> None:
        """Apply a change of configs in ZooKeeper."""
        config = self._config
        if kind == ConfigNode.TOPICS:
            self.controller_requests.topic_configured(name)
            _log.info("topic configured", topic=name, configs=dict(settings))
            if self._active is not None:
                self._active.leader_balancer.on_configs(name)
            return
        if kind == ConfigNode.GROUPS:
            self._metadata.group_configs[ConfigNode.group_of(name)] = dict(settings)
            _log.info("group configured", group=ConfigNode.group_of(name), configs=dict(settings))
            return
        if kind == ConfigNode.CLIENT_METRICS:
            self._metadata.put_client_metrics(ConfigNode.group_of(name), settings)
            _log.info(
                "client metrics configured", subscription=ConfigNode.group_of(name), configs=dict(settings)
            )
            return
        if name not in (DEFAULT_ENTITY, str(config.broker_id)):
            return
        if name == DEFAULT_ENTITY:
            config.apply_dynamic(settings, config.dynamic_broker)
        else:
            config.apply_dynamic(config.dynamic_default, settings)
        self._log_configs.clear()
        self.controller_requests.defaults_changed()
        _log.info("broker configured", scope=name, configs=shown_settings(settings))
        if self._active is not None:
            self._active.leader_balancer.on_configs(None)
        for callback in self.on_broker_configs:
            callback()

    def _replication_quota(self, side: str) -> ReplicationQuota:
        return ReplicationQuota(
            self._clock,
            self._config.broker_id,
            lambda topic: self.configs.topic(topic).get(f"{side}.replication.throttled.replicas", ""),
            self._config.replication_quota_window_num,
            self._config.replication_quota_window_size_seconds,
        )

    def _apply_rates(self) -> None:
        assert self.replicas.leader_quota is not None
        self.replicas.leader_quota.limit = self._config.leader_replication_throttled_rate
        self._follower_quota.limit = self._config.follower_replication_throttled_rate

    async def _shrink_isrs(self) -> None:
        while True:
            await self._clock.sleep(self._config.replica_lag_time_max_ms / 2000)
            self.replicas.remove_lagging()

    async def leave(self) -> None:
        """Move leadership to other brokers before this one stops (``controlled.shutdown.*``)."""
        config = self._config
        if not config.controlled_shutdown_enable or self._registration is None:
            return
        self._fetchers.stop_adding()
        for attempt in range(1 + config.controlled_shutdown_max_retries):
            if attempt and await self.controller_requests.wait_for(
                lambda: self._metadata.brokers.keys() <= {config.broker_id},
                config.controlled_shutdown_retry_backoff_ms / 1000,
            ):
                _log.info("no other broker is left to take over leadership")
                return
            try:
                link = await self._to_controller()
                answer = await link.submit(
                    ControlledShutdownRequest(
                        broker_id=config.broker_id, broker_epoch=self.fence.broker_epoch
                    ),
                    timeout=_SHUTDOWN_SECONDS,
                )
            except ConnectionError as error:
                _log.info("the controller could not be asked for a controlled shutdown", reason=str(error))
                continue
            if not answer.error_code and not answer.remaining_partitions:
                _log.info("leadership handed over")
                # Clients that ask now get the new leaders over their open connections.
                await self._clock.sleep(_GRACE_SECONDS)
                return
            _log.info(
                "leadership not handed over",
                error=answer.error_code,
                remaining=len(answer.remaining_partitions),
            )
        _log.warning("stopping although leadership is not handed over")

    async def close(self) -> None:
        """End the session, and with it the registration and, on the controller, its node."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if hasattr(self, "_peers"):
            await self.configs.close()
            await self._peer_monitor.close()
            await self._alter_partition.close()
            await self._fetchers.close()
            await self._on_resigned()
            for transport in self._transports:
                await transport.close()
            await self._peers.close()
        await self.store.close()


def _zookeeper_settings(config: BrokerConfig, random: Random) -> ZooKeeperSettings:
    assert config.zookeeper_connect
    session = config.zookeeper_session_timeout_ms
    connection = config.zookeeper_connection_timeout_ms
    user, password = config.zookeeper_digest_user, config.zookeeper_digest_password
    sasl = None
    if config.zookeeper_sasl_user is not None and config.zookeeper_sasl_password is not None:
        sasl = SaslUser(
            config.zookeeper_sasl_user,
            config.zookeeper_sasl_password,
            lambda: f"{random.getrandbits(128):032x}",
        )
    tls = None
    if config.zookeeper_ssl_client_enable:
        tls = Tls(
            config.zookeeper_ssl_truststore_location,
            config.zookeeper_ssl_keystore_location,
            config.zookeeper_ssl_keystore_password,
            verify_hostname=config.zookeeper_ssl_endpoint_identification_algorithm != "",
        )
    return ZooKeeperSettings(
        config.zookeeper_connect,
        session_timeout_ms=session,
        connection_timeout_ms=session if connection is None else connection,
        max_in_flight=config.zookeeper_max_in_flight_requests,
        set_acl=config.zookeeper_set_acl,
        digest=None if user is None or password is None else (user, password),
        tls=tls,
        sasl=sasl,
    )
