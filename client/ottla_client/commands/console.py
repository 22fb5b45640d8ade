"""What every command of ``ottla`` shares: common options, output, progress, questions, and how errors end.

A command is a function with ``@options`` on it. It gets a `Console` first, and hands its coroutine to `run`::

    @click.command()
    @options
    def list(console: Console) -> None:
        run(_list(console))

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 ended by Ctrl-C, 143 by SIGTERM. Whoever reads the output may go away
(``| head``): that ends a command quietly, with 0.

Output comes in three forms. With ``--json`` it is one JSON document. At a terminal it is drawn by rich, where that is
installed (``pip install 'ottla[console]'``). Else it is plain text in aligned columns.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import gc
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from ..errors import ClientError, ConfigurationError
from ..settings import DEFAULT_BOOTSTRAP
from ..suggestions import did_you_mean
from .client_options import ClientOptions
from .tables import Column, plain_table, printable

if TYPE_CHECKING:
    from .progress import Progress

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])

# Objects made, less those freed, before garbage is collected.
_COLLECT_AFTER = 200_000
ENVIRONMENT = "OTTLA_BOOTSTRAP_SERVER"
CLIENT_OPTION_HELP = (
    "Set a client option, by its name in Python or in Kafka: ssl_cafile=ca.pem or ssl.truststore.location=ca.pem, "
    "request_timeout_ms=5000, …. Repeat it for several options."
)


class OutputClosedError(Exception):
    """Whoever read the output has gone (``| head``); `run` ends the command quietly."""


class Console:
    """Where a command's output goes, and the options that all commands have.

    ``settings`` knows the bootstrap servers, the timeout in seconds, and what options a client is made with.
    """

    def __init__(self, settings: ClientOptions, *, as_json: bool = False) -> None:
        if sys.stdout is None:  # so Python has it when whoever started the process closed it
            raise click.ClickException("standard output is closed; send it to a file, or to /dev/null")
        self.settings = settings
        self.as_json = as_json
        self.is_terminal = _is_terminal(sys.stdout)
        self.talks = _is_terminal(sys.stderr) and not as_json
        """Whether a person is there to read progress on standard error."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # a terminal that can't show a letter still gets a line
                stream.reconfigure(errors="backslashreplace")

    @property
    def timeout(self) -> float:
        """Seconds that the cluster gets to answer."""
        return self.settings.timeout

    # Output -------------------------------------------------------------------------------------------------------

    def print(self, text: str = "") -> None:
        """A line on standard output. Raises OutputClosedError when nobody reads it any more."""
        self.write(text + "\n")

    def write(self, text: str) -> None:
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            raise OutputClosedError from None

    def note(self, text: str) -> None:
        """A line for people, on standard error, so that it is never taken for output."""
        click.echo(text, err=True)

    def emit(self, document: object) -> None:
        """The JSON document of ``--json``. Bytes in it stand as base64 in ``{"base64": …}``."""
        self.print(to_json(document, indent=2))

    def table(
        self,
        columns: Sequence[Column | str],
        rows: Iterable[Sequence[Any]],
        *,
        title: str = "",
        empty: str = "",
    ) -> None:
        """A table, or with ``--json`` a list of objects. ``empty`` is said (to people) where there are no rows."""
        heads = [Column(column) if isinstance(column, str) else column for column in columns]
        lines = [tuple(row) for row in rows]
        if self.as_json:
            self.emit([dict(zip((head.name for head in heads), line, strict=True)) for line in lines])
        elif not lines:
            if empty:
                self.note(empty)
        elif self.is_terminal and (drawn := _draw_table(heads, lines, title)) is not None:
            self.write(drawn)
        else:
            if title:
                self.print(title)
            self.write(plain_table(heads, lines))

    def details(self, values: Mapping[str, Any], *, title: str = "") -> None:
        """Names and values, a pair a line; with ``--json`` an object."""
        if self.as_json:
            self.emit({Column(name).name: value for name, value in values.items()})
            return
        if title:
            self.print(title)
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            self.print(f"{name:<{width}}  {Column(name).text(value)}".rstrip())

    def progress(
        self, what: str, *, total: float | None = None, unit: str = "records", hidden: bool = False
    ) -> Progress:
        """A bar (``total`` known) or a counter on standard error; shows nothing unless that is a terminal.

        ``unit`` "bytes" is shown in KiB, MiB, …; anything else is counted. ``hidden`` shows nothing at all.
        """
        from .progress import Progress

        return Progress(what, total, unit, visible=self.talks and not hidden)

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something that can't be undone; ``yes`` is the option ``--yes``.

        Without a terminal nobody can answer, so ``--yes`` has to be there. A no ends the command with 1.
        """
        if yes:
            return
        if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
            raise click.UsageError("Nobody can be asked here: add --yes to go ahead.")
        with _ended_by_signals():
            confirmed = click.confirm(question, err=True)
        if not confirmed:
            raise click.ClickException("left as it is")


def options(command: Command) -> Command:
    """Give a command the common options, and a `Console` as its first argument."""

    @functools.wraps(command)
    def with_console(
        *args: Any,
        bootstrap_server: str,
        as_json: bool,
        timeout: float,
        client_settings: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        settings = ClientOptions(bootstrap_server, timeout, client_settings)
        return command(Console(settings, as_json=as_json), *args, **rest)

    for option in (
        click.option(
            "-X",
            "--client-option",
            "client_settings",
            multiple=True,
            metavar="KEY=VALUE",
            help=CLIENT_OPTION_HELP,
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=30,
            show_default=True,
            metavar="SECONDS",
            help="How long the cluster may take to answer.",
        ),
        click.option("--json", "as_json", is_flag=True, help="Output for machines."),
        click.option(
            "-b",
            "--bootstrap-server",
            envvar=ENVIRONMENT,
            default=DEFAULT_BOOTSTRAP,
            show_default=True,
            show_envvar=True,
            metavar="HOST:PORT[,…]",
            help="Brokers to ask first.",
        ),
    ):
        with_console = option(with_console)
    return with_console  # type: ignore[return-value]


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end; what goes wrong ends the process with one line and an exit code.

    Ctrl-C and SIGTERM cancel the coroutine: it may catch CancelledError to finish cleanly, and raises it again. A
    second Ctrl-C doesn't wait for that.
    """
    # Records are made by the million here and are no part of cycles: looking for those all the time would take a
    # third of the whole run.
    gc.set_threshold(_COLLECT_AFTER, 20, 50)
    try:
        with asyncio.Runner() as runner:
            return runner.run(_terminable(main))
    except KeyboardInterrupt:
        sys.exit(130)
    except asyncio.CancelledError:
        sys.exit(143)
    except OutputClosedError:
        forget_output()
        sys.exit(0)
    except ConfigurationError as error:
        raise click.UsageError(one_line(error)) from None
    except ClientError as error:
        raise click.ClickException(one_line(error)) from None
    except OSError as error:
        raise click.ClickException(_describe(error)) from None


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Have Ctrl-C and SIGTERM end the process meanwhile: cancelling would wait for an event loop that is held up."""

    def end(number: int, frame: object) -> NoReturn:
        sys.stderr.write("\n")
        sys.exit(128 + number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _terminable(main: Coroutine[Any, Any, T]) -> T:
    """The coroutine, cancelled by SIGTERM too."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await main


def one_line(error: BaseException) -> str:
    """An error's message without line breaks; its class where it has none."""
    return " ".join(str(error).split()) or type(error).__name__


def _describe(error: OSError) -> str:
    name = error.filename
    reason = error.strerror or one_line(error)
    return f"{os.fsdecode(name)}: {reason}" if isinstance(name, (str, bytes)) else reason


def forget_output() -> None:
    """Let nothing be written to the closed pipe when Python flushes its streams at the end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def unknown_topic(name: str, known: Iterable[str]) -> click.ClickException:
    """The error for a topic that isn't there, with the names that are nearest to it."""
    return unknown("topic", name, known)


def unknown(kind: str, name: str, known: Iterable[str]) -> click.ClickException:
    """The error for a topic, group, … that isn't there, with the names that are nearest to it."""
    return click.ClickException(f"unknown {kind} {printable(name)}{did_you_mean(name, known)}")


def text_or_base64(name: str, value: bytes | None) -> dict[str, str | None]:
    """A field of a JSON object that holds a record's bytes.

    UTF-8 is ``{name: text}``; other bytes are base64, marked by a second field: ``name_encoding``.
    """
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {name: base64.b64encode(value).decode(), f"{name}_encoding": "base64"}


def to_json(document: object, *, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False, default=_json_default)


def _json_default(value: object) -> object:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _draw_table(columns: Sequence[Column], rows: Sequence[Sequence[Any]], title: str) -> str | None:
    """The table as rich draws it for this terminal; None without rich."""
    try:
        from .rich_output import draw_table
    except ImportError:
        return None
    return draw_table(columns, rows, title)


def _is_terminal(stream: Any) -> bool:
    """Whether a person looks at a stream; a stream may also be missing or closed."""
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:
        return False
