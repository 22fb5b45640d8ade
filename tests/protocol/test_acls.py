"""Decisions by access control lists, against Kafka's rules written down plainly."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    AclRules,
    PatternType,
    ResourcePattern,
    Verdict,
    parse_title,
    title,
)

PRINCIPALS = ["User:a", "User:b", "User:*"]
HOSTS = ["1.1.1.1", "2.2.2.2", "*"]
NAMES = ["a", "ab", "abc", "b", "*"]
OPERATIONS = [
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
]

patterns = st.builds(
    ResourcePattern,
    st.sampled_from([AclResource.TOPIC, AclResource.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)
entries = st.builds(
    AclEntry,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(HOSTS),
    st.sampled_from(OPERATIONS),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
bindings = st.lists(st.builds(AclBinding, patterns, entries), max_size=12)


def compiled(rules: Sequence[AclBinding]) -> AclRules:
    made = AclRules()
    for pattern, entry in rules:
        made.put(pattern, made.entries(pattern) | {entry})
    return made


def applies(pattern: ResourcePattern, resource: AclResource, name: str) -> bool:
    if pattern.resource is not resource:
        return False
    if pattern.pattern is PatternType.LITERAL:
        return pattern.name in ("*", name)
    return name.startswith(pattern.name)


def verdict(
    rules: Sequence[AclBinding],
    who: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
) -> Verdict:
    found = [entry for pattern, entry in rules if applies(pattern, resource, name)]
    if not found:
        return Verdict.NO_RULES

    def has(permission: AclPermission, operations: set[AclOperation]) -> bool:
        return any(
            entry.permission is permission
            and entry.principal in (who, "User:*")
            and entry.host in (host, "*")
            and entry.operation in {*operations, AclOperation.ALL}
            for entry in found
        )

    if has(AclPermission.DENY, {operation}):
        return Verdict.DENIED
    enough = {operation}
    if operation is AclOperation.DESCRIBE:
        enough |= {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
    if operation is AclOperation.DESCRIBE_CONFIGS:
        enough.add(AclOperation.ALTER_CONFIGS)
    return Verdict.ALLOWED if has(AclPermission.ALLOW, enough) else Verdict.NOT_ALLOWED


@given(
    bindings,
    st.sampled_from(["User:a", "User:b", "User:c", "User:*"]),
    st.sampled_from(["1.1.1.1", "3.3.3.3"]),
    st.sampled_from(OPERATIONS[1:]),
    st.sampled_from([AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER]),
    st.sampled_from([*NAMES, "abcd", "c"]),
)
def test_a_decision_is_kafkas(
    rules: list[AclBinding],
    who: str,
    host: str,
    operation: AclOperation,
    resource: AclResource,
    name: str,
) -> None:
    decision = compiled(rules).decide(who, host, operation, resource, name)
    assert decision.verdict is verdict(rules, who, host, operation, resource, name)
    if decision.rule is not None:
        assert decision.rule in rules
        assert applies(decision.rule.pattern, resource, name)
        expected = AclPermission.DENY if decision.verdict is Verdict.DENIED else AclPermission.ALLOW
        assert decision.rule.entry.permission is expected


@given(bindings, st.sampled_from(["User:a", "User:c"]), st.booleans())
def test_any_resource_of_a_type_is_kafkas(rules: list[AclBinding], who: str, without_rules: bool) -> None:
    """``AclAuthorizer.authorizeByResourceType``, step by step."""
    host, operation = "1.1.1.1", AclOperation.WRITE

    def names(kind: PatternType, permission: AclPermission) -> set[str]:
        return {
            pattern.name
            for pattern, entry in rules
            if pattern.resource is AclResource.TOPIC
            and pattern.pattern is kind
            and entry.permission is permission
            and entry.principal in (who, "User:*")
            and entry.host in (host, "*")
            and entry.operation in (operation, AclOperation.ALL)
        }

    denied = names(PatternType.LITERAL, AclPermission.DENY)
    hidden = names(PatternType.PREFIXED, AclPermission.DENY)
    expected = without_rules
    if "*" in denied:
        expected = False
    elif not without_rules:
        expected = any(
            not name.startswith(tuple(hidden)) for name in names(PatternType.PREFIXED, AclPermission.ALLOW)
        ) or any(
            name == "*" or (name not in denied and not name.startswith(tuple(hidden)))
            for name in names(PatternType.LITERAL, AclPermission.ALLOW)
        )
    found = compiled(rules).allows_any(who, host, operation, AclResource.TOPIC, without_rules=without_rules)
    assert found is expected


@given(bindings, bindings)
def test_rules_that_are_removed_leave_nothing(kept: list[AclBinding], removed: list[AclBinding]) -> None:
    rules, gone = compiled([*kept, *removed]), set(removed) - set(kept)
    for pattern, entry in gone:
        rules.put(pattern, rules.entries(pattern) - {entry})
    fresh = compiled(kept)
    assert dict(rules) == dict(fresh)
    assert vars(rules) | {"_literal": 0, "_prefixed": 0, "_lengths": 0} == vars(fresh) | {
        "_literal": 0,
        "_prefixed": 0,
        "_lengths": 0,
    }
    assert rules.count == sum(len(entries) for _, entries in fresh)


@given(bindings, st.sampled_from([*NAMES, None]), st.sampled_from(list(PatternType)[1:]))
def test_a_filter_finds_what_kafkas_finds(
    rules: list[AclBinding], name: str | None, kind: PatternType
) -> None:
    wanted = AclFilter(AclResource.TOPIC, name, kind, "User:a", None, AclOperation.ANY, AclPermission.ALLOW)

    def matches(pattern: ResourcePattern) -> bool:
        if pattern.resource is not AclResource.TOPIC:
            return False
        if kind not in (PatternType.ANY, PatternType.MATCH, pattern.pattern):
            return False
        if name is None or name == pattern.name:
            return True
        return kind is PatternType.MATCH and applies(pattern, AclResource.TOPIC, name)

    expected = {
        (pattern, entry)
        for pattern, entry in rules
        if matches(pattern) and entry.principal == "User:a" and entry.permission is AclPermission.ALLOW
    }
    assert set(compiled(rules).find(wanted)) == expected
    for pattern in wanted.patterns:
        assert wanted.finds_pattern(pattern)


@pytest.mark.parametrize(
    ("operation", "text"), [(AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs"), (AclOperation.ALL, "All")]
)
def test_names_are_kafkas(operation: AclOperation, text: str) -> None:
    assert title(operation) == text
    for spelling in (text, text.upper(), operation.name, operation.name.lower().replace("_", "-")):
        assert parse_title(AclOperation, spelling) is operation
    assert parse_title(AclOperation, "Rea") is None
