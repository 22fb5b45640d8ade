"""``ottla console``: the console in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ottla_cli import Console, options
from ottla_cli.groups.places import zookeeper_option
from ottla_cli.shared.client_options import pair
from ottla_client.errors import ConfigurationError

if TYPE_CHECKING:
    from .oidc import OidcSettings


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
    help="Decode Avro and Protobuf values with schemas from this Confluent-compatible registry.",
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="TOPIC=FILE",
    help="Decode a topic's values with the schema in a file: Avro, .proto or a descriptor set, the latter two with"
    " #MESSAGE if they have several messages. Repeat it for several topics.",
)
@click.option(
    "--landing",
    multiple=True,
    type=click.Path(),
    metavar="FOLDER",
    help="Show the landing jobs whose tables are in this folder. Repeatable.",
)
@zookeeper_option
@click.option(
    "--oidc-issuer",
    metavar="URL",
    help="Let people log in at this OpenID Connect provider, whose tokens the cluster accepts by OAUTHBEARER.",
)
@click.option("--oidc-client-id", default="", metavar="ID", help="Set the console's name at the provider.")
@click.option(
    "--oidc-client-secret-file",
    type=click.Path(),
    metavar="FILE",
    help="Read the console's secret at the provider from this file, if it has one.",
)
@click.option(
    "--oidc-scope",
    default="openid",
    show_default=True,
    metavar="SCOPES",
    help="Ask the provider for these scopes, with spaces between them.",
)
@options
async def console(
    console: Console,
    listen: str,
    schema_registry: str | None,
    schemas: tuple[str, ...],
    landing: tuple[str, ...],
    oidc_issuer: str | None,
    oidc_client_id: str,
    oidc_client_secret_file: str | None,
    oidc_scope: str,
    **others: Any,
) -> None:
    """Serve a page for the browser that shows what is wrong first: brokers, topics, messages, groups.

    The console acts with its client options (-X) for everyone. If these want a login but name no user, each person
    logs in as a user of the cluster, and the cluster's ACLs decide what they see and change. It works with Apache
    Kafka too. It needs the extra web.

    \b
    ottla console
    ottla console -b kafka-1:9092 --read-only
    ottla console -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512 --listen 0.0.0.0:8443
        --tls-cert cert.pem --tls-key key.pem --name console.example.com --audit-log console.log
    ottla console --schema orders=order.proto#shop.Order --landing lake
    """
    from ottla_client.admin.base import AdminSettings
    from ottla_client.consumer.settings import ConsumerSettings

    try:
        from .server import serve_forever, serving
    except ImportError as missing:
        raise click.ClickException(
            f"the console needs the package {missing.name}: pip install 'ottla[web]'"
        ) from None
    from .settings import WebSettings

    host, port = _address(listen)
    client = console.settings.of(ConsumerSettings, (AdminSettings,))
    _warn_of_missing(landing, console)
    https_ca = client.get("https_ca_location")
    try:
        settings = WebSettings(
            client=client,
            host=host,
            port=port,
            timeout=console.timeout,
            registry=schema_registry,
            schemas=dict(pair(text, "--schema") for text in schemas),
            landing=landing,
            oidc=_oidc(oidc_issuer, oidc_client_id, oidc_client_secret_file, oidc_scope, https_ca),
            **others,
        )
        async with serving(settings) as address:
            console.print(f"the console is at {address}")
            await serve_forever()
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None


def _warn_of_missing(landing: tuple[str, ...], console: Console) -> None:
    for folder in landing:
        if not Path(folder).exists():
            console.note(f"warning: --landing {folder}: there is no such folder yet")


def _oidc(
    issuer: str | None, client_id: str, secret_file: str | None, scope: str, authorities: str | None
) -> OidcSettings | None:
    """The provider at which people log in; None unless ``issuer`` is given. Raises ConfigurationError."""
    from .oidc import OidcSettings

    if issuer is None:
        if client_id or secret_file is not None:
            raise ConfigurationError("--oidc-client-id and --oidc-client-secret-file need --oidc-issuer")
        return None
    secret = None if secret_file is None else _secret(secret_file)
    return OidcSettings(
        issuer=issuer, client_id=client_id, secret=secret, scope=scope, authorities=authorities
    )


def _secret(path: str) -> str:
    """The first line of a file. Raises ConfigurationError."""
    try:
        text = Path(path).read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it isn't text"
        raise ConfigurationError(f"--oidc-client-secret-file {path}: {reason}") from None
    if not text:
        raise ConfigurationError(f"--oidc-client-secret-file {path}: it is empty")
    return text


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]"), int(port)
