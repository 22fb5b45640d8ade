"""The broker's listeners: their ports, certificates and logins, and how many clients they accept.

Their ports are bound first, so that a port in use is reported before anything else is touched. Limits, certificates and
logins come once the settings that were made at runtime are known, and clients are accepted last.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

from ottla_broker.client_threads import ClientThreads
from ottla_broker.clock import Clock
from ottla_broker.config.quota_keys import QuotaKeys
from ottla_broker.config.security_keys import SaslKeys
from ottla_broker.config.server_keys import NetworkKeys
from ottla_broker.metadata.client_quotas import Windows
from ottla_broker.network.acceptor import Acceptor, ListenError, open_listener
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.connection_rates import ConnectionRates
from ottla_broker.network.processor import SocketSettings
from ottla_broker.network.request_memory import RequestMemory, request_memory_bound
from ottla_protocol.sasl.mechanism import OAUTHBEARER

if TYPE_CHECKING:
    import socket
    import ssl

    from ottla_broker.config import BrokerConfig, Endpoint
    from ottla_broker.controller.delegation_tokens import DelegationTokens
    from ottla_broker.metadata.scram_credentials import ScramCredentials
    from ottla_broker.metrics.sources import Logins
    from ottla_broker.network.service import Service
    from ottla_broker.network.tls_listeners import TlsListeners
    from ottla_broker.requests.dispatch import Dispatcher
    from ottla_broker.security.authentication import AuthenticatingService
    from ottla_broker.security.oauth_listeners import OAuthListeners

DRAIN_SECONDS = 1.0
"""Time to finish pending responses when the broker stops."""


class Listeners:
    """Owned by the loop thread.

    Attributes:
        acceptors: one for each listener, from :meth:`listen` on, as are the next two.
        endpoints: the listeners, with the ports that the system has chosen.
        memories: the bounds of their requests' memory.
        quotas, rates: how many connections they accept, and how fast.
    """

    acceptors: list[Acceptor]
    endpoints: list[Endpoint]
    memories: list[RequestMemory]

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        random: Random,
        stopping: list[Callable[[], Awaitable[None] | None]],
    ) -> None:
        """``stopping`` gets the steps that undo what was opened, to be run last first."""
        self._config = config
        self._clock = clock
        self._random = random
        self._stopping = stopping
        self._sockets: list[socket.socket] = []
        self._tls: TlsListeners | None = None
        self._client_context: Callable[[], ssl.SSLContext] | None = None
        self._oauth: OAuthListeners | None = None
        self._logins: dict[str, AuthenticatingService] = {}
        self.quotas = ConnectionQuotas(
            config.max_connections, config.max_connections_per_ip, config.connection_limits
        )
        self.rates = self.quotas.rates = ConnectionRates(
            clock,
            config.max_connection_creation_rate,
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
        )
        if config.zookeeper_connect and len(config.endpoints) > 1:
            # Clients on other listeners must not keep brokers from each other.
            self.quotas.protected = self.rates.protected = config.inter_broker_endpoint.name

    async def load(self) -> None:
        """Adopt the limits in force, and read certificates and token keys. Raises ListenError."""
        self._limit()
        self._load_certificates()
        await self._load_token_keys()

    def _load_certificates(self) -> None:
        """Read the key stores of listeners with TLS, and of connections between brokers."""
        if not any(endpoint.uses_tls for endpoint in self._config.endpoints):
            return
        # Imported here because it loads ssl, which other brokers don't need.
        from ottla_broker.network.tls_listeners import TlsListeners
        from ottla_broker.network.tls_settings import TlsError

        between = self._config.inter_broker_endpoint
        try:
            self._tls = TlsListeners(self._config)
            self._stopping.append(self._tls.close)
            if self._config.zookeeper_connect and between.uses_tls:
                self._client_context = self._tls.client_context(between.name)
        except TlsError as error:
            raise ListenError(str(error)) from error

    def bind(self) -> None:
        """Bind the ports, without accepting clients. Raises ListenError."""
        config, sockets = self._config, self._sockets

        def close_sockets() -> None:
            for sock in sockets:
                sock.close()

        self._stopping.append(close_sockets)
        # extend() adds one at a time, so that close_sockets() closes them if the next one fails.
        sockets.extend(
            open_listener(
                endpoint.host,
                endpoint.port,
                config.socket_listen_backlog_size,
                config.socket_receive_buffer_bytes,
            )
            for endpoint in config.endpoints
        )

    async def _load_token_keys(self) -> None:
        """Read the keys for tokens of listeners with OAUTHBEARER."""
        config = self._config
        for endpoint in config.endpoints:
            offered = config.of_listener(endpoint.name, SaslKeys.sasl_enabled_mechanisms)
            if not endpoint.uses_sasl or OAUTHBEARER not in offered:
                continue
            # Imported here because it loads ssl.
            from ottla_broker.security.oauth_listeners import OAuthError, OAuthListeners

            if self._oauth is None:
                self._oauth = OAuthListeners(config, self._clock)
                self._stopping.append(self._oauth.close)
            try:
                await self._oauth.open(endpoint.name)
            except OAuthError as error:
                raise ListenError(str(error)) from error

    def tls_between_brokers(self) -> Callable[[], ssl.SSLContext] | None:
        """Returns what gives the TLS context for connections to other brokers, after :meth:`load`.

        None if they don't use TLS.
        """
        return self._context_between_brokers if self._config.inter_broker_endpoint.uses_tls else None

    def _context_between_brokers(self) -> ssl.SSLContext:
        assert self._client_context is not None
        return self._client_context()

    @property
    def logins(self) -> Mapping[str, Logins]:
        """The counters of authentications, by listener: by SASL, or else by TLS."""
        return {**({} if self._tls is None else self._tls.by_listener), **self._logins}

    def listen(
        self,
        dispatcher: Dispatcher,
        credentials: ScramCredentials,
        login_secret: bytes,
        tokens: DelegationTokens | None,
        inter_broker: str | None,
    ) -> None:
        """Make the acceptors. ``inter_broker``: the listener of other brokers, in a cluster."""
        config = self._config
        bound = request_memory_bound(config.queued_max_request_bytes, config.socket_request_max_bytes)
        memory = RequestMemory(bound, self._clock)
        # Clients on other listeners must not use up the memory for other brokers' requests.
        own = {} if inter_broker is None else {inter_broker: RequestMemory(bound, self._clock)}
        self.memories = [memory, *own.values()]
        if self._tls is not None:
            threads = self._tls.threads
        else:
            threads = ClientThreads()
            self._stopping.append(threads.close)

        def service(endpoint: Endpoint) -> Service:
            """The dispatcher, after authentication if the listener has SASL."""
            if not endpoint.uses_sasl:
                return dispatcher
            from ottla_broker.security.sasl_listeners import authenticating

            made = self._logins[endpoint.name] = authenticating(
                dispatcher,
                config,
                endpoint.name,
                credentials,
                self._clock,
                self._random,
                login_secret,
                threads,
                None if self._oauth is None else self._oauth.validators.get(endpoint.name),
                tokens,
            )
            return made

        loop = asyncio.get_running_loop()
        self.acceptors = [
            Acceptor(
                endpoint.name,
                sock,
                config.num_network_threads,
                loop,
                self._clock,
                service(endpoint),
                self.quotas,
                own.get(endpoint.name, memory),
                self._socket_settings(endpoint),
                None if self._tls is None else self._tls.by_listener.get(endpoint.name),
            )
            for endpoint, sock in zip(config.endpoints, self._sockets, strict=True)
        ]
        self.quotas.close_idlest = self._close_idlest
        self.endpoints = [
            endpoint.bound(acceptor.port)
            for endpoint, acceptor in zip(config.endpoints, self.acceptors, strict=True)
        ]

    def _socket_settings(self, endpoint: Endpoint) -> SocketSettings:
        config = self._config
        settings = SocketSettings(
            max_request_bytes=config.socket_request_max_bytes,
            max_idle_ms=config.connections_max_idle_ms,
            max_parked=config.queued_max_requests,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        if not endpoint.uses_sasl:
            return settings
        first = config.of_listener(endpoint.name, SaslKeys.sasl_server_max_receive_size)
        return replace(settings, max_first_bytes=first)

    def accept(self) -> None:
        for acceptor in self.acceptors:
            acceptor.start()

    def stop_accepting(self) -> None:
        for acceptor in self.acceptors:
            acceptor.stop_accepting()

    async def drain(self) -> None:
        """Finish pending responses, for a second."""
        await asyncio.gather(*(acceptor.drain(DRAIN_SECONDS) for acceptor in self.acceptors))

    def cut(self) -> None:
        """Shut every connection down, on any thread, so that clients look for brokers that answer."""
        for acceptor in self.acceptors:
            for processor in acceptor.processors:
                processor.cut()

    async def close(self) -> None:
        for acceptor in self.acceptors:
            await acceptor.close()

    def configs_changed(self) -> None:
        """Adopt the limits, certificates and passwords that were changed at runtime."""
        self._limit()
        if self._tls is not None:
            self._tls.reload()

    def _limit(self) -> None:
        config, limit = self._config, self._config.limit_of_listener
        self.quotas.update(config.max_connections, config.max_connections_per_ip, config.connection_limits)
        self.rates.total = config.max_connection_creation_rate
        for endpoint in config.endpoints:
            name = endpoint.name
            self.quotas.limit_listener(name, limit(name, NetworkKeys.max_connections))
            self.rates.by_listener[name] = limit(name, QuotaKeys.max_connection_creation_rate)

    def _close_idlest(self) -> bool:
        """Close the connection that was idle for the longest time, except those between brokers."""
        idlest = min(
            (
                connection
                for acceptor in self.acceptors
                if acceptor.name != self.quotas.protected
                for processor in acceptor.processors
                for connection in processor.connections
            ),
            key=lambda connection: connection.last_active,
            default=None,
        )
        if idlest is None:
            return False
        idlest.close("there are more connections than max.connections, and it was idle the longest")
        return True
