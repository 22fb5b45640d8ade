"""Access: who may do what, which list decides, and changing the lists."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ottla_cli.acls import rules as acl_rules
from ottla_client.errors import BrokerError
from ottla_protocol.acls import SUPPORTED, AclFilter, AclOperation

from ..rendering import View
from ..sessions import Change, Session
from ..site import page_of

OPERATIONS = tuple(
    acl_rules.operation_name(each)
    for each in AclOperation
    if any(each in some for some in SUPPORTED.values())
)
_LONGEST = 300


async def access(request: web.Request, session: Session) -> View:
    """The lists, and the answer to a question about them."""
    admin = session.admin
    query = request.query
    who, what, where = (query.get(name, "").strip()[:_LONGEST] for name in ("who", "operation", "resource"))
    host = query.get("host", "").strip()[:_LONGEST]
    answer = None
    wanted = AclFilter(principal=acl_rules.principal_in(who)) if who and not where else AclFilter()
    off = ""
    # What can't be asked is refused, whether or not there are lists.
    asked = acl_rules.binding_of(who, what, where, host, deny=False) if who and what and where else None
    try:
        if asked is not None:
            answer = await acl_rules.explain(admin, *asked)
        found = sorted(await admin.describe_acls(wanted), key=lambda acl: (acl.entry.principal, acl))
    except BrokerError as error:
        if error.code.name != "SECURITY_DISABLED":
            raise
        found, off = [], "This cluster has no access control: everyone may do everything."
    part = page_of(query, found, 100)
    return View(
        "access.html",
        {
            "part": part,
            "rows": [_row(acl) for acl in part.rows],
            "off": off,
            "answer": answer,
            "who": who,
            "operation": what,
            "resource": where,
            "host": host,
            "operations": OPERATIONS,
        },
    )


def _row(acl: Any) -> dict[str, Any]:
    pattern, entry = acl
    return {
        "principal": entry.principal,
        "permission": entry.permission.name.lower(),
        "operation": acl_rules.operation_name(entry.operation),
        "resource": acl_rules.resource_text(pattern),
        "host": entry.host,
    }


async def add(request: web.Request, session: Session) -> Change:
    return await _change(request, session, adding=True)


async def remove(request: web.Request, session: Session) -> Change:
    return await _change(request, session, adding=False)


async def _change(request: web.Request, session: Session, *, adding: bool) -> Change:
    form = await request.post()
    who, what, where, host = (
        str(form.get(name, "")).strip()[:_LONGEST] for name in ("who", "operation", "resource", "host")
    )
    acl = acl_rules.binding_of(
        who, what, where, host or "*", deny=str(form.get("permission", "allow")) == "deny"
    )
    sentence = acl_rules.sentence(acl)
    admin = session.admin

    async def run() -> None:
        if adding:
            await admin.create_acls([acl])
        else:
            await acl_rules.remove(admin, acl)

    return Change(
        f"{'Add' if adding else 'Remove'} this access control list",
        [sentence],
        run,
        "/access",
        {"action": "add-acl" if adding else "remove-acl", "acl": sentence},
    )
