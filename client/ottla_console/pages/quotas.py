"""Quotas of users, client ids and addresses: listed, set and removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from aiohttp import web

from ottla_cli.quotas import DEFAULT, KEYS, amount_of, entity_text, needed_entity, number

from ..rendering import View, link
from ..sessions import Change, Session
from ..site import page_of

if TYPE_CHECKING:
    from ottla_client.admin import ClientQuota

_LONGEST = 300
_BY_ADDRESS = "connection_creation_rate"
TYPES = (("user", "user"), ("client-id", "client id"), ("ip", "address"))
"""Types of entities: in the protocol, and for people."""


async def quotas(request: web.Request, session: Session) -> View:
    """A page of quotas, those of a type or with a name only if the address asks for them."""
    query = request.query
    text = query.get("q", "").strip()[:_LONGEST]
    kind = query.get("type", "")
    if kind and kind not in dict(TYPES):
        raise click.BadParameter(f"type is {kind[:40]!r}; it is one of {', '.join(dict(TYPES))}")
    found = await session.admin.describe_client_quotas(types=[kind] if kind else ())
    rows = [row for quota in found if _matches(quota, text) for row in _rows(quota)]
    part = page_of(query, rows, 100)
    return View(
        "quotas.html",
        {
            "part": part,
            "rows": part.rows,
            "q": text,
            "type": kind,
            "types": TYPES,
            "keys": KEYS,
            "default": DEFAULT,
        },
    )


def _matches(quota: ClientQuota, text: str) -> bool:
    return any(text.lower() in (DEFAULT if name is None else name).lower() for name in quota.entity.values())


def _rows(quota: ClientQuota) -> list[dict[str, Any]]:
    """A line for each value of an entity, with what a form needs to name it."""
    fields = {
        name.replace("-", "_"): DEFAULT if each is None else each for name, each in quota.entity.items()
    }
    return [
        {
            "of": entity_text(quota.entity),
            "key": key,
            "value": number(value),
            "unit": KEYS.get(key, ""),
            "fields": fields,
        }
        for key, value in sorted(quota.values.items())
    ]


async def set_quota(request: web.Request, session: Session) -> Change:
    return await _change(request, session, removing=False)


async def remove_quota(request: web.Request, session: Session) -> Change:
    return await _change(request, session, removing=True)


async def _change(request: web.Request, session: Session, *, removing: bool) -> Change:
    form = await request.post()
    names = [str(form.get(name, "")).strip()[:_LONGEST] or None for name in ("user", "client_id", "ip")]
    try:
        entity = needed_entity(*names)
    except click.UsageError:
        raise click.BadParameter(
            "name a user, a client id or both, or an address without the others"
        ) from None
    key = str(form.get("key", ""))
    if key not in KEYS:
        raise click.BadParameter(f"there is no quota {key[:40]!r}; there are {', '.join(KEYS)}")
    if ("ip" in entity) is not (key == _BY_ADDRESS):
        raise click.BadParameter(f"addresses have {_BY_ADDRESS}, and only they")
    value = None if removing else amount_of(key, str(form.get("value", "")).strip()[:_LONGEST])
    admin = session.admin
    listed = await admin.describe_client_quotas(types=list(entity))
    before = next((quota.values.get(key) for quota in listed if quota.entity == entity), None)
    if removing and before is None:
        raise click.ClickException(f"{entity_text(entity)} has no quota {key}: it may have been removed")

    async def run() -> None:
        await admin.alter_client_quotas(entity, {key: value})

    old, new = ("none" if each is None else f"{number(each):,} {KEYS[key]}" for each in (before, value))
    whose = entity_text(entity)
    return Change(
        f"{'Remove' if removing else 'Set'} {key} of {whose}",
        [f"{key} of {whose}: {old} → {new}"],
        run,
        link("/quotas"),
        {
            "action": "remove-quota" if removing else "set-quota",
            "of": whose,
            "quota": key,
            "before": before,
            "value": value,
        },
        "Clients that it applies to are slowed down at once, or no longer.",
    )
