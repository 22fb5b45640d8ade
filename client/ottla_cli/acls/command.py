"""``ottla acls``: list, add, remove, explain."""

from __future__ import annotations

import click

from ottla_protocol.acls import (
    WILDCARD,
    AclFilter,
    PatternType,
)

from ..shared.admin import admin_of, plural
from ..shared.terminal import Console, options
from . import rules as acl_rules

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
    wanted = AclFilter(principal=None if principal is None else acl_rules.principal_in(principal))
    if resource is not None:
        pattern = acl_rules.resource_in(resource)
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
                acl_rules.operation_name(entry.operation),
                acl_rules.resource_text(pattern),
                entry.host,
            )
            for pattern, entry in sorted(found, key=lambda acl: (acl.entry.principal, acl))
        ],
        empty="no ACLs" if principal is None and resource is None else "no such ACLs",
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
    acl = acl_rules.binding_of(principal, operation, resource, host, deny)
    async with admin_of(console) as admin:
        await admin.create_acls([acl])
    if warning := acl_rules.host_warning(host):
        console.note(warning)
    console.report({"added": acl_rules.sentence(acl)}, acl_rules.sentence(acl))


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
    acl = acl_rules.binding_of(principal, operation, resource, host, deny)
    async with admin_of(console) as admin:
        removed = await acl_rules.remove(admin, acl)
    console.report(
        {"removed": [acl_rules.sentence(acl) for acl in removed]},
        f"{plural(len(removed), 'ACL')} removed",
        aside=True,
    )


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
    pattern, entry = acl_rules.binding_of(principal, operation, resource, host, False)
    async with admin_of(console) as admin:
        answer = await acl_rules.explain(admin, pattern, entry)
    rule = None if answer.rule is None else acl_rules.sentence(answer.rule)
    console.report(
        {"allowed": answer.allowed, "reason": answer.why + answer.unknown, "acl": rule},
        f"{'allowed' if answer.allowed else 'denied'}: {answer.reason}",
    )
