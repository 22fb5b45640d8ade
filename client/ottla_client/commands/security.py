"""``ottla security``: check."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import click

from ottla_protocol.errors import ErrorCode

from ..errors import BrokerError, ClientError
from .admin_common import admin_of, plural
from .console import Console, one_line, options
from .doctor_checks import NOTE
from .findings import counts_of, show_findings
from .security_checks import Seen, findings_of, listeners_of
from .security_probe import DEFAULT_LOGINS, Prober

if TYPE_CHECKING:
    from ..admin import Admin

_ATTEMPT_SECONDS: Final = 5.0


@click.group()
def security() -> None:
    """See what of a cluster is open to others."""


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

    Reading settings needs the permission describe-configs on the cluster. Failed logins show in the brokers' logs.

    The exit code is 1 if there is a critical finding or a warning, otherwise 0.

    \b
    ottla security check
    ottla security check -b kafka-1:9093 --command-config admin.properties --json
    """
    from ..admin.base import AdminSettings

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
    found = findings_of(seen)
    bad = [each for each in found if each.severity != NOTE]
    if console.as_json:
        console.emit(
            {
                "secure": not bad,
                "findings": [each._asdict() for each in found],
                "unchecked": seen.unchecked,
                "brokers": len(seen.brokers),
                "listeners": len(seen.listeners),
            }
        )
    else:
        show_findings(console, found, seen.unchecked)
        looked = f"{plural(len(seen.brokers), 'broker')}, {plural(len(seen.listeners), 'listener')}"
        console.print(f"{counts_of(found) or 'nothing is open'} ({looked})")
    if bad:
        sys.exit(1)


async def gather(admin: Admin, prober: Prober) -> Seen:
    """Find out everything that can be. What a user may not see, or what can't be reached, is noted as unchecked."""
    from ..admin import ConfigResource

    seen = Seen(datetime.now(UTC))
    nodes = [node.id for node in (await admin.describe_cluster()).nodes]
    try:
        found = await admin.describe_configs([ConfigResource.broker(node) for node in nodes])
        seen.brokers = {
            resource.name: {name: entry.value for name, entry in entries.items() if entry.value is not None}
            for resource, entries in found.items()
        }
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
