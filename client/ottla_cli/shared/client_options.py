"""The options that a command makes its clients with: bootstrap servers, the timeout, and ``-X``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ottla_client.errors import ConfigurationError
from ottla_protocol.printable import printable
from ottla_protocol.properties import PropertiesError, parse_properties

if TYPE_CHECKING:
    from ottla_client.settings import ConnectionSettings

Command = TypeVar("Command", bound=Callable[..., Any])

_TO_CONNECT = 3.0
_OPTIONS = {
    "acks": "acks",
    "compression": "compression.type",
    "group": "group.id",
    "isolation": "isolation.level",
    "linger": "linger.ms",
}
"""Parameters of commands that are options of their clients."""


def pair(text: str, option: str) -> tuple[str, str]:
    """``KEY=VALUE`` as a pair. Raises click.BadParameter."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint=option)
    return key.strip(), value.strip()


def read_settings(path: str) -> dict[str, str]:
    """The settings in a file, as Java's Properties reads them. Raises click.BadParameter."""
    try:
        return parse_properties(Path(path).read_bytes(), path)
    except (OSError, PropertiesError) as error:
        raise click.BadParameter(str(error), param_hint="--command-config") from None


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
        # The names in a file, which other clients may read, too; and those that are ignored, as the user knows.
        self._of_file: set[str] = set()
        self._ignored: set[str] = set()
        self.add(given)

    def add(self, given: Sequence[str]) -> None:
        """More of ``-X``. Names may begin with ``kafka.``, as Spark's options do."""
        for text in given:
            self._add(*pair(text, "-X"))

    def add_file(self, path: str, given: Collection[str] = ()) -> None:
        """The options in a properties file; ``-X`` and parameters that were ``given`` override them.

        Raises click.BadParameter.
        """
        from ottla_client.option_names import kafka_name

        overridden = {_OPTIONS[each] for each in given if each in _OPTIONS}
        for name, text in read_settings(path).items():
            if kafka_name(name.removeprefix("kafka.")) not in overridden:
                self._add(name, text, of_file=True)

    def _add(self, name: str, value: str, of_file: bool = False) -> None:
        name = name.removeprefix("kafka.")
        if name in ("bootstrap.servers", "bootstrap_servers"):
            self.bootstrap_servers = value
            return
        self._given[name] = value
        (self._of_file.add if of_file else self._of_file.discard)(name)

    def in_kafka_names(self) -> dict[str, str]:
        """The options, unchecked, by Kafka's names; of a file those that don't belong to other clients."""
        from ottla_client.option_names import kafka_name, kafka_names
        from ottla_client.settings import ConnectionSettings

        self._leave_out(set(kafka_names(ConnectionSettings)))
        return {kafka_name(name): text for name, text in self._known().items()}

    def _known(self) -> dict[str, str]:
        return {name: text for name, text in self._given.items() if name not in self._ignored}

    def as_given(self, text: str) -> str:
        """``text`` with options in Kafka's spelling, unless ``-X`` has Python's."""
        from ottla_client.option_names import in_kafka_names

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
        decided: Mapping[str, str] = MappingProxyType({}),
        **own: Any,
    ) -> dict[str, Any]:
        """Keyword arguments for the client with these settings: ``own``, overridden by ``-X``.

        ``also`` are settings of the command's other clients; options that only they have are left out. ``decided``:
        Kafka's names of options that the command sets itself, and what to give instead. Raises click.BadParameter for
        an unknown or invalid option, and for one that is decided.
        """
        from ottla_client.option_names import kafka_names, read_options

        self._leave_out({name for each in (settings, *also) for name in kafka_names(each)}, decided)
        try:
            options = read_options(self._known(), settings, also=also)
        except ConfigurationError as error:
            raise click.BadParameter(self.as_given(str(error)), param_hint="-X or --command-config") from None
        return {"bootstrap_servers": self.bootstrap_servers, **own, **options}

    def _leave_out(self, known: Collection[str], decided: Mapping[str, str] = MappingProxyType({})) -> None:
        """Ignore what a file has for other clients, the command or another security protocol, and print that once."""
        from ottla_client.foreign_options import is_of_others
        from ottla_client.option_names import kafka_name

        names = {name: kafka_name(name) for name in sorted(self._of_file - self._ignored)}
        given = {kafka_name(name): text for name, text in self._known().items()}
        for name in given:
            if name in decided and name not in names.values():
                raise click.BadParameter(f"the command decides on {name}: {decided[name]}", param_hint="-X")
        words = given.get("security.protocol", "PLAINTEXT").strip().upper().split("_")
        unused = [name for name, dotted in names.items() if _needs(dotted) not in (None, *words)]
        others = [name for name in names if name not in unused and is_of_others(names[name], known)]
        own = [name for name in names if names[name] in decided]
        self._ignored.update(unused, others, own)
        start = "ottla: --command-config: ignored, because "
        for name in own:
            click.echo(f"{start}the command decides on {names[name]}: {decided[names[name]]}", err=True)
        if others:
            click.echo(
                f"{start}this client has no such options: {', '.join(map(printable, others))}", err=True
            )
        if unused:
            listed = ", ".join(map(printable, unused))
            click.echo(f"{start}security.protocol is {'_'.join(words)}: {listed}", err=True)


def _needs(name: str) -> str | None:
    """The word that ``security.protocol`` must have for this option to count."""
    kind = name.removeprefix("enable.").partition(".")[0]
    return kind.upper() if kind in ("ssl", "sasl") else None
