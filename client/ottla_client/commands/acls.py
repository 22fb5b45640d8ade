"""``ottla acls``: list, add, remove, explain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

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
    parse_title,
    title,
)

from ..errors import ClientError
from ..suggestions import did_you_mean
from .admin_common import admin_of, plural
from .console import Console, options

if TYPE_CHECKING:
    from ..admin import Admin

_TYPES: Final = {
    "topic": AclResource.TOPIC,
    "group": AclResource.GROUP,
    "cluster": AclResource.CLUSTER,
    "transactional-id": AclResource.TRANSACTIONAL_ID,
    "delegation-token": AclResource.DELEGATION_TOKEN,
    "user": AclResource.USER,
}
_SETTINGS: Final = ("authorizer.class.name", "super.users", "allow.everyone.if.no.acl.found")

_HOST = click.option(
    "--host", default=WILDCARD, metavar="ADDRESS", help="Only from this address; by default from any."
)
_DENY = click.option("--deny", is_flag=True, help="Deny instead of allow. Denying beats allowing.")


@click.group()
def acls() -> None:
    """Say who may do what: list, add and remove access control lists, and see which one decides.

    PRINCIPAL is a user, as alice or User:alice; * is everyone. OPERATION is read, write, create, delete, alter,
    describe, alter-configs, describe-configs, cluster-action, idempotent-write or all. RESOURCE is topic:NAME,
    group:NAME, transactional-id:NAME or cluster; topic:orders-* means all topics that begin with orders-, topic:* all
    topics.

    \b
    ottla acls add alice read topic:orders
    ottla acls list
    ottla acls explain alice write topic:orders
    """


def _principal(text: str) -> str:
    principal = text if ":" in text else f"User:{text}"
    if not all(principal.partition(":")):
        raise click.BadParameter(
            f"{text!r} is no principal such as alice or User:alice", param_hint="PRINCIPAL"
        )
    return principal


def _operation(text: str) -> AclOperation:
    found = parse_title(AclOperation, text)
    if found is None or found <= AclOperation.ANY:
        names = [each.name.lower().replace("_", "-") for each in AclOperation if each > AclOperation.ANY]
        raise click.BadParameter(
            f"unknown operation {text!r}{did_you_mean(text, names)}", param_hint="OPERATION"
        )
    return found


def _resource(text: str) -> ResourcePattern:
    kind, _, name = text.partition(":")
    resource = _TYPES.get(kind.lower())
    if resource is None:
        raise click.BadParameter(
            f"unknown type of resource {kind!r}{did_you_mean(kind, _TYPES)}", param_hint="RESOURCE"
        )
    if resource is AclResource.CLUSTER:
        name = name or CLUSTER_NAME
    if not name:
        raise click.BadParameter(f"{text!r} names nothing: write {kind}:NAME", param_hint="RESOURCE")
    if len(name) > 1 and name.endswith(WILDCARD):
        return ResourcePattern(resource, name[:-1], PatternType.PREFIXED)
    return ResourcePattern(resource, name)


def _binding(principal: str, operation: str, resource: str, host: str, deny: bool) -> AclBinding:
    pattern, wanted = _resource(resource), _operation(operation)
    possible = SUPPORTED[pattern.resource]
    if wanted is not AclOperation.ALL and wanted not in possible:
        names = ", ".join(sorted(each.name.lower().replace("_", "-") for each in possible))
        raise click.BadParameter(
            f"{wanted.name.lower()} isn't an operation on this type of resource; these are: {names}",
            param_hint="OPERATION",
        )
    permission = AclPermission.DENY if deny else AclPermission.ALLOW
    return AclBinding(pattern, AclEntry(_principal(principal), host, wanted, permission))


def _shown(pattern: ResourcePattern) -> str:
    kind = next((name for name, each in _TYPES.items() if each is pattern.resource), title(pattern.resource))
    if pattern.resource is AclResource.CLUSTER:
        return kind
    return f"{kind}:{pattern.name}{WILDCARD if pattern.pattern is PatternType.PREFIXED else ''}"


def _sentence(acl: AclBinding) -> str:
    entry = acl.entry
    verb = "may" if entry.permission is AclPermission.ALLOW else "may not"
    host = "" if entry.host == WILDCARD else f" from {entry.host}"
    return f"{entry.principal} {verb} {_name(entry.operation)} {_shown(acl.pattern)}{host}"


def _name(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")


@acls.command("list", short_help="List access control lists.")
@click.option("--principal", metavar="PRINCIPAL", help="List only this principal's.")
@click.option(
    "--resource",
    metavar="RESOURCE",
    help="List only those that apply to this resource, with prefixes and wildcards.",
)
@options
async def list_acls(console: Console, principal: str | None, resource: str | None) -> None:
    """List access control lists, all or those of a principal or a resource.

    \b
    ottla acls list
    ottla acls list --resource topic:orders-eu --json
    """
    wanted = AclFilter(principal=None if principal is None else _principal(principal))
    if resource is not None:
        pattern = _resource(resource)
        kind = PatternType.MATCH if pattern.pattern is PatternType.LITERAL else pattern.pattern
        wanted = wanted._replace(resource=pattern.resource, name=pattern.name, pattern=kind)
    async with admin_of(console) as admin:
        found = await admin.describe_acls(wanted)
    console.table(
        ["Principal", "Permission", "Operation", "Resource", "Host"],
        [
            (
                entry.principal,
                entry.permission.name.lower(),
                _name(entry.operation),
                _shown(pattern),
                entry.host,
            )
            for pattern, entry in sorted(found, key=lambda acl: (acl.entry.principal, acl))
        ],
        empty="no ACLs",
    )


@acls.command(short_help="Allow or deny an operation.")
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@_HOST
@_DENY
@options
async def add(console: Console, principal: str, operation: str, resource: str, host: str, deny: bool) -> None:
    """Allow PRINCIPAL an OPERATION on RESOURCE, or deny it.

    A producer needs write on its topic, and write on its transactional id if it has one. A consumer needs read on its
    topic and on its group.

    \b
    ottla acls add alice write topic:orders
    ottla acls add alice read 'topic:orders-*'
    ottla acls add '*' all topic:secrets --deny
    """
    acl = _binding(principal, operation, resource, host, deny)
    async with admin_of(console) as admin:
        await admin.create_acls([acl])
    if console.as_json:
        console.emit({"added": _sentence(acl)})
    else:
        console.print(_sentence(acl))


@acls.command(short_help="Remove access control lists.")
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@_HOST
@_DENY
@options
async def remove(
    console: Console, principal: str, operation: str, resource: str, host: str, deny: bool
) -> None:
    """Remove exactly the ACL that `ottla acls add` with the same arguments adds.

    \b
    ottla acls remove alice write topic:orders
    """
    pattern, entry = _binding(principal, operation, resource, host, deny)
    async with admin_of(console) as admin:
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
    if console.as_json:
        console.emit({"removed": [_sentence(acl) for acl in removed]})
    else:
        console.note(f"{plural(len(removed), 'ACL')} removed")


@acls.command(short_help="Say whether an operation is allowed, and which ACL decides.")
@click.argument("principal")
@click.argument("operation")
@click.argument("resource")
@click.option(
    "--host", default="", metavar="ADDRESS", help="The client's address. Without it, ACLs for any host count."
)
@options
async def explain(console: Console, principal: str, operation: str, resource: str, host: str) -> None:
    """Say whether PRINCIPAL may do OPERATION to RESOURCE, and which ACL decides.

    It reads the ACLs and the broker's settings for super users, and decides as the broker does.

    \b
    ottla acls explain alice read topic:orders
    ottla acls explain alice write topic:orders --host 10.0.0.7 --json
    """
    pattern, entry = _binding(principal, operation, resource, host, False)
    if pattern.pattern is PatternType.PREFIXED or entry.operation is AclOperation.ALL:
        raise click.UsageError("explain one operation on one resource, not all of them")
    async with admin_of(console) as admin:
        found = await admin.describe_acls(AclFilter(pattern.resource, pattern.name, PatternType.MATCH))
        settings = await _settings(admin)
    rules = AclRules()
    for each, acl in found:
        rules.put(each, rules.entries(each) | {acl})
    allowed, why, rule = _decide(rules, settings, pattern, entry)
    if console.as_json:
        console.emit({"allowed": allowed, "reason": why, "acl": None if rule is None else _sentence(rule)})
        return
    console.print(f"{'allowed' if allowed else 'denied'}: {why if rule is None else _sentence(rule)}")


async def _settings(admin: Admin) -> Mapping[str, str]:
    """The broker's settings that decide as well; none if they can't be read."""
    from ..admin import ConfigResource

    try:
        broker = ConfigResource.broker((await admin.describe_cluster()).nodes[0].id)
        found = (await admin.describe_configs([broker], keys=_SETTINGS))[broker]
    except ClientError:
        return {}
    return {name: config.value for name, config in found.items() if config.value is not None}


def _decide(
    rules: AclRules, settings: Mapping[str, str], pattern: ResourcePattern, entry: AclEntry
) -> tuple[bool, str, AclBinding | None]:
    """Whether it is allowed, why, and by which ACL."""
    supers = {each.strip() for each in settings.get("super.users", "").split(";")}
    if entry.principal in supers:
        return True, f"{entry.principal} is a super user (super.users)", None
    decision = rules.decide(entry.principal, entry.host, entry.operation, pattern.resource, pattern.name)
    verdict = decision.verdict
    if verdict is Verdict.NO_RULES and settings.get("allow.everyone.if.no.acl.found") == "true":
        return True, f"{verdict.value}, and allow.everyone.if.no.acl.found is true", None
    return verdict is Verdict.ALLOWED, verdict.value, decision.rule
