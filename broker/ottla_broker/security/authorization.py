"""Decides what a client may do; what each API needs is in its module's ``API``.

Without access control everything is allowed, except that ``CLUSTER_ACTION``, for requests between brokers, is allowed
only on the inter-broker listener. With ``authorizer.class.name``, :mod:`.acl_authorizer` decides by ACLs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla_broker.network.service import ClientConnection
from ottla_broker.requests.api import Rules
from ottla_protocol.acls import CLUSTER_NAME, SUPPORTED, AclOperation, AclResource
from ottla_protocol.errors import ErrorCode

DENIED: Final[Mapping[AclResource, ErrorCode]] = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error for an operation that isn't allowed."""


class Authorizer:
    """Decides every operation (Kafka's ``Authorizer``); this one allows all but requests between brokers.

    Attributes:
        open_operations: allowed for every client on every resource, so that requests skip the check.
    """

    open_operations: Collection[AclOperation] = frozenset(AclOperation) - {AclOperation.CLUSTER_ACTION}

    def __init__(self, inter_broker_listener: str | None) -> None:
        """``None``: this broker stands alone, and no other broker may send it requests."""
        self._inter_broker_listener = inter_broker_listener

    def is_brokers(self, client: ClientConnection) -> bool:
        """Whether a connection came by the listener of the other brokers."""
        return client.listener == self._inter_broker_listener

    def authorize(
        self,
        client: ClientConnection,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        explicit: bool = True,
    ) -> bool:
        """Whether a client may do ``operation`` to the resource called ``name``.

        ``explicit``: the client has asked for this resource, so the decision is worth a line in the audit log.
        """
        return operation in self.open_operations or client.listener == self._inter_broker_listener

    def authorize_by_type(
        self, client: ClientConnection, operation: AclOperation, resource: AclResource
    ) -> bool:
        """Whether a client may do ``operation`` to some resource of this type."""
        return True

    def operations(self, client: ClientConnection, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """The operations that a client may do to a resource, as a bit field (KIP-430)."""
        return _ALL_BITS[resource]

    def checked(self, rules: Rules) -> Rules:
        """The rules without the operations that need no check."""
        return {type_: None if needed in self.open_operations else needed for type_, needed in rules.items()}


_ALL_BITS: Final = {
    resource: sum(1 << operation for operation in operations) for resource, operations in SUPPORTED.items()
}
