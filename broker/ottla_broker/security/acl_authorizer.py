"""Decides by access control lists (``authorizer.class.name=kafka.security.authorizer.AclAuthorizer``)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ottla_broker.security.authorization import Authorizer
from ottla_protocol.acls import CLUSTER_NAME, SUPPORTED, AclOperation, AclResource, Verdict, java_host

if TYPE_CHECKING:
    from ottla_broker.controller.acls import Acls
    from ottla_broker.network.service import ClientConnection, Principal
    from ottla_broker.security.audit import AuditLog

_CACHED: Final = 16_384
"""How many decisions are kept. A change of any rule drops them all."""
_LONGEST_NAME: Final = 256
"""Decisions on longer names aren't kept: a stranger's names of 32 KiB would take 500 MiB."""
_CLUSTER_ACTION: Final = AclOperation.CLUSTER_ACTION

_Key = tuple["Principal", str, AclOperation, AclResource, str]


class AclAuthorizer(Authorizer):
    """Kafka's ``AclAuthorizer``. Owned by the loop thread.

    Super users may do everything. Other brokers' requests need the inter-broker listener besides a rule.
    """

    open_operations: Collection[AclOperation] = frozenset()

    def __init__(
        self,
        inter_broker_listener: str | None,
        acls: Acls,
        super_users: Collection[str],
        *,
        allow_without_rules: bool,
        audit: AuditLog,
    ) -> None:
        """``super_users`` are principals such as ``User:admin``.

        ``allow_without_rules``: everyone may use a resource that no rule is about (``allow.everyone.if.no.acl.found``).
        """
        super().__init__(inter_broker_listener)
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allow_without_rules = allow_without_rules
        self._audit = audit
        self._decisions: dict[_Key, bool] = {}
        self._by_type: dict[_Key, bool] = {}
        acls.on_change.append(self._forget)

    def _forget(self) -> None:
        self._decisions.clear()
        self._by_type.clear()

    def authorize(
        self,
        client: ClientConnection,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        explicit: bool = True,
    ) -> bool:
        key = (client.principal, client.client_host, operation, resource, name)
        allowed = self._decisions.get(key)
        if allowed is None:
            allowed = self._decide(*key)
            if len(name) <= _LONGEST_NAME:
                if len(self._decisions) >= _CACHED:
                    self._decisions.clear()
                self._decisions[key] = allowed
        elif allowed and operation is not _CLUSTER_ACTION and not self._audit.allowed:
            return True
        if operation is _CLUSTER_ACTION and client.listener != self._inter_broker_listener:
            allowed = False
        if explicit and (not allowed or self._audit.allowed):
            self._audit.record(client, operation, resource, name, allowed=allowed)
        return allowed

    def _decide(
        self, principal: Principal, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        who = str(principal)
        if who in self._super_users:
            return True
        verdict = self._acls.rules.decide(who, java_host(host), operation, resource, name).verdict
        if verdict is Verdict.NO_RULES:
            return self._allow_without_rules
        return verdict is Verdict.ALLOWED

    def authorize_by_type(
        self, client: ClientConnection, operation: AclOperation, resource: AclResource
    ) -> bool:
        key = (client.principal, client.client_host, operation, resource, "")
        allowed = self._by_type.get(key)
        if allowed is None:
            if len(self._by_type) >= _CACHED:
                self._by_type.clear()
            who = str(client.principal)
            allowed = self._by_type[key] = who in self._super_users or self._acls.rules.allows_any(
                who,
                java_host(client.client_host),
                operation,
                resource,
                without_rules=self._allow_without_rules,
            )
        if not allowed or self._audit.allowed:
            self._audit.record(client, operation, resource, "any", allowed=allowed)
        return allowed

    def operations(self, client: ClientConnection, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        bits = 0
        for operation in SUPPORTED[resource]:
            key = (client.principal, client.client_host, operation, resource, name)
            allowed = self._decisions.get(key)
            if self._decide(*key) if allowed is None else allowed:
                bits |= 1 << operation
        return bits
