"""``ottla broker``: runs a broker in the foreground."""

from __future__ import annotations

import contextlib
import gc
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
    help="Set a configuration key, overriding the file and the environment. Repeatable.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Keep the data in this folder (log.dirs). Default: ./ottla-data",
)
@click.option(
    "--listen", metavar="HOST:PORT", help="Listen on this address (listeners). Default: 127.0.0.1:9092"
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Log events of this level and above. Default: info; with --ephemeral: warning.",
)
@click.option(
    "--log-format",
    type=click.Choice(["auto", "json", "text"]),
    default="auto",
    show_default=True,
    help="Format of log events; auto means text on a terminal, JSON lines otherwise.",
)
@click.option(
    "--ephemeral",
    is_flag=True,
    help="Run a broker for a test, in a temporary folder that is removed at the end, on any free port, without"
    " waiting for other members or the disk. Prints one line, the address for clients.",
)
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="NAME[:PARTITIONS]",
    help="With --ephemeral: create this topic before the broker is ready. Repeatable.",
)
@click.option(
    "--exit-with-stdin",
    is_flag=True,
    help="With --ephemeral: stop at the end of standard input, which also comes when the parent process ends.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="With --ephemeral: write the address to this file when the broker is ready, and remove it at the end.",
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

    CONFIG.properties has the format and keys of Kafka's server.properties. An environment variable such as
    OTTLA_NUM_PARTITIONS overrides the file's num.partitions, and --set overrides both. The broker prints one line when
    it accepts clients. SIGTERM or Ctrl-C stops it cleanly.

    \b
    ottla broker
    ottla broker server.properties --set num.partitions=4
    ottla broker --data-dir /var/lib/ottla --listen :9092 --set allow.anonymous.network=true
    ottla broker --ephemeral --topic orders:3
    """
    _open_standard_descriptors()
    # Until the broker is up: hardly anything of it is garbage, and looking for that takes a tenth of the time.
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)
    if ephemeral and ready_file is not None:
        _remove_stale(ready_file)
    from ottla_broker import events

    overrides = _settings(settings)
    if data_dir is not None:
        overrides["log.dirs"] = str(data_dir)
    if listen is not None:
        overrides["listeners"] = _listener(listen)
    counts = _partitions(topics)
    events.configure(
        log_level or ("warning" if ephemeral else "info"),
        json={"auto": None, "json": True, "text": False}[log_format],
    )
    if ephemeral:
        if data_dir is not None:
            raise click.UsageError("--ephemeral uses a temporary folder; leave out --data-dir")
        _run_ephemeral(config_file, overrides, counts, exit_with_stdin, ready_file)
        return
    for given, name in (
        (topics, "--topic"),
        (exit_with_stdin, "--exit-with-stdin"),
        (ready_file, "--ready-file"),
    ):
        if given:
            raise click.UsageError(f"{name} requires --ephemeral")
    from ottla_broker.config import ConfigError, load_config
    from ottla_broker.daemon import run
    from ottla_broker.server import StartError

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
        from ottla_broker.daemon import say
        from ottla_broker.server import Broker, StartError

        def announce(broker: Broker) -> None:
            address = ephemeral.address(broker)
            if ready_file is not None:
                _write_atomically(ready_file, f"{address}\n")
            say(address)

        try:
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
            _fail(_unwritable(ready_file, error))
        finally:
            if ready_file is not None:
                # Its folder may be gone by now. If the file stays, the next start removes it.
                with contextlib.suppress(OSError):
                    ready_file.unlink(missing_ok=True)


def _remove_stale(ready_file: Path) -> None:
    """Remove the file that a killed broker left, before anything else: it would announce this broker too early."""
    try:
        ready_file.unlink(missing_ok=True)
    except OSError as error:
        _fail(_unwritable(ready_file, error))


def _unwritable(ready_file: Path, error: OSError) -> str:
    return (
        f"--ready-file {ready_file}: {error.strerror or error}; name a file in a folder that you can write to"
    )


def _write_atomically(path: Path, text: str) -> None:
    """Write a file atomically, so that readers never see a part of it. Raises OSError."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.replace(path)


def _settings(given: tuple[str, ...]) -> dict[str, str]:
    """Parse ``--set KEY=VALUE``."""
    found: dict[str, str] = {}
    for setting in given:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise click.BadParameter(f"{setting!r} is not KEY=VALUE", param_hint="--set")
        found[key.strip()] = value.strip()
    return found


def _listener(given: str) -> str:
    """``--listen`` as a value of ``listeners``."""
    protocol, _, address = given.rpartition("://")
    host, colon, port = address.rpartition(":")
    if protocol.upper() not in ("", "PLAINTEXT"):
        wrong = f"{given!r}: it takes HOST:PORT without TLS; for {protocol.upper()}, --set listeners=…"
    elif "," in given:
        wrong = f"{given!r}: it takes one address; for several, --set listeners=…"
    elif not colon or not port.isdigit() or "/" in host:
        wrong = f"{given!r} is not HOST:PORT, such as 127.0.0.1:9092"
    else:
        return f"PLAINTEXT://{address}"
    raise click.BadParameter(wrong, param_hint="--listen")


def _partitions(given: tuple[str, ...]) -> dict[str, int]:
    """Parse ``--topic NAME[:PARTITIONS]``; the default is one partition."""
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
    """Open /dev/null in place of closed standard streams.

    Otherwise a data file could get the descriptor of standard error, and with it the messages of libraries.
    """
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is fd
