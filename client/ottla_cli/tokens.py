"""``ottla tokens``: create, renew, expire, list."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeVar

import click

from ottla_client.admin import DelegationToken

from .shared.admin import admin_of, none_of
from .shared.terminal import Console, options
from .shared.timefmt import show_time

F = TypeVar("F", bound=Callable[..., Any])

_HMAC = click.argument("hmac")


def _period(help: str) -> Callable[[F], F]:
    return click.option("--period-ms", type=click.IntRange(min=0), default=None, metavar="MS", help=help)


@click.group()
def tokens() -> None:
    """Make delegation tokens, which log in as their owner by SCRAM: create, renew, expire and list them.

    Brokers need delegation.token.secret.key. Log in yourself to make a token, and not by a token. A client logs in with
    a token's id as user, its HMAC as password, a SCRAM mechanism, and sasl_tokenauth=true.

    \b
    ottla tokens create --renewer scheduler
    ottla tokens list
    """


@tokens.command(short_help="Make a token.")
@click.option("--owner", metavar="USER", help="Make it for this user; by default for yourself.")
@click.option("--renewer", "renewers", multiple=True, metavar="USER", help="Let this user renew it, too.")
@click.option(
    "--max-lifetime-ms",
    type=click.IntRange(min=1),
    default=None,
    metavar="MS",
    help="End it for good after this time; by default after the brokers' limit.",
)
@options
async def create(
    console: Console, owner: str | None, renewers: tuple[str, ...], max_lifetime_ms: int | None
) -> None:
    """Make a token, and print its id and HMAC. Anyone who has both can log in as its owner.

    \b
    ottla tokens create
    ottla tokens create --owner alice --renewer scheduler --max-lifetime-ms 3600000
    """
    async with admin_of(console) as admin:
        token = await admin.create_delegation_token(
            owner=owner, renewers=renewers, max_lifetime_ms=-1 if max_lifetime_ms is None else max_lifetime_ms
        )
    _show(console, [token])


@tokens.command(short_help="Give a token more time.")
@_HMAC
@_period("Let it last this long from now; by default the brokers' delegation.token.expiry.time.ms.")
@options
async def renew(console: Console, hmac: str, period_ms: int | None) -> None:
    """Give the token with this HMAC more time, but no more than its longest lifetime.

    \b
    ottla tokens renew "$HMAC"
    """
    secret = _secret(hmac)
    async with admin_of(console) as admin:
        end = await admin.renew_delegation_token(secret, period_ms=-1 if period_ms is None else period_ms)
    _show_end(console, end)


@tokens.command(short_help="End a token.")
@_HMAC
@_period("End it after this time from now; by default at once.")
@options
async def expire(console: Console, hmac: str, period_ms: int | None) -> None:
    """End the token with this HMAC, at once or later. Open connections stay until its end as it was.

    \b
    ottla tokens expire "$HMAC"
    """
    secret = _secret(hmac)
    async with admin_of(console) as admin:
        end = await admin.expire_delegation_token(secret, period_ms=-1 if period_ms is None else period_ms)
    _show_end(console, end)


@tokens.command("list", short_help="List tokens.")
@click.option("--owner", "owners", multiple=True, metavar="USER", help="List only this user's.")
@options
async def list_tokens(console: Console, owners: tuple[str, ...]) -> None:
    """List the tokens that you own, may renew, or may describe, with their HMACs.

    \b
    ottla tokens list
    ottla tokens list --owner alice --json
    """
    async with admin_of(console) as admin:
        found = await admin.describe_delegation_tokens(owners or None)
    _show(console, found, owners)


def _show(console: Console, found: list[DelegationToken], owners: tuple[str, ...] = ()) -> None:
    console.table(
        ["Id", "HMAC", "Owner", "Requester", "Renewers", "Issued", "Expires", "Max"],
        [
            (
                token.id,
                token.password,
                token.owner,
                token.requester,
                ",".join(token.renewers),
                show_time(token.issued_ms),
                show_time(token.expires_ms),
                show_time(token.max_ms),
            )
            for token in found
        ],
        empty=none_of("delegation token", None, f"of {' or '.join(owners)}" if owners else ""),
    )


def _show_end(console: Console, end_ms: int) -> None:
    console.report({"expires": show_time(end_ms)}, f"expires {show_time(end_ms)}")


def _secret(hmac: str) -> bytes:
    try:
        return b64decode(hmac, validate=True)
    except ValueError:
        raise click.BadParameter(
            "is not base64: give the HMAC as it was printed", param_hint="HMAC"
        ) from None
