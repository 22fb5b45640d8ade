"""Access control lists: what a rule says, which rules a filter finds, and which rule decides an operation.

A rule allows or denies a principal an operation on resources, from an address (KIP-11). Its pattern names one resource,
all of a type (``*``), or those with a prefix (KIP-290). What no rule allows is denied, and a rule that denies beats
all that allow. Kafka's ``AclAuthorizer``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from enum import Enum, IntEnum
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final, NamedTuple, TypeVar


class AclResource(IntEnum):
    """Types of resources, with the codes of Kafka's ``ResourceType``; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way in which a pattern names resources, with Kafka's codes; ANY and MATCH are for filters.

    MATCH finds every pattern that applies to a resource of the given name.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Operations on resources, with Kafka's codes; ANY is for filters, ALL stands for every operation in a rule."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    """The effect of a rule, with the codes of Kafka's ``AclPermissionType``; ANY is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
WILDCARD: Final = "*"
"""In a rule: any host, or the name of a literal pattern for all resources of its type."""
WILDCARD_PRINCIPAL: Final = "User:*"

SUPPORTED: Final[Mapping[AclResource, Set[AclOperation]]] = {
    AclResource.TOPIC: frozenset(
        {
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.CREATE,
            AclOperation.DELETE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
        }
    ),
    AclResource.GROUP: frozenset({AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE}),
    AclResource.CLUSTER: frozenset(
        {
            AclOperation.CREATE,
            AclOperation.CLUSTER_ACTION,
            AclOperation.DESCRIBE_CONFIGS,
            AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
        }
    ),
    AclResource.TRANSACTIONAL_ID: frozenset({AclOperation.DESCRIBE, AclOperation.WRITE}),
    AclResource.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
    AclResource.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}
"""The operations that each type of resource has (``AclEntry.supportedOperations``)."""

IMPLIED_BY: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.DELETE,
        AclOperation.ALTER,
    ),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""By operation: those whose permission includes it. Denying one of them doesn't deny it."""


class ResourcePattern(NamedTuple):
    resource: AclResource
    name: str
    pattern: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        return f"{title(self.resource)}:{self.pattern.name}:{self.name}"


class AclEntry(NamedTuple):
    """A rule: who may, or may not, do what from where. ``principal``: ``User:alice``; ``host``: an address or ``*``."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission


class AclBinding(NamedTuple):
    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        verb = "may" if self.entry.permission is AclPermission.ALLOW else "may not"
        host = "any host" if self.entry.host == WILDCARD else self.entry.host
        return f"{self.entry.principal} {verb} {title(self.entry.operation)} {self.pattern} from {host}"


class AclFilter(NamedTuple):
    """Rules to find: null names and ANY match every one (``AclBindingFilter``)."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    def finds_pattern(self, pattern: ResourcePattern) -> bool:
        if self.resource not in (AclResource.ANY, pattern.resource):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, pattern.pattern):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if self.pattern is not PatternType.MATCH:
            return False
        if pattern.pattern is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def finds_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (AclOperation.ANY, entry.operation)
            and self.permission in (AclPermission.ANY, entry.permission)
        )

    @property
    def patterns(self) -> tuple[ResourcePattern, ...]:
        """The patterns that the filter can find if it names its resource; none if it may find any number."""
        if self.resource is AclResource.ANY or self.name is None or self.pattern is PatternType.MATCH:
            return ()
        kinds = (
            (PatternType.LITERAL, PatternType.PREFIXED)
            if self.pattern is PatternType.ANY
            else (self.pattern,)
        )
        return tuple(ResourcePattern(self.resource, self.name, kind) for kind in kinds)


E = TypeVar("E", bound=IntEnum)


def title(value: IntEnum) -> str:
    """A code's name as Kafka stores and prints it: ``TransactionalId``."""
    return "".join(part.capitalize() for part in value.name.split("_"))


def parse_title(kind: type[E], text: str) -> E | None:
    """The code of a name: ``TransactionalId``, ``TRANSACTIONALID`` or ``transactional_id``; None for no such name."""
    wanted = text.replace("_", "").replace("-", "").upper()
    for value in kind:
        if value.name.replace("_", "") == wanted:
            return value
    return None


class Verdict(Enum):
    """The reason why an operation is allowed or denied."""

    ALLOWED = "an ACL allows it"
    DENIED = "an ACL denies it"
    NOT_ALLOWED = "there are ACLs for the resource, and none allows it"
    NO_RULES = "there are no ACLs for the resource"


class Decision(NamedTuple):
    """The verdict on an operation, and the rule that decides it, if one does."""

    verdict: Verdict
    rule: AclBinding | None = None


_NONE: Final[frozenset[AclEntry]] = frozenset()


class AclRules:
    """All rules, compiled so that a decision costs a few look-ups however many there are.

    A resource's rules are those of its literal pattern, of ``*``, and of each prefix of its name. Prefixes are looked
    up by the lengths that occur. An entry is looked up in a pattern's set, once for each way to match it.
    """

    def __init__(self) -> None:
        self._patterns: dict[ResourcePattern, frozenset[AclEntry]] = {}
        self._literal: dict[AclResource, dict[str, frozenset[AclEntry]]] = {}
        self._prefixed: dict[AclResource, dict[str, frozenset[AclEntry]]] = {}
        # How many prefixes there are of each length.
        self._lengths: dict[AclResource, dict[int, int]] = {}
        # The names of the patterns that have an entry (AclAuthorizer's resourceCache).
        self._names: dict[tuple[AclResource, PatternType, AclEntry], set[str]] = {}
        self.count = 0

    def __iter__(self) -> Iterator[tuple[ResourcePattern, frozenset[AclEntry]]]:
        return iter(self._patterns.items())

    def __len__(self) -> int:
        """The number of patterns."""
        return len(self._patterns)

    def entries(self, pattern: ResourcePattern) -> frozenset[AclEntry]:
        return self._patterns.get(pattern, _NONE)

    def put(self, pattern: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        """Replace a pattern's entries; with none the pattern is gone."""
        resource, name, kind = pattern
        before = self._patterns.get(pattern, _NONE)
        self.count += len(entries) - len(before)
        for entry in before - entries:
            key = (resource, kind, entry)
            names = self._names[key]
            names.discard(name)
            if not names:
                del self._names[key]
        for entry in entries - before:
            self._names.setdefault((resource, kind, entry), set()).add(name)
        by_type = self._literal if kind is PatternType.LITERAL else self._prefixed
        by_name = by_type.setdefault(resource, {})
        if kind is PatternType.PREFIXED:
            self._count_length(resource, len(name), bool(entries) - bool(before))
        if entries:
            self._patterns[pattern] = by_name[name] = entries
        else:
            self._patterns.pop(pattern, None)
            by_name.pop(name, None)

    def _count_length(self, resource: AclResource, length: int, change: int) -> None:
        lengths = self._lengths.setdefault(resource, {})
        count = lengths.get(length, 0) + change
        if count:
            lengths[length] = count
        else:
            lengths.pop(length, None)

    def find(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """The rules that a filter finds."""
        for pattern, entries in self._patterns.items():
            if wanted.finds_pattern(pattern):
                for entry in entries:
                    if wanted.finds_entry(entry):
                        yield AclBinding(pattern, entry)

    def decide(
        self, principal: str, host: str, operation: AclOperation, resource: AclResource, name: str
    ) -> Decision:
        """The verdict on an operation on the resource called ``name``."""
        found = self._matching(resource, name)
        if not found:
            return Decision(Verdict.NO_RULES)
        principals = (principal,) if principal == WILDCARD_PRINCIPAL else (principal, WILDCARD_PRINCIPAL)
        hosts = (host, WILDCARD)
        ways = [(who, where) for who in principals for where in hosts]
        rule = _first(found, ways, (operation, AclOperation.ALL), AclPermission.DENY)
        if rule is not None:
            return Decision(Verdict.DENIED, rule)
        operations = (operation, AclOperation.ALL, *IMPLIED_BY.get(operation, ()))
        rule = _first(found, ways, operations, AclPermission.ALLOW)
        return Decision(Verdict.NOT_ALLOWED) if rule is None else Decision(Verdict.ALLOWED, rule)

    def _matching(
        self, resource: AclResource, name: str
    ) -> list[tuple[ResourcePattern, frozenset[AclEntry]]]:
        found: list[tuple[ResourcePattern, frozenset[AclEntry]]] = []
        literal = self._literal.get(resource)
        if literal:
            entries = literal.get(name)
            if entries is not None:
                found.append((ResourcePattern(resource, name), entries))
            if name != WILDCARD:
                entries = literal.get(WILDCARD)
                if entries is not None:
                    found.append((ResourcePattern(resource, WILDCARD), entries))
        prefixed = self._prefixed.get(resource)
        if prefixed:
            size = len(name)
            for length in self._lengths[resource]:
                if length <= size:
                    entries = prefixed.get(name[:length])
                    if entries is not None:
                        pattern = ResourcePattern(resource, name[:length], PatternType.PREFIXED)
                        found.append((pattern, entries))
        return found

    def allows_any(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource: AclResource,
        *,
        without_rules: bool = False,
    ) -> bool:
        """Whether the principal may do ``operation`` to at least one resource of a type (KIP-679).

        ``without_rules``: what has no rules is allowed. Implied operations don't count, as in Kafka.
        """

        def names(kind: PatternType, permission: AclPermission) -> list[set[str]]:
            entries = (
                AclEntry(who, where, what, permission)
                for who in dict.fromkeys((principal, WILDCARD_PRINCIPAL))
                for where in dict.fromkeys((host, WILDCARD))
                for what in (operation, AclOperation.ALL)
            )
            found = (self._names.get((resource, kind, entry)) for entry in entries)
            return [each for each in found if each]

        denied = names(PatternType.LITERAL, AclPermission.DENY)
        if any(WILDCARD in each for each in denied):
            return False
        if without_rules:
            return True
        denied_prefixes = names(PatternType.PREFIXED, AclPermission.DENY)

        def is_hidden(name: str) -> bool:
            return any(name[:end] in each for end in range(len(name) + 1) for each in denied_prefixes)

        for prefix in (name for each in names(PatternType.PREFIXED, AclPermission.ALLOW) for name in each):
            if not denied_prefixes or not is_hidden(prefix):
                return True
        for name in (name for each in names(PatternType.LITERAL, AclPermission.ALLOW) for name in each):
            if name == WILDCARD or not (any(name in each for each in denied) or is_hidden(name)):
                return True
        return False


def _first(
    found: list[tuple[ResourcePattern, frozenset[AclEntry]]],
    ways: list[tuple[str, str]],
    operations: tuple[AclOperation, ...],
    permission: AclPermission,
) -> AclBinding | None:
    """The first rule that matches one of the ways to name the client and one of the operations."""
    for pattern, entries in found:
        for who, where in ways:
            for operation in operations:
                if (who, where, operation, permission) in entries:
                    return AclBinding(pattern, AclEntry(who, where, operation, permission))
    return None


@lru_cache(1024)
def java_host(host: str) -> str:
    """An address as Java writes it, and rules have it: IPv6 in full, without leading zeros."""
    if ":" not in host:
        return host
    try:
        packed = IPv6Address(host.partition("%")[0]).packed
    except ValueError:
        return host
    return ":".join(f"{int.from_bytes(packed[i : i + 2]):x}" for i in range(0, 16, 2))
