"""``ottla console``: the console in the browser."""

from __future__ import annotations

import click

from ..commands import Console, options
from ..commands.client_options import pair
from ..errors import ConfigurationError


@click.command("console", short_help="Serve the console for the browser.")
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="Serve on this address. Beyond this machine, it needs TLS and a login, or --insecure.",
)
@click.option("--read-only", is_flag=True, help="Change nothing.")
@click.option(
    "--tls-cert", type=click.Path(), metavar="FILE", help="Serve by TLS with this certificate (PEM)."
)
@click.option("--tls-key", type=click.Path(), metavar="FILE", help="Read its key from this file.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="HOST",
    help="Accept this name in browsers' requests. Repeatable.",
)
@click.option(
    "--insecure", is_flag=True, help="Allow other machines without TLS, or without a login: at your own risk."
)
@click.option(
    "--refresh",
    type=click.FloatRange(min=0.1),
    default=5,
    show_default=True,
    metavar="SECONDS",
    help="Look at the cluster this often while a page is open.",
)
@click.option(
    "--session-minutes",
    type=click.FloatRange(min=0, min_open=True),
    default=60,
    show_default=True,
    metavar="MINUTES",
    help="End a session after this long without a request.",
)
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Append logins and changes to this file; by default they go to standard error.",
)
@click.option(
    "--schema-registry",
    metavar="URL",
    help="Decode Avro values with schemas from this Confluent-compatible registry.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="TOPIC=FILE",
    help="Decode a topic's values with the Avro schema in a file. Repeat it for several topics.",
)
@options
async def console(
    console: Console,
    listen: str,
    read_only: bool,
    tls_cert: str | None,
    tls_key: str | None,
    names: tuple[str, ...],
    insecure: bool,
    refresh: float,
    session_minutes: float,
    audit_log: str | None,
    schema_registry: str | None,
    schemas: tuple[str, ...],
) -> None:
    """Serve a page for the browser that shows what is wrong first: brokers, topics, messages, groups.

    The console acts with its client options (-X) for everyone. If these want a login but name no user, each person
    logs in as a user of the cluster, and the cluster's ACLs decide what they see and change. It works with Apache
    Kafka too. It needs the extra web: pip install 'ottla[web]'.

    \b
    ottla console
    ottla console -b kafka-1:9092 --read-only
    ottla console -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512 --listen 0.0.0.0:8443
        --tls-cert cert.pem --tls-key key.pem --name console.example.com --audit-log console.log
    """
    from ..admin.base import AdminSettings
    from ..consumer.settings import ConsumerSettings

    try:
        from .server import serve_forever, serving
    except ImportError as missing:
        raise click.ClickException(
            f"the console needs the package {missing.name}: pip install 'ottla[web]'"
        ) from None
    from .settings import WebSettings

    host, port = _address(listen)
    client = console.settings.of(ConsumerSettings, (AdminSettings,))
    try:
        settings = WebSettings(
            client=client,
            host=host,
            port=port,
            timeout=console.timeout,
            names=names,
            read_only=read_only,
            insecure=insecure,
            tls_cert=tls_cert,
            tls_key=tls_key,
            refresh=refresh,
            session_minutes=session_minutes,
            audit_log=audit_log,
            registry=schema_registry,
            schemas=dict(pair(text, "--schema") for text in schemas),
        )
        async with serving(settings) as address:
            console.print(f"the console is at {address}")
            await serve_forever()
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)
