"""``ottla broker``: the daemon in the foreground."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


@click.command()
@click.argument("config_file", required=False, type=click.Path(path_type=Path), metavar="[CONFIG.properties]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Set a configuration key; goes before the file.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Where the data lives (log.dirs). Default: ./ottla-data",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Address to listen on (listeners). Default: 127.0.0.1:9092"
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    help="auto: text at a terminal, JSON lines otherwise.",
)
def broker(
    config_file: Path | None,
    settings: tuple[str, ...],
    data_dir: Path | None,
    listen: str | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run a broker in the foreground.

    CONFIG.properties is a file as Kafka's own server.properties; its keys are Kafka's. One line is printed when the
    broker accepts clients. SIGTERM or Ctrl-C stops it cleanly.

    \b
    ottla broker
    ottla broker server.properties --set num.partitions=4
    ottla broker --data-dir /var/lib/ottla --listen :9092
    """
    _open_standard_descriptors()
    from ottla_broker import events
    from ottla_broker.config import ConfigError, load_config
    from ottla_broker.server import StartError, run

    events.configure(log_level, json={"auto": None, "json": True, "text": False}[log_format])
    overrides: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
        overrides[key.strip()] = value.strip()
    if data_dir is not None:
        overrides["log.dirs"] = str(data_dir)
    if listen is not None:
        _, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
        overrides["listeners"] = f"PLAINTEXT://{listen}"
    try:
        run(load_config(config_file, overrides))
    except (ConfigError, StartError) as error:
        click.echo(f"ottla broker: {error}", err=True)
        sys.exit(1)


def _open_standard_descriptors() -> None:
    """Give a process started with a closed standard stream something in its place.

    Otherwise a data file gets the number of standard error, and whatever some library writes there.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
