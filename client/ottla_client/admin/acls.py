"""Admin's calls for access control lists (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeVar

from ottla_protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from ottla_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsMatchingAcl, DeleteAclsRequest
from ottla_protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
)

from ..deadline import Deadline
from ..errors import ClientError
from ..requests.driver import Node, Outcomes
from ..requests.outcomes import outcome_of
from .arguments import listed
from .base import AdminBase

K = TypeVar("K")

_ALL: Final = AclFilter()


class AclCalls(AdminBase):
    async def describe_acls(
        self, acl_filter: AclFilter = _ALL, *, timeout: float | None = None
    ) -> list[AclBinding]:
        """The ACLs that a filter finds, by default all, sorted.

        Raises BrokerError: SECURITY_DISABLED if the brokers have no access control.
        """
        request = DescribeAclsRequest(
            resource_type_filter=acl_filter.resource,
            resource_name_filter=acl_filter.name,
            pattern_type_filter=acl_filter.pattern,
            principal_filter=acl_filter.principal,
            host_filter=acl_filter.host,
            operation=acl_filter.operation,
            permission_type=acl_filter.permission,
        )
        answer = await self._ask_once("ACLs", request, timeout)
        return sorted(_binding(resource, acl) for resource in answer.resources for acl in resource.acls)

    async def create_acls(self, acls: Iterable[AclBinding], *, timeout: float | None = None) -> None:
        """Add ACLs; those that exist already stay.

        Raises BrokerError: SECURITY_DISABLED, INVALID_REQUEST, …; PartialError for several ACLs.
        """

        async def ask(node: Node, some: list[AclBinding], deadline: Deadline) -> Outcomes[AclBinding, None]:
            request = CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=pattern.resource,
                        resource_name=pattern.name,
                        resource_pattern_type=pattern.pattern,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for pattern, entry in some
                ]
            )
            answer = await self._call(node, request, deadline)
            return {
                acl: outcome_of(result.error_code, None, str(acl), result.error_message)
                for acl, result in zip(some, answer.results, strict=True)
            }

        wanted = listed(acls, AclBinding)
        await self._ask_each("create ACLs", wanted, self._any_broker(), ask, timeout)

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, timeout: float | None = None
    ) -> list[AclBinding]:
        """Remove the ACLs that the filters find, and return them, sorted.

        Raises BrokerError: SECURITY_DISABLED, …; PartialError for several filters.
        """

        async def ask(
            node: Node, some: list[AclFilter], deadline: Deadline
        ) -> Outcomes[AclFilter, list[AclBinding]]:
            request = DeleteAclsRequest(
                filters=[
                    DeleteAclsFilter(
                        resource_type_filter=each.resource,
                        resource_name_filter=each.name,
                        pattern_type_filter=each.pattern,
                        principal_filter=each.principal,
                        host_filter=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in some
                ]
            )
            answer = await self._call(node, request, deadline)
            outcomes: dict[AclFilter, list[AclBinding] | ClientError] = {}
            for each, result in zip(some, answer.filter_results, strict=True):
                failed = next((acl for acl in result.matching_acls if acl.error_code), result)
                outcomes[each] = outcome_of(
                    failed.error_code,
                    [_binding(acl, acl) for acl in result.matching_acls],
                    "ACLs",
                    failed.error_message,
                )
            return outcomes

        wanted = listed(filters, AclFilter)
        found = await self._ask_each("delete ACLs", wanted, self._any_broker(), ask, timeout)
        return sorted({acl for some in found.values() for acl in some})


def _binding(
    pattern: DescribeAclsResource | DeleteAclsMatchingAcl, entry: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    """An ACL in a response; a code that is newer than this client becomes UNKNOWN."""
    return AclBinding(
        ResourcePattern(
            _code(AclResource, pattern.resource_type),
            pattern.resource_name,
            _code(PatternType, pattern.pattern_type),
        ),
        AclEntry(
            entry.principal,
            entry.host,
            _code(AclOperation, entry.operation),
            _code(AclPermission, entry.permission_type),
        ),
    )


E = TypeVar("E", AclResource, PatternType, AclOperation, AclPermission)


def _code(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        return kind(0)
