"""The rows of :mod:`tests.support.acl_rows` under rules of all kinds, for Ottla (tests/server) and Kafka.

Without a login, everyone is User:ANONYMOUS, and the address says who asks: 127.0.0.1 may do all to the cluster, and so
makes the rules; 127.0.0.2 is the client under test. On a second listener the users of :data:`USERS` log in, whose rules
are in force together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tests.support.acl_rows import TOPIC, C, D, G, Row, T, X
from tests.support.waiting import wait_for
from tests.support.wire import Wire, plain_login

from ottla_protocol.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
    parse_title,
)
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
)

ADMIN, CLIENT = "127.0.0.1", "127.0.0.2"
ANONYMOUS = "User:ANONYMOUS"
FORBIDDEN = {T, G, C, X, D}

SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN",
    "super.users": "User:super",
    "delegation.token.secret.key": "secret",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
}


Variant = tuple[str, bool, Sequence[tuple[AclPermission, str, str, PatternType | None, str | None]]]

_ALLOW, _DENY = AclPermission.ALLOW, AclPermission.DENY

VARIANTS: Sequence[Variant] = (
    # Name, whether it is allowed, and rules: permission, principal, host, and a pattern and operation in place of the
    # row's own: PREFIXED cuts the name, LITERAL makes it a wildcard.
    ("exact", True, [(_ALLOW, ANONYMOUS, CLIENT, None, None)]),
    ("everyone", True, [(_ALLOW, "User:*", "*", None, None)]),
    ("prefix", True, [(_ALLOW, ANONYMOUS, "*", PatternType.PREFIXED, None)]),
    ("wildcard", True, [(_ALLOW, ANONYMOUS, "*", PatternType.LITERAL, None)]),
    ("all operations", True, [(_ALLOW, ANONYMOUS, CLIENT, None, "All")]),
    ("another user", False, [(_ALLOW, "User:other", "*", None, None)]),
    ("another type of principal", False, [(_ALLOW, "Group:ANONYMOUS", "*", None, None)]),
    ("another host", False, [(_ALLOW, ANONYMOUS, "127.0.0.9", None, None)]),
    ("denied", False, [(_ALLOW, ANONYMOUS, CLIENT, None, None), (_DENY, "User:*", CLIENT, None, None)]),
    (
        "denied by a prefix",
        False,
        [(_ALLOW, ANONYMOUS, CLIENT, None, None), (_DENY, ANONYMOUS, CLIENT, PatternType.PREFIXED, "All")],
    ),
    (
        "denied to another",
        True,
        [(_ALLOW, ANONYMOUS, CLIENT, None, None), (_DENY, "User:x", "*", None, None)],
    ),
)

_PREFIX, _ANY_NAME = PatternType.PREFIXED, PatternType.LITERAL


def _user(name: str, allowed: bool, *rules: tuple[AclPermission, str, PatternType | None]) -> Variant:
    """``rules``: permission, host and pattern."""
    return name, allowed, [(permission, f"User:{name}", host, kind, None) for permission, host, kind in rules]


USERS: Sequence[Variant] = (
    _user("literal", True, (_ALLOW, "*", None)),
    _user("prefixed", True, (_ALLOW, "*", _PREFIX)),
    _user("wildcard", True, (_ALLOW, "*", _ANY_NAME)),
    _user("nobody", False),
    _user("literal2", False),  # its name begins with another's
    _user("denied", False, (_ALLOW, "*", None), (_DENY, "*", None)),
    _user("denied-by-prefix", False, (_ALLOW, "*", None), (_DENY, "*", _PREFIX)),
    _user("denied-by-wildcard", False, (_ALLOW, "*", None), (_DENY, "127.0.0.1", _ANY_NAME)),
    _user("literal-denied", False, (_ALLOW, "*", _PREFIX), (_DENY, "*", None)),
    _user("denied-elsewhere", True, (_ALLOW, "*", None), (_DENY, "127.0.0.9", None)),
    _user("allowed-elsewhere", False, (_ALLOW, "127.0.0.9", None)),
    _user("super", True, (_DENY, "*", None)),
)


def user_settings(plain: str, port: int) -> dict[str, str]:
    """The settings of a broker whose users log in at ``port``; ``plain`` is its other listener."""
    users = " ".join(f'user_{name}="secret"' for name, _, _ in USERS)
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    return {
        "listeners": f"PLAINTEXT://{plain},SASL_PLAINTEXT://127.0.0.1:{port}",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
    }


@contextmanager
def logged_in(port: int) -> Iterator[dict[str, Wire]]:
    """A connection of each user."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(plain_login(port, name, "secret")) for name, _, _ in USERS}


def check_users(row: Row, admin: Wire, users: Mapping[str, Wire]) -> None:
    """The answers to one row's request, while each user's rules are in force."""
    rules = [rule for user in USERS for rule in bindings(row, user)]
    create(admin, rules)
    try:
        found = {name: forbidden(users[name].call(row.request, row.version)) for name, _, _ in USERS}
    finally:
        delete(admin, rules)
    expected = {
        name: set() if allowed or name in row.allowed else {row.refused} for name, allowed, _ in USERS
    }
    assert found == expected, {name: codes for name, codes in found.items() if codes != expected[name]}


def binding(rule: str, principal: str = ANONYMOUS, host: str = CLIENT) -> AclBinding:
    """``Read Topic:orders`` as a rule that allows it."""
    operation, _, resource = rule.partition(" ")
    kind, _, name = resource.partition(":")
    parsed, of_type = parse_title(AclOperation, operation), parse_title(AclResource, kind)
    assert parsed is not None
    assert of_type is not None
    return AclBinding(ResourcePattern(of_type, name), AclEntry(principal, host, parsed, _ALLOW))


def bindings(row: Row, variant: Variant) -> list[AclBinding]:
    """The rules of a row in a variant."""
    found = []
    for rule in row.rules:
        for permission, principal, host, kind, operation in variant[2]:
            pattern, entry = binding(rule)
            if pattern.resource is AclResource.CLUSTER:
                kind = None  # has only this name
            if kind is PatternType.PREFIXED:
                pattern = pattern._replace(name=pattern.name[:2], pattern=kind)
            elif kind is PatternType.LITERAL:
                pattern = pattern._replace(name="*")
            entry = entry._replace(principal=principal, host=host, permission=permission)
            if operation is not None:
                entry = entry._replace(operation=AclOperation.ALL)
            found.append(AclBinding(pattern, entry))
    return found


def create(wire: Wire, rules: Sequence[AclBinding]) -> None:
    """Add rules."""
    answer = wire.call(
        CreateAclsRequest(
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
                for pattern, entry in rules
            ]
        ),
        3,
    )
    assert [(result.error_code, result.error_message) for result in answer.results] == [(0, "")] * len(rules)


def delete(wire: Wire, rules: Sequence[AclBinding]) -> None:
    """Remove rules."""
    answer = wire.call(
        DeleteAclsRequest(
            filters=[
                DeleteAclsFilter(
                    resource_type_filter=pattern.resource,
                    resource_name_filter=pattern.name,
                    pattern_type_filter=pattern.pattern,
                    principal_filter=entry.principal,
                    host_filter=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for pattern, entry in rules
            ]
        ),
        3,
    )
    assert [result.error_code for result in answer.filter_results] == [0] * len(rules)


def prepare(wire: Wire) -> None:
    """Let 127.0.0.1 administer the cluster; the cluster must be open to it so far."""
    create(wire, [binding(f"All Cluster:{CLUSTER_NAME}", host=ADMIN)])


def prepare_topic(wire: Wire) -> None:
    """Create the topic, and have coordinators of the group and of the transactional id."""
    create(wire, [binding("Describe Group:billing", host=ADMIN)])
    create(wire, [binding("Describe TransactionalId:pay", host=ADMIN)])
    for kind, key in ((0, "billing"), (1, "pay")):
        found = FindCoordinatorRequest(key=key, key_type=kind)
        wait_for(lambda found=found: wire.call(found, 3).error_code == 0, "a coordinator")  # type: ignore[misc]
    group = OffsetFetchRequest(group_id="billing", topics=[])
    wait_for(lambda: wire.call(group, 7).error_code == 0, "the group's coordinator to have loaded")
    answer = wire.call(
        CreateTopicsRequest(topics=[CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)]), 4
    )
    assert [result.error_code for result in answer.topics] == [0]


def forbidden(message: Any) -> set[ErrorCode]:
    """The refusals in a response, those of its items included."""
    return {ErrorCode(code) for code in _codes(message)} & FORBIDDEN


def _codes(message: Any) -> Iterator[int]:
    for name in (slot for kind in type(message).__mro__ for slot in getattr(kind, "__slots__", ())):
        value = getattr(message, name, None)
        if name in {"error_code", "partition_error_code"}:
            yield int(value or 0)
        elif isinstance(value, list):
            for each in value:
                if not isinstance(each, int | str | bytes):
                    yield from _codes(each)
