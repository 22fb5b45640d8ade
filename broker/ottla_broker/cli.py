"""``ottla broker``: the daemon in the foreground."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

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
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Default: info; warning with --ephemeral.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    help="auto: text at a terminal, JSON lines otherwise.",
)
@click.option(
    "--ephemeral",
    is_flag=True,
    help="A broker for a test: a temporary folder, any free port, no waiting; all gone at the end. Standard output"
    " has one line, the address for clients.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="With --ephemeral: a topic to make before the broker says that it is ready.",
)
@click.option(
    "--exit-with-stdin",
    is_flag=True,
    help="With --ephemeral: end when standard input does, as it does when the program that holds it ends.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="With --ephemeral: a file to write the address to when the broker is ready; removed at the end.",
)
def broker(
    config_file: Path | None,
    settings: tuple[str, ...],
    data_dir: Path | None,
    listen: str | None,
    log_level: str | None,
    log_format: str,
    ephemeral: bool,
    topics: tuple[str, ...],
    exit_with_stdin: bool,
    ready_file: Path | None,
) -> None:
    """Run a broker in the foreground.

    CONFIG.properties is a file as Kafka's own server.properties; its keys are Kafka's. OTTLA_NUM_PARTITIONS in the
    environment sets num.partitions, and so on for every key; it goes before the file, and --set before both. One line
    is printed when the broker accepts clients. SIGTERM or Ctrl-C stops it cleanly.

    \b
    ottla broker
    ottla broker server.properties --set num.partitions=4
    ottla broker --data-dir /var/lib/ottla --listen :9092
    ottla broker --ephemeral --topic orders:3
    """
    _open_standard_descriptors()
    from ottla_broker import events

    overrides = _settings(settings)
    if data_dir is not None:
        overrides["log.dirs"] = str(data_dir)
    if listen is not None:
        _, colon, port = listen.rpartition(":")
        if not colon or not port.isdigit():
            raise click.BadParameter(f"{listen!r} is not HOST:PORT", param_hint="--listen")
        overrides["listeners"] = f"PLAINTEXT://{listen}"
    counts = _partitions(topics)
    events.configure(
        log_level or ("warning" if ephemeral else "info"),
        json={"auto": None, "json": True, "text": False}[log_format],
    )
    if ephemeral:
        if data_dir is not None:
            raise click.UsageError("--ephemeral has a folder of its own; leave --data-dir out")
        _run_ephemeral(config_file, overrides, counts, exit_with_stdin, ready_file)
        return
    for given, name in (
        (topics, "--topic"),
        (exit_with_stdin, "--exit-with-stdin"),
        (ready_file, "--ready-file"),
    ):
        if given:
            raise click.UsageError(f"{name} goes with --ephemeral alone")
    from ottla_broker.config import ConfigError, load_config
    from ottla_broker.server import StartError, run

    try:
        run(load_config(config_file, overrides, environ=os.environ))
    except (ConfigError, StartError) as error:
        _fail(error)


def _run_ephemeral(
    config_file: Path | None,
    overrides: Mapping[str, str],
    topics: Mapping[str, int],
    exit_with_stdin: bool,
    ready_file: Path | None,
) -> None:
    from ottla_broker import ephemeral

    with ephemeral.temporary_folder() as folder:
        from ottla_broker.config import ConfigError, load_config
        from ottla_broker.server import Broker, StartError, say

        def announce(broker: Broker) -> None:
            address = ephemeral.address(broker)
            if ready_file is not None:
                _write_at_once(ready_file, f"{address}\n")
            say(address)

        try:
            if ready_file is not None:
                # One that was left by a broker which was killed would tell of this one too early.
                ready_file.unlink(missing_ok=True)
            config = load_config(
                config_file,
                {**overrides, "log.dirs": str(folder / "data")},
                {**ephemeral.SETTINGS, "listeners": f"PLAINTEXT://{ephemeral.HOST}:0"},
            )
            ephemeral.run(
                ephemeral.Ephemeral(config, announce, topics, lifeline=0 if exit_with_stdin else None)
            )
        except (ConfigError, StartError) as error:
            _fail(error)
        except OSError as error:
            if ready_file is None or error.filename is None:
                raise
            _fail(f"--ready-file: {error}")
        finally:
            if ready_file is not None:
                with contextlib.suppress(OSError):
                    ready_file.unlink(missing_ok=True)


def _write_at_once(path: Path, text: str) -> None:
    """Write a file in one step: who waits for it to be there finds it whole. Raises OSError."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


def _settings(given: tuple[str, ...]) -> dict[str, str]:
    """``--set KEY=VALUE`` as a mapping."""
    found: dict[str, str] = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
        found[key.strip()] = value.strip()
    return found


def _partitions(given: tuple[str, ...]) -> dict[str, int]:
    """``--topic NAME:PARTITIONS`` as a mapping; one partition where no number is given."""
    found: dict[str, int] = {}
    for topic in given:
        name, colon, count = topic.partition(":")
        if not name or (colon and (not count.isdigit() or int(count) < 1)):
            raise click.BadParameter(f"{topic!r} is not NAME or NAME:PARTITIONS", param_hint="--topic")
        found[name] = int(count) if colon else 1
    return found


def _fail(error: Exception | str) -> NoReturn:
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
