"""The options that a command makes its clients with: bootstrap servers, the timeout, and ``-X``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import ConfigurationError

if TYPE_CHECKING:
    from ..settings import ConnectionSettings

Command = TypeVar("Command", bound=Callable[..., Any])

_TO_CONNECT = 3.0


def pair(text: str, option: str) -> tuple[str, str]:
    """``KEY=VALUE`` as a pair. Raises click.BadParameter."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    return key.strip(), value.strip()


def read_settings(path: str) -> list[str]:
    """The settings in a file, one KEY=VALUE per line, without comments. Raises click.BadParameter."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--command-config") from None
    settings = [line.strip() for line in lines if line.strip() and line.strip()[0] not in "#!"]
    for text in settings:
        pair(text, f"--command-config {path}")
    return settings


def option_group(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """One decorator for options that several commands have, in the order of their help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class ClientOptions:
    """An invalid option is a usage error, raised before anything is sent."""

    def __init__(self, bootstrap_servers: str, timeout: float, given: Sequence[str] = ()) -> None:
        """``timeout`` in seconds; ``given`` are the KEY=VALUE texts of ``-X``."""
        self.bootstrap_servers = bootstrap_servers
        self.timeout = timeout
        self._given: dict[str, str] = {}
        self.add(given)

    def add(self, given: Sequence[str]) -> None:
        """More of ``-X``. Names may begin with ``kafka.``, as Spark's options do."""
        for text in given:
            name, value = pair(text, "-X")
            name = name.removeprefix("kafka.")
            if name in ("bootstrap.servers", "bootstrap_servers"):
                self.bootstrap_servers = value
            else:
                self._given[name] = value

    def in_kafka_names(self) -> dict[str, str]:
        """The options of ``-X``, unchecked, by Kafka's names."""
        from ..option_names import kafka_name

        return {kafka_name(name): text for name, text in self._given.items()}

    def as_given(self, text: str) -> str:
        """``text`` with options in Kafka's spelling, unless ``-X`` has Python's."""
        from ..option_names import in_kafka_names

        return text if any("_" in name for name in self._given) else in_kafka_names(text)

    @property
    def connect_timeout(self) -> float:
        """Seconds to find a broker: short, so that a mistyped address shows soon."""
        return min(self.timeout, _TO_CONNECT)

    def of(
        self,
        settings: type[ConnectionSettings],
        also: Collection[type[ConnectionSettings]] = (),
        /,
        **own: Any,
    ) -> dict[str, Any]:
        """Keyword arguments for the client with these settings: ``own``, overridden by ``-X``.

        ``also`` are settings of the command's other clients; options that only they have are left out. Raises
        click.BadParameter for an unknown or invalid option.
        """
        from ..option_names import read_options

        try:
            options = read_options(self._given, settings, also=also)
        except ConfigurationError as error:
            raise click.BadParameter(self.as_given(str(error)), param_hint="-X or --command-config") from None
        return {"bootstrap_servers": self.bootstrap_servers, **own, **options}
