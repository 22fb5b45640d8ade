"""The nodes of access control lists, as Kafka's ``ZkData`` has them.

Rules with literal patterns are in ``/kafka-acl/<Type>/<name>``, those with prefixes in
``/kafka-acl-extended/prefixed/<Type>/<name>``. Every change is followed by a notification, for the other brokers.
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.store.api import is_path
from ottla_broker.store.keys import BadNodeError, encode_object, read_object
from ottla_protocol.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
    parse_title,
    title,
)

_VERSION: Final = 1

CONCRETE: Final = tuple(each for each in AclResource if each > AclResource.ANY)
"""The types that resources have."""


class AclNode:
    """``/kafka-acl/<Type>/<name>``, ``/kafka-acl-extended/prefixed/<Type>/<name>``. JSON version 1."""

    PARENTS: Final = {
        PatternType.LITERAL: "/kafka-acl",
        PatternType.PREFIXED: "/kafka-acl-extended/prefixed",
    }

    @staticmethod
    def parent(kind: PatternType, resource: AclResource) -> str:
        return f"{AclNode.PARENTS[kind]}/{title(resource)}"

    @staticmethod
    def path(pattern: ResourcePattern) -> str:
        return f"{AclNode.parent(pattern.pattern, pattern.resource)}/{pattern.name}"

    @staticmethod
    def can_have(pattern: ResourcePattern) -> bool:
        """Whether a node can have the pattern's name."""
        return "/" not in pattern.name and is_path(AclNode.path(pattern))

    @staticmethod
    def encode(entries: frozenset[AclEntry]) -> bytes:
        acls = [
            {
                "principal": entry.principal,
                "permissionType": title(entry.permission),
                "operation": title(entry.operation),
                "host": entry.host,
            }
            for entry in sorted(entries)
        ]
        return encode_object({"version": _VERSION, "acls": acls})

    @staticmethod
    def decode(path: str, data: bytes) -> frozenset[AclEntry]:
        """An operation or permission that isn't known becomes UNKNOWN. Raises BadNodeError."""
        if not data:
            return frozenset()

        def read(found: dict[str, Any]) -> frozenset[AclEntry]:
            if found["version"] != _VERSION:
                raise ValueError
            return frozenset(map(_entry, found["acls"]))

        return read_object(path, data, "is not a list of ACLs", read)


def _entry(found: dict[str, Any]) -> AclEntry:
    principal, host = found["principal"], found["host"]
    if not isinstance(host, str) or ":" not in principal:
        raise ValueError
    return AclEntry(
        principal,
        host,
        parse_title(AclOperation, found["operation"]) or AclOperation.UNKNOWN,
        parse_title(AclPermission, found["permissionType"]) or AclPermission.UNKNOWN,
    )


class AclChangeNode:
    """``/kafka-acl-changes/acl_changes_N``, ``/kafka-acl-extended-changes/acl_changes_N``: a pattern has changed.

    The first has the text ``TOPIC:name``, the second JSON.
    """

    PARENTS: Final = {
        PatternType.LITERAL: "/kafka-acl-changes",
        PatternType.PREFIXED: "/kafka-acl-extended-changes",
    }
    NAME: Final = "acl_changes_"

    @staticmethod
    def prefix(kind: PatternType) -> str:
        return f"{AclChangeNode.PARENTS[kind]}/{AclChangeNode.NAME}"

    @staticmethod
    def encode(pattern: ResourcePattern) -> bytes:
        if pattern.pattern is PatternType.LITERAL:
            return f"{pattern.resource.name}:{pattern.name}".encode()
        return encode_object(
            {
                "version": _VERSION,
                "resourceType": pattern.resource.name,
                "name": pattern.name,
                "patternType": pattern.pattern.name,
            }
        )

    @staticmethod
    def decode(path: str, data: bytes) -> ResourcePattern:
        """Raises BadNodeError."""
        if path.startswith(AclChangeNode.PARENTS[PatternType.LITERAL] + "/"):
            kind, colon, name = data.decode("utf-8", "replace").partition(":")
            resource = parse_title(AclResource, kind)
            if not colon or resource not in CONCRETE:
                raise BadNodeError(f"{path}: is not a notification of changed ACLs")
            return ResourcePattern(resource, name)

        def read(found: dict[str, Any]) -> ResourcePattern:
            resource = parse_title(AclResource, found["resourceType"])
            pattern = parse_title(PatternType, found["patternType"])
            if resource not in CONCRETE or pattern not in AclChangeNode.PARENTS:
                raise ValueError
            return ResourcePattern(resource, str(found["name"]), pattern)

        return read_object(path, data, "is not a notification of changed ACLs", read)


PATHS: Final = (
    *(AclNode.parent(kind, resource) for kind in AclNode.PARENTS for resource in CONCRETE),
    *AclChangeNode.PARENTS.values(),
)
"""The paths that Kafka creates when its authorizer starts (``KafkaZkClient.createAclPaths``)."""
