"""``ottla quotas``: list, set, remove."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from ottla_client.suggestions import did_you_mean

from .shared.admin import admin_of, plural
from .shared.client_options import pair
from .shared.terminal import Console, options

if TYPE_CHECKING:
    from ottla_client.admin import ClientQuota

Command = TypeVar("Command", bound=Callable[..., Any])

KEYS: Final = {
    "producer_byte_rate": "bytes per second",
    "consumer_byte_rate": "bytes per second",
    "request_percentage": "percent",
    "controller_mutation_rate": "partitions per second",
    "connection_creation_rate": "connections per second",
}
_UNITS: Final = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_AMOUNT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMG]?)(?:i?B)?(?:/s)?", re.IGNORECASE)
DEFAULT: Final = "<default>"


@click.group()
def quotas() -> None:
    """Limit what clients may use: list, set and remove quotas of users, client ids and addresses.

    KEY is producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, or for addresses
    connection_creation_rate. A name <default> stands for everyone without a quota of their own.

    \b
    ottla quotas set --user alice producer_byte_rate=1MiB consumer_byte_rate=2MiB
    ottla quotas set --client-id '<default>' request_percentage=50
    ottla quotas set --ip 10.0.0.7 connection_creation_rate=20
    ottla quotas list
    """


def _entity_options(command: Command) -> Command:
    for name, what in (("--ip", "an address"), ("--client-id", "a client id"), ("--user", "a user")):
        command = click.option(
            name, metavar="NAME", help=f"Take the quotas of {what}; <default> for all others."
        )(command)
    return command


def entity_of(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    """An entity as Admin takes it: names by type, None for the default of a type."""
    given = {"user": user, "client-id": client_id, "ip": ip}
    return {kind: None if name == DEFAULT else name for kind, name in given.items() if name is not None}


def needed_entity(user: str | None, client_id: str | None, ip: str | None) -> dict[str, str | None]:
    """An entity that a quota may have. Raises click.UsageError."""
    entity = entity_of(user, client_id, ip)
    if not entity:
        raise click.UsageError("name whose quota: --user, --client-id, both, or --ip")
    if "ip" in entity and len(entity) > 1:
        raise click.UsageError("an address has quotas of its own: leave out --user and --client-id")
    return entity


def _key(text: str) -> str:
    if text not in KEYS:
        hint = did_you_mean(text, KEYS) or f"; use one of {', '.join(KEYS)}"
        raise click.BadParameter(f"unknown quota {text!r}{hint}", param_hint="KEY")
    return text


def amount_of(key: str, text: str) -> float:
    """A quota's value as people write it. Raises click.BadParameter."""
    found = _AMOUNT.fullmatch(text)
    if found is None or (found[2] and not key.endswith("byte_rate")):
        example = "1048576 or 1MiB" if key.endswith("byte_rate") else "50"
        raise click.BadParameter(f"{key}={text}: write a number such as {example}", param_hint="KEY=VALUE")
    return float(found[1]) * _UNITS[found[2].upper()]


def entity_text(entity: Mapping[str, str | None]) -> str:
    """An entity in one line: ``user alice, client-id batch``."""
    return ", ".join(
        f"{kind} {DEFAULT if name is None else name}" for kind, name in sorted(entity.items(), reverse=True)
    )


def number(value: float) -> float:
    """A value without a needless fraction."""
    return int(value) if value == int(value) else value


@quotas.command("list", short_help="List quotas.")
@_entity_options
@options
async def list_quotas(console: Console, user: str | None, client_id: str | None, ip: str | None) -> None:
    """List quotas, all or those of a user, a client id or an address.

    \b
    ottla quotas list
    ottla quotas list --user alice --json
    """
    async with admin_of(console) as admin:
        entity = entity_of(user, client_id, ip)
        found: Collection[ClientQuota] = await admin.describe_client_quotas(entity)
    console.table(
        ["Of", "Quota", "Value", "Unit"],
        [
            (entity_text(quota.entity), key, number(value), KEYS.get(key, ""))
            for quota in found
            for key, value in sorted(quota.values.items())
        ],
        empty=f"no quotas of {entity_text(entity)}" if entity else "no quotas",
    )


@quotas.command("set", short_help="Set quotas of a user, a client id or an address.")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE…")
@_entity_options
@options
async def set_quotas(
    console: Console, settings: tuple[str, ...], user: str | None, client_id: str | None, ip: str | None
) -> None:
    """Set quotas; others of the same user, client id or address stay.

    Rates of bytes take units: 512KiB, 1MiB. With --user and --client-id the quota is for that user with that client id.

    \b
    ottla quotas set --user alice producer_byte_rate=1MiB
    ottla quotas set --user '<default>' --client-id batch request_percentage=20
    """
    values: dict[str, float | None] = {}
    for text in settings:
        key, value = pair(text, "KEY=VALUE")
        key = _key(key)
        values[key] = amount_of(key, value)
    entity = needed_entity(user, client_id, ip)
    async with admin_of(console) as admin:
        await admin.alter_client_quotas(entity, values)
    console.report(
        {"of": entity_text(entity), "set": values},
        f"{plural(len(values), 'quota')} of {entity_text(entity)} set",
        aside=True,
    )


@quotas.command(short_help="Remove quotas.")
@click.argument("keys", nargs=-1, metavar="[KEY…]")
@_entity_options
@options
async def remove(
    console: Console, keys: tuple[str, ...], user: str | None, client_id: str | None, ip: str | None
) -> None:
    """Remove quotas of a user, a client id or an address: those in KEY, or all.

    \b
    ottla quotas remove --user alice producer_byte_rate
    ottla quotas remove --ip 10.0.0.7
    """
    wanted = [_key(key) for key in keys]
    entity = needed_entity(user, client_id, ip)
    async with admin_of(console) as admin:
        found = await admin.describe_client_quotas(entity, strict=True)
        existing = found[0].values if found else {}
        missing = [key for key in wanted if key not in existing]
        if missing or not existing:
            raise click.ClickException(
                f"{entity_text(entity)} has no quota {missing[0] if missing else ''}".rstrip()
                + "; `ottla quotas list` shows all"
            )
        gone = wanted or sorted(existing)
        await admin.alter_client_quotas(entity, dict.fromkeys(gone))
    console.report(
        {"of": entity_text(entity), "removed": gone},
        f"{plural(len(gone), 'quota')} of {entity_text(entity)} removed",
        aside=True,
    )
