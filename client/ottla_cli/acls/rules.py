"""Access control lists in words, and the answer to "who may do this?", for `ottla acls` and the console."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from ottla_client.errors import ClientError
from ottla_client.suggestions import did_you_mean
from ottla_protocol.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
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
    java_host,
    parse_title,
    title,
)

if TYPE_CHECKING:
    from ottla_client.admin import Admin, ConfigEntry

_TYPES: Final = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "cluster": AclResource.CLUSTER,
    "transactional-id": AclResource.TRANSACTIONAL_ID,
    "delegation-token": AclResource.DELEGATION_TOKEN,
    "user": AclResource.USER,
}
_SETTINGS: Final = ("super.users", "allow.everyone.if.no.acl.found")
"""The broker's settings that allow what no ACL does."""


def principal_in(text: str) -> str:
    principal = text if ":" in text else f"User:{text}"
    if not all(principal.partition(":")):
        raise click.BadParameter(
            f"{text!r} is no principal such as alice or User:alice", param_hint="PRINCIPAL"
        )
    return principal


def operation_in(text: str) -> AclOperation:
    found = parse_title(AclOperation, text)
    if found is None or found <= AclOperation.ANY:
        names = [each.name.lower().replace("_", "-") for each in AclOperation if each > AclOperation.ANY]
        raise click.BadParameter(
            f"unknown operation {text!r}{did_you_mean(text, names) or '; use one of ' + ', '.join(names)}",
            param_hint="OPERATION",
        )
    return found


def resource_in(text: str) -> ResourcePattern:
    kind, _, name = text.partition(":")
    resource = _TYPES.get(kind.lower())
    if resource is None:
        hint = did_you_mean(kind, _TYPES) or ("" if name else f"; write topic:{text} for a topic")
        raise click.BadParameter(f"unknown type of resource {kind!r}{hint}", param_hint="RESOURCE")
    if resource is AclResource.CLUSTER:
        name = name or CLUSTER_NAME
    if not name:
        raise click.BadParameter(f"{text!r} names nothing: write {kind}:NAME", param_hint="RESOURCE")
    if len(name) > 1 and name.endswith(WILDCARD):
        return ResourcePattern(resource, name[:-1], PatternType.PREFIXED)
    return ResourcePattern(resource, name)


def host_warning(host: str) -> str:
    """A warning about an ACL's host that no client has; empty for others."""
    matching = java_host(host)
    try:
        ip_address(host)
    except ValueError:
        matching = ""
    if host in (WILDCARD, matching):
        return ""
    instead = f"; write {matching}" if matching else ", without names and networks"
    return f"warning: no client matches host {host}: brokers compare it as text with the client's IP address{instead}"


def binding_of(principal: str, operation: str, resource: str, host: str, deny: bool) -> AclBinding:
    """The list that words describe. Raises click.BadParameter."""
    pattern, wanted = resource_in(resource), operation_in(operation)
    possible = SUPPORTED[pattern.resource]
    if wanted is not AclOperation.ALL and wanted not in possible:
        names = ", ".join(sorted(each.name.lower().replace("_", "-") for each in possible))
        raise click.BadParameter(
            f"{wanted.name.lower()} isn't an operation on this type of resource; these are: {names}",
            param_hint="OPERATION",
        )
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return AclBinding(pattern, AclEntry(principal_in(principal), host, wanted, permission))


def resource_text(pattern: ResourcePattern) -> str:
    """A pattern as ``resource_in`` reads it."""
    kind = next((name for name, each in _TYPES.items() if each is pattern.resource), title(pattern.resource))
    if pattern.resource is AclResource.CLUSTER:
        return kind
    return f"{kind}:{pattern.name}{WILDCARD if pattern.pattern is PatternType.PREFIXED else ''}"


def sentence(acl: AclBinding) -> str:
    """``User:alice may read topic:orders``, ``User:* is denied all operations on topic:secrets``"""
    entry = acl.entry
    allows = entry.permission is AclPermission.ALLOW
    if entry.operation is AclOperation.ALL:
        verb = f"is {'allowed' if allows else 'denied'} all operations on"
    else:
        verb = f"{'may' if allows else 'may not'} {operation_name(entry.operation)}"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    return f"{entry.principal} {verb} {resource_text(acl.pattern)}{host}"


def operation_name(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


class Answer(NamedTuple):
    """Whether an operation is allowed, why, and by which list."""

    allowed: bool
    why: str
    rule: AclBinding | None
    unknown: str = ""
    """The reason why settings that could allow it aren't known."""

    @property
    def reason(self) -> str:
        return (self.why if self.rule is None else sentence(self.rule)) + self.unknown


async def explain(admin: Admin, pattern: ResourcePattern, entry: AclEntry) -> Answer:
    """Decide as the broker does, by its lists and its settings. Raises ClientError, click.UsageError."""
    if pattern.pattern is PatternType.PREFIXED or entry.operation is AclOperation.ALL:
        raise click.UsageError("explain one operation on one resource, not all of them")
    found = await admin.describe_acls(AclFilter(pattern.resource, pattern.name, PatternType.MATCH))
    settings: Mapping[str, ConfigEntry] = {}
    unknown = ""
    try:
        settings = await _settings(admin)
    except ClientError as error:
        unknown = f"; the broker's settings, which may allow it (super.users), can't be read: {error}"
    if hidden := hidden_settings(settings):
        unknown = f"; the broker doesn't show {hidden}, which may allow it"
    rules = AclRules()
    for each, acl in found:
        rules.put(each, rules.entries(each) | {acl})
    shown = {name: config.value for name, config in settings.items() if config.value is not None}
    allowed, why, rule = _decide(rules, shown, pattern, entry)
    return Answer(allowed, why, rule, "" if allowed else unknown)


async def remove(admin: Admin, acl: AclBinding) -> list[AclBinding]:
    """Remove exactly this list. Raises ClientError; click.ClickException if there is no such list."""
    pattern, entry = acl
    removed = await admin.delete_acls(
        [
            AclFilter(
                pattern.resource,
                pattern.name,
                pattern.pattern,
                entry.principal,
                entry.host,
                entry.operation,
                entry.permission,
            )
        ]
    )
    if not removed:
        raise click.ClickException("there is no such ACL; `ottla acls list` shows all")
    return removed


def hidden_settings(settings: Mapping[str, ConfigEntry]) -> str:
    """The names of settings that allow what no ACL does, and that are set but not shown; Apache Kafka hides both."""
    return " and ".join(
        name
        for name in _SETTINGS
        if name in settings and settings[name].is_sensitive and settings[name].value is None
    )


async def _settings(admin: Admin) -> Mapping[str, ConfigEntry]:
    """The broker's settings that decide as well. Raises ClientError."""
    from ottla_client.admin import ConfigResource

    broker = ConfigResource.broker((await admin.describe_cluster()).nodes[0].id)
    return (await admin.describe_configs([broker], keys=_SETTINGS))[broker]


def _decide(
    rules: AclRules, settings: Mapping[str, str], pattern: ResourcePattern, entry: AclEntry
) -> tuple[bool, str, AclBinding | None]:
    """Whether it is allowed, why, and by which ACL."""
    supers = {each.strip() for each in settings.get("super.users", "").split(";")}
    if entry.principal in supers:
        return True, f"{entry.principal} is a super user (super.users)", None
    host = java_host(entry.host)
    decision = rules.decide(entry.principal, host, entry.operation, pattern.resource, pattern.name)
    verdict = decision.verdict
    if verdict is Verdict.NO_RULES and settings.get("allow.everyone.if.no.acl.found") == "true":
        return True, f"{verdict.value}, and allow.everyone.if.no.acl.found is true", None
    return verdict is Verdict.ALLOWED, verdict.value, decision.rule
