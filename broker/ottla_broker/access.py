"""Loads the rules for clients: credentials, tokens, access control lists and quotas."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from ottla_broker.clock import Clock
from ottla_broker.config.security_keys import SaslKeys
from ottla_broker.controller.client_quotas import LocalConfigs, QuotaAdmin
from ottla_broker.metadata.client_quotas import ClientQuotas, Windows
from ottla_broker.metadata.scram_credentials import ScramCredentials
from ottla_broker.security.authorization import Authorizer
from ottla_broker.store.api import Store
from ottla_broker.tasks import Step
from ottla_protocol.sasl.mechanism import DIGESTS

if TYPE_CHECKING:
    from ottla_broker.cluster.member import ClusterMember
    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.acls import Acls
    from ottla_broker.controller.client_quotas import Configs
    from ottla_broker.controller.delegation_tokens import DelegationTokens


class Access:
    """Read from the store with the start, and kept as the store has it. Owned by the loop thread.

    Attributes:
        acls: None without an authorizer; ``tokens``: None without a secret for delegation tokens.
        login_secret: for the salts of unknown users; empty without logins by SCRAM.
    """

    credentials: ScramCredentials
    quota_admin: QuotaAdmin

    def __init__(
        self, config: BrokerConfig, clock: Clock, random: Random, store: Store, member: ClusterMember | None
    ) -> None:
        self._config = config
        self._clock = clock
        self._random = random
        self._store = store
        self._member = member
        self.acls: Acls | None = None
        self.tokens: DelegationTokens | None = None
        self.quotas = ClientQuotas(
            Windows(config.quota_window_num, config.quota_window_size_seconds * 1000),
            Windows(config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000),
        )
        self.login_secret = b""

    async def load(self, on_ip: Callable[[str, float | None], None], stopping: list[Step]) -> None:
        """Read everything; ``on_ip`` is called with the limits of addresses. Raises StoreError, BadNodeError."""
        await self._load_acls()
        await self._load_quotas(on_ip)
        if self._member is None:
            self.credentials = ScramCredentials(self._store, notifies=False)
            await self.credentials.load()
        else:
            self.credentials = self._member.configs.credentials
            if self.acls is not None:
                self.acls.start()
                stopping.append(self.acls.close)
        await self._load_tokens(stopping)
        await self._load_login_secret()

    async def _load_acls(self) -> None:
        """Read the access control lists, if they are to decide. Raises StoreError."""
        if self._config.authorizer_class_name:
            from ottla_broker.controller.acls import Acls

            self.acls = Acls(self._store, self._clock)
            await self.acls.load()

    async def _load_tokens(self, stopping: list[Step]) -> None:
        """Read the delegation tokens, if there may be any. Raises StoreError."""
        config, member = self._config, self._member
        secret = config.delegation_token_secret_key or config.delegation_token_master_key
        if not secret:
            return
        from ottla_broker.controller.delegation_tokens import DelegationTokens, Lifetimes

        lifetimes = Lifetimes(
            config.delegation_token_max_lifetime_ms,
            config.delegation_token_expiry_time_ms,
            config.delegation_token_expiry_check_interval_ms,
        )
        self.tokens = DelegationTokens(
            self._store,
            secret,
            lifetimes,
            self._clock,
            self._random,
            notifies=member is not None,
            removes=(lambda: True) if member is None else member.is_controller,
            most=config.max_delegation_tokens,
            most_of_owner=config.max_delegation_tokens_per_owner,
        )
        await self.tokens.load()
        self.tokens.start()
        stopping.append(self.tokens.close)

    async def _load_login_secret(self) -> None:
        """Find the secret for the salts of unknown users, if there are logins by SCRAM. Raises StoreError."""
        config = self._config
        offered = {
            mechanism
            for endpoint in config.endpoints
            if endpoint.uses_sasl
            for mechanism in config.of_listener(endpoint.name, SaslKeys.sasl_enabled_mechanisms)
        }
        if offered.isdisjoint(DIGESTS):
            return
        from ottla_broker.config.sasl import broker_login
        from ottla_broker.metadata.login_secret import login_secret

        shared = config.delegation_token_secret_key or config.delegation_token_master_key
        in_cluster = self._member is not None
        if in_cluster and not shared and (login := broker_login(config)) is not None:
            shared = login.options.get("password")
        self.login_secret = await login_secret(
            self._store, self._random, shared=shared, in_cluster=in_cluster
        )

    async def _load_quotas(self, on_ip: Callable[[str, float | None], None]) -> None:
        """Read the quotas of clients. Raises StoreError."""
        member = self._member
        configs: Configs = LocalConfigs(self._store) if member is None else member.configs
        self.quota_admin = QuotaAdmin(self._store, configs, self.quotas)
        self.quota_admin.on_ip = on_ip
        if member is not None:
            member.configs.on_others = self.quota_admin.changed
        await self.quota_admin.load()

    def authorizer(self) -> Authorizer:
        """Make what decides whether a client may do something."""
        config = self._config
        # A standalone broker accepts no requests from other brokers.
        listener = None if self._member is None else self._member.listener
        if self.acls is None:
            return Authorizer(listener)
        from ottla_broker.security.acl_authorizer import AclAuthorizer
        from ottla_broker.security.audit import AuditLog

        return AclAuthorizer(
            listener,
            self.acls,
            config.super_principals,
            allow_without_rules=config.allow_everyone_if_no_acl_found,
            audit=AuditLog(self._clock, config.ottla_audit_log),
        )
