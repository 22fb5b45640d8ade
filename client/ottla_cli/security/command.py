"""``ottla security``: check, init, password."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import click

from ottla_client.errors import BrokerError, ClientError
from ottla_protocol.errors import ErrorCode

from ..acls.rules import hidden_settings
from ..shared.admin import admin_of
from ..shared.findings import report
from ..shared.terminal import Console, one_line, options
from .checks import Seen, findings_of, listeners_of
from .probe import DEFAULT_LOGINS, Prober

if TYPE_CHECKING:
    from ottla_client.admin import Admin

_ATTEMPT_SECONDS: Final = 5.0
_BLIND: Final = (
    "no broker's settings and listeners could be looked at; this user needs the permissions describe and"
    " describe-configs on the cluster"
)


@click.group()
def security() -> None:
    """See what of a cluster is open to others, set passwords, and make certificates for trials."""


@security.command(short_help="Say what is open, and what to do about it.")
@click.option(
    "--passwords/--no-passwords",
    default=True,
    show_default=True,
    help="Try to log in with the passwords of Kafka's documentation and of common images.",
)
@options
async def check(console: Console, passwords: bool) -> None:
    """Say what is open, and what to do about it.

    It reads the brokers' settings and the ACLs, and tries each listener as a stranger would: without a login, with old
    TLS versions, and with well-known passwords. It finds listeners without login or encryption, passwords in plain
    text, unsigned tokens, certificates that have expired or soon will, missing or lenient ACLs, super users, open
    traffic between brokers, an open ZooKeeper and open metrics. It changes nothing, and works with Apache Kafka too.

    Reading settings needs the permission describe-configs on the cluster, and reading ACLs describe on it. Failed
    logins show in the brokers' logs.

    The exit code is 1 if there is a critical finding or a warning, or if no broker or no listener could be looked at,
    otherwise 0. In JSON, `secure` is null if there is
    neither and something couldn't be checked, such as settings that a broker hides.

    \b
    ottla security check
    ottla security check -b kafka-1:9093 --command-config admin.properties --json
    """
    from ottla_client.admin.base import AdminSettings

    settings = AdminSettings.of(
        {
            key: value
            for key, value in console.settings.of(AdminSettings).items()
            if key != "bootstrap_servers"
        },
        "Admin",
    )
    logins = DEFAULT_LOGINS if passwords else ()
    prober = Prober(min(console.timeout, _ATTEMPT_SECONDS), settings.tls_context(), logins)
    async with admin_of(console) as admin:
        seen = await gather(admin, prober)
    report(
        console,
        findings_of(seen),
        seen.unchecked,
        verdict="secure",
        looked={"brokers": len(seen.brokers), "listeners": len(seen.listeners)},
        nothing="nothing is open in what could be checked" if seen.unchecked else "nothing is open",
        blind=None if seen.listeners else _BLIND,
    )


@security.command(short_help="Make certificates and a password for trials.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--broker",
    "brokers",
    multiple=True,
    metavar="NAMES",
    help="Make a certificate for a broker with these host names and addresses, separated by commas; the first one names"
    " the file. By default broker.pem for localhost and 127.0.0.1.",
)
@click.option(
    "--clients-at",
    "bootstrap",
    default="127.0.0.1:9092",
    show_default=True,
    metavar="HOST:PORT,…",
    help="Write these addresses of brokers into the client's options.",
)
def init(folder: Path, brokers: tuple[str, ...], bootstrap: str) -> None:
    """Make an authority, certificates for brokers and an administrator, and a password, and print the files.

    They are for trials, because the authority's key lies beside the certificates. If the folder has them already,
    nothing changes. `admin.properties` has the options of a client that logs in by SCRAM as admin, with a password that
    the brokers don't know yet: set it by `ottla security password admin --command-config FOLDER/admin-tls.properties`,
    which logs in by certificate, or by a listener without a login.

    \b
    ottla security init secure
    ottla security init secure --broker broker-1,localhost --broker broker-2,localhost --clients-at localhost:19092
    """
    try:
        from .trial_files import make_files
    except ModuleNotFoundError as error:
        raise click.ClickException(
            f"certificates need the package {error.name}: pip install 'ottla[security]'"
        ) from None
    names = [
        tuple(filter(None, (name.strip() for name in each.split(","))))
        for each in brokers or ("broker,localhost,127.0.0.1",)
    ]
    for each in names:
        if not each or not re.fullmatch(r"[\w.-]+", each[0]) or each[0] in ("admin", "ca"):
            raise click.UsageError(
                "--broker needs the host names of a broker, the first of which names the file"
            )
    try:
        made = make_files(folder, names, bootstrap)
    except OSError as error:
        raise click.ClickException(f"{error.filename or folder}: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"--broker: {error}") from None
    if not made:
        click.echo(f"{folder} has these files already", err=True)
    for path in made:
        click.echo(path)


@security.command(short_help="Set or remove a user's password.")
@click.argument("user")
@click.option(
    "--password-file",
    type=click.File(encoding="utf-8"),
    metavar="FILE",
    help="Read the password from the first line of this file, or of standard input for -. By default, ask for it.",
)
@click.option(
    "--mechanism",
    type=click.Choice(["SCRAM-SHA-512", "SCRAM-SHA-256"]),
    default="SCRAM-SHA-512",
    show_default=True,
    help="Change the password of this mechanism.",
)
@click.option("--remove", is_flag=True, help="Remove the password, which keeps new logins out.")
@options
async def password(
    console: Console, user: str, password_file: TextIO | None, mechanism: str, remove: bool
) -> None:
    """Set a user's password for SCRAM, or remove it. New logins use it; connections that are open stay.

    It needs the permission alter on the cluster.

    \b
    ottla security password alice --command-config admin.properties
    ottla security password alice --password-file - < alice.password
    ottla security password alice --remove
    """
    secret = ""
    if not remove:
        if password_file is not None:
            secret = password_file.readline().rstrip("\r\n")
        else:
            if not sys.stdin.isatty():
                raise click.UsageError("no terminal to ask for the password; give --password-file")
            secret = str(click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True))
        if not secret:
            raise click.UsageError("the password is empty")
    async with admin_of(console) as admin:
        if remove:
            await admin.delete_password(user, mechanism=mechanism)
        else:
            await admin.set_password(user, secret, mechanism=mechanism)
    console.report(
        {"user": user, "mechanism": mechanism, "removed": remove},
        f"{user} {'can no longer' if remove else 'can'} log in by {mechanism}",
    )


async def gather(admin: Admin, prober: Prober) -> Seen:
    """Find out everything that can be. What a user may not see, or what can't be reached, is noted as unchecked."""
    from ottla_client.admin import ConfigResource

    seen = Seen(datetime.now(UTC))
    nodes = [node.id for node in (await admin.describe_cluster()).nodes]
    try:
        found = await admin.describe_configs([ConfigResource.broker(node) for node in nodes])
        seen.brokers = {
            resource.name: {name: entry.value for name, entry in entries.items() if entry.value is not None}
            for resource, entries in found.items()
        }
        for resource, entries in found.items():
            if hidden := hidden_settings(entries):
                seen.unchecked.append(f"broker {resource.name} doesn't show {hidden}")
    except ClientError as error:
        seen.unchecked.append(f"settings of brokers couldn't be checked: {one_line(error)}")
    seen.listeners = [
        listener for broker, settings in seen.brokers.items() for listener in listeners_of(broker, settings)
    ]
    try:
        seen.acls = await admin.describe_acls()
    except ClientError as error:
        if not isinstance(error, BrokerError) or error.code != ErrorCode.SECURITY_DISABLED:
            seen.unchecked.append(f"ACLs couldn't be checked: {one_line(error)}")
    places = {(each.host, each.port): each.protocol for each in seen.listeners}
    probes = await asyncio.gather(
        *(prober.probe(host, port, protocol) for (host, port), protocol in places.items())
    )
    seen.probes = dict(zip(places, probes, strict=True))
    for (host, port), probe in seen.probes.items():
        if probe.failed:
            seen.unchecked.append(f"{host}:{port} couldn't be tried: {probe.failed}")
    return seen
