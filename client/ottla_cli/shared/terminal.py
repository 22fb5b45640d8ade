"""Shared by all commands of ``ottla``: common options, output, progress, confirmation, and error handling.

A command is a coroutine function with ``@options``. It gets a `Console` first; `run` runs it::

    @click.command()
    @options
    async def list(console: Console) -> None:
        ...

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C, 143 by SIGTERM. If the reader of the output goes away
(``| head``), a command ends quietly with 0.

Output has three forms: one JSON document with ``--json``; tables drawn by rich at a terminal, if it is installed
(``pip install 'ottla[console]'``); otherwise plain text in aligned columns.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import gc
import io
import json
import logging
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click
from click.core import ParameterSource

from ottla_client.errors import ClientError, ConfigurationError
from ottla_client.settings import DEFAULT_BOOTSTRAP
from ottla_client.suggestions import did_you_mean
from ottla_protocol.printable import printable, shown_name

from .client_options import ClientOptions, Command, option_group
from .ending import Ending, run_to_the_end
from .tables import Column, plain_table

if TYPE_CHECKING:
    from .progress import Progress

T = TypeVar("T")

# Objects allocated, less those freed, before a garbage collection.
_COLLECT_AFTER = 200_000
# What JSON may leave as it is: DEL, the C1 controls, ends of lines, marks of direction.
_UNESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
ENVIRONMENT = "OTTLA_BOOTSTRAP_SERVER"
CLIENT_OPTION_HELP = (
    "Set a client option, by its name in Python or in Kafka: ssl_cafile=ca.pem or ssl.truststore.location=ca.pem, "
    "request_timeout_ms=5000, …. Repeat it for several options."
)


class OutputClosedError(Exception):
    """The reader of the output has gone (``| head``); `run` ends the command quietly."""


class Console:
    """A command's output and common options.

    ``settings`` has the bootstrap servers, the timeout in seconds, and the clients' options.
    """

    def __init__(self, settings: ClientOptions, *, as_json: bool = False) -> None:
        if sys.stdout is None:  # the parent process closed it
            raise click.ClickException("standard output is closed; send it to a file, or to /dev/null")
        self.settings = settings
        self.ending = Ending()
        self.as_json = as_json
        self.is_terminal = _is_terminal(sys.stdout)
        self.talks = _is_terminal(sys.stderr) and not as_json
        """Whether to show progress: standard error is a terminal."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                # A terminal that can't show a character still gets the line.
                stream.reconfigure(errors="backslashreplace")

    @property
    def timeout(self) -> float:
        """Seconds that the cluster may take to answer."""
        return self.settings.timeout

    def print(self, text: str = "") -> None:
        """Print one line, whatever names are in it. Raises OutputClosedError if standard output's reader has gone."""
        self.write(printable(text) + "\n")

    def write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise OutputClosedError from None

    def note(self, text: str) -> None:
        """Print one line for people on standard error, with options as the user spells them."""
        click.echo(printable(self.settings.as_given(text)), err=True)

    def emit(self, document: object) -> None:
        """Print the JSON document of ``--json``, with bytes as ``{"base64": …}``."""
        self.write(to_json(document, indent=2) + "\n")

    def report(
        self, document: object, *lines: str, aside: bool = False, empty: str = "nothing was changed"
    ) -> None:
        """Print what was done: ``document`` with ``--json``, otherwise lines, ``aside`` on standard error.

        ``empty`` is the note if there are no lines.
        """
        if self.as_json:
            self.emit(document)
            return
        for line in lines:
            (self.note if aside else self.print)(line)
        if not lines:
            self.note(empty)

    def table(
        self,
        columns: Sequence[Column | str],
        rows: Iterable[Sequence[Any]],
        *,
        title: str = "",
        empty: str = "nothing to show",
    ) -> None:
        """Print a table, or with ``--json`` a list of objects; ``empty`` is the note if there are no rows."""
        heads = [Column(column) if isinstance(column, str) else column for column in columns]
        lines = [tuple(row) for row in rows]
        if self.as_json:
            self.emit([dict(zip((head.name for head in heads), line, strict=True)) for line in lines])
        elif not lines:
            self.note(empty)
        elif self.is_terminal and (drawn := _draw_table(heads, lines, title)) is not None:
            self.write(drawn)
        else:
            if title:
                self.print(title)
            self.write(plain_table(heads, lines))

    def details(self, values: Mapping[str, Any]) -> None:
        """Print names and values, one pair per line; with ``--json`` an object."""
        if self.as_json:
            self.emit({Column(name).name: value for name, value in values.items()})
            return
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            self.print(f"{name:<{width}}  {Column(name).text(value)}".rstrip())

    def progress(
        self, what: str, *, total: float | None = None, unit: str = "records", hidden: bool = False
    ) -> Progress:
        """A bar (``total`` known) or a counter on standard error, shown only at a terminal.

        The ``unit`` "bytes" is shown in KiB, MiB, …; other units are counted. ``hidden`` never shows it.
        """
        from .progress import Progress

        return Progress(what, total, unit, visible=self.talks and not hidden)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before an action that can't be undone; ``yes`` is the option ``--yes``.

        Without a terminal, ``--yes`` is required. The answer no ends the command with 1.
        """
        if yes:
            return
        if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
            raise click.UsageError("Can't ask for confirmation without a terminal: add --yes to go ahead.")
        with _ended_by_signals():
            confirmed = click.confirm(printable(question), err=True)
        if not confirmed:
            raise click.ClickException("nothing was changed")


YES = click.option("-y", "--yes", is_flag=True, help="Skip the confirmation.")
"""For commands that call :meth:`Console.confirm`."""

_COMMON = option_group(
    click.option(
        "-b",
        "--bootstrap-server",
        envvar=ENVIRONMENT,
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT[,…]",
        help="Connect to these brokers first.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
    click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        default=30,
        show_default=True,
        metavar="SECONDS",
        help="Set how long the cluster may take to answer.",
    ),
    click.option(
        "-X",
        "--client-option",
        "client_settings",
        multiple=True,
        metavar="KEY=VALUE",
        help=CLIENT_OPTION_HELP,
    ),
    click.option(
        "--command-config",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="Read client options from a properties file, as Kafka's tools do; other options override them.",
    ),
)


def options(command: Command) -> Command:
    """Add the common options to a command, which gets a `Console` as its first argument; `run` it if it is async."""

    @functools.wraps(command)
    def with_console(
        *args: Any,
        bootstrap_server: str,
        as_json: bool,
        timeout: float,
        client_settings: tuple[str, ...],
        command_config: str | None,
        **rest: Any,
    ) -> Any:
        settings = ClientOptions(bootstrap_server, timeout)
        if command_config is not None:
            context = click.get_current_context()
            given = [
                each
                for each in context.params
                if context.get_parameter_source(each) is ParameterSource.COMMANDLINE
            ]
            settings.add_file(command_config, given)
            if "bootstrap_server" in given:
                settings.bootstrap_servers = bootstrap_server
        settings.add(client_settings)
        console = Console(settings, as_json=as_json)
        with _client_warnings(console):
            done = command(console, *args, **rest)
            return run(done, settings.as_given, console.ending) if asyncio.iscoroutine(done) else done

    return _COMMON(with_console)  # type: ignore[return-value]


class _Warnings(logging.Handler):
    """Prints the client's warnings as notes. A failure waits: it is the error with which the command ends."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.failures: list[str] = []
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR and not record.exc_info:
            self.failures.append(record.getMessage())
            return
        for line in self.format(record).splitlines():
            self._console.note(line)


@contextmanager
def _client_warnings(console: Console) -> Iterator[None]:
    logger, handler = logging.getLogger("ottla_client"), _Warnings(console)
    logger.addHandler(handler)
    error = ""
    try:
        yield
    except click.ClickException as raised:
        error = raised.message
        raise
    finally:
        logger.removeHandler(handler)
        for failure in handler.failures:
            if one_line(failure) not in error:
                console.note(failure)


def run(main: Coroutine[Any, Any, T], shown: Callable[[str], str] = str, ending: Ending | None = None) -> T:
    """Run a command's coroutine. An error ends the process with one line, which ``shown`` may change, and an exit code.

    Ctrl-C and SIGTERM cancel the coroutine, which may catch CancelledError to finish cleanly and must raise it again;
    ``ending`` says how long that may take.
    """
    # Commands create millions of records, which are never part of cycles: searching them would take a third of the run.
    gc.set_threshold(_COLLECT_AFTER, 20, 50)
    with one_line_errors(shown):
        return run_to_the_end(ending or Ending(), main)


@contextmanager
def one_line_errors(shown: Callable[[str], str] = str) -> Iterator[None]:
    """End the command with one line, which ``shown`` may change, and an exit code if it fails."""
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(130)
    except asyncio.CancelledError:
        sys.exit(143)
    except OutputClosedError:
        forget_output()
        sys.exit(0)
    except ConfigurationError as error:
        raise click.UsageError(shown(one_line(error))) from None
    except ClientError as error:
        raise click.ClickException(shown(one_line(error))) from None
    except OSError as error:
        raise click.ClickException(_describe(error)) from None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the process at once, because the event loop is blocked and can't cancel."""

    def end(number: int, frame: object) -> NoReturn:
        sys.stderr.write("\n")
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def one_line(error: BaseException | str) -> str:
    """An error's message without line breaks; its class if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def _describe(error: OSError) -> str:
    name = error.filename
    reason = error.strerror or one_line(error)
    return f"{os.fsdecode(name)}: {reason}" if isinstance(name, (str, bytes)) else reason


def forget_output() -> None:
    """Keep Python from writing to the closed pipe when it flushes its streams at the end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    """The error for an unknown topic, with a suggestion."""
    return unknown("topic", name, known)


def unknown(kind: str, name: str, known: Iterable[str]) -> click.ClickException:
    """The error for an unknown topic, group, …, with a suggestion."""
    return click.ClickException(f"unknown {kind} {shown_name(name)}{did_you_mean(name, known)}")


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """A record's bytes as a field of a JSON object.

    UTF-8 is ``{name: text}``; other bytes are base64, marked by a second field, ``name_encoding``.
    """
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


def to_json(document: object, *, indent: int | None = None) -> str:
    return escaped_json(json.dumps(document, indent=indent, ensure_ascii=False, default=_json_default))


def escaped_json(text: str) -> str:
    """The same JSON without characters that a terminal obeys, or that change the direction of what follows."""
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _json_default(value: object) -> object:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


def _draw_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], title: str) -> str | None:
    """The table drawn by rich; None without rich."""
    try:
        from .rich_output import draw_table
    except ImportError:
        return None
    return draw_table(columns, rows, title)


def _is_terminal(stream: Any) -> bool:
    """Whether a stream is a terminal; it may also be missing or closed."""
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:
        return False
