"""Many filters find what each of them finds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.controller.acl_filters import ManyFilters
from ottla_protocol.acls import (
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)

_RESOURCES = AclResource.TOPIC, AclResource.GROUP
_NAMES = "*", "a", "ab"
_KINDS = PatternType.LITERAL, PatternType.PREFIXED
_USERS = "User:a", "User:b"
_OPERATIONS = AclOperation.READ, AclOperation.ALL
_PERMISSIONS = AclPermission.ALLOW, AclPermission.DENY

patterns = st.builds(
    ResourcePattern, st.sampled_from(_RESOURCES), st.sampled_from(_NAMES), st.sampled_from(_KINDS)
)
entries = st.builds(
    AclEntry,
    st.sampled_from(_USERS),
    st.sampled_from(("*", "10.0.0.1")),
    st.sampled_from(_OPERATIONS),
    st.sampled_from(_PERMISSIONS),
)
filters = st.builds(
    AclFilter,
    st.sampled_from((AclResource.ANY, *_RESOURCES)),
    st.sampled_from((None, "abc", *_NAMES)),
    st.sampled_from((PatternType.ANY, PatternType.MATCH, *_KINDS)),
    st.sampled_from((None, *_USERS)),
    st.sampled_from((None, "*", "10.0.0.1")),
    st.sampled_from((AclOperation.ANY, *_OPERATIONS)),
    st.sampled_from((AclPermission.ANY, *_PERMISSIONS)),
)


@given(st.lists(filters, max_size=8), patterns, entries)
def test_a_rule_is_the_first_filters(
    wanted: list[AclFilter], pattern: ResourcePattern, entry: AclEntry
) -> None:
    found = ManyFilters(wanted).finding(pattern)
    assert (found is not None) == any(each.finds_pattern(pattern) for each in wanted)
    naive = [
        number
        for number, each in enumerate(wanted)
        if each.finds_pattern(pattern) and each.finds_entry(entry)
    ]
    assert (None if found is None else found.filter_of(entry)) == min(naive, default=None)
