"""The options that a command makes its client with: bootstrap servers, time, and those given by ``-X``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import click

# Options by the names that kafka-python and aiokafka users know, from which the client's ssl_context is made.
_TLS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_check_hostname")
_TO_CONNECT = 3.0
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Settings:
    """What a client is to be made with. A wrong option is a usage error, before anything is sent."""

    def __init__(self, bootstrap_servers: str, timeout: float, pairs: Sequence[str] = ()) -> None:
        """``timeout`` in seconds; ``pairs`` are KEY=VALUE."""
        self.bootstrap_servers = bootstrap_servers
        self.timeout = timeout
        self._given: dict[str, str] = {}
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if not equals or not key.strip():
                raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="-X")
            self._given[key.strip().replace(".", "_").replace("-", "_")] = value.strip()

    @property
    def connect_timeout(self) -> float:
        """Seconds to find a broker: somebody who mistyped an address wants to know soon."""
        return min(self.timeout, _TO_CONNECT)

    def options_of(
        self, client: Callable[..., Any], beside: Collection[Callable[..., Any]] = (), /, **own: Any
    ) -> dict[str, Any]:
        """Keyword arguments for a client class: ``own``, then what ``-X`` says.

        Values are turned into the type of the option's default. ``beside`` are other classes that a command makes
        with the same options: those that they alone have are left out. Raises click.BadParameter for a name that no
        class has, one that the command sets by itself, and a value of another type.
        """
        known = _parameters(client)
        others = {name for other in beside for name in _parameters(other)}
        made: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers, **own}
        for key, text in self._given.items():
            if key in _TLS or (key in others and key not in known):
                continue
            if key not in known or key == "ssl_context":
                raise click.BadParameter(
                    f"the client has no option {key}{did_you_mean(key, [*known, *_TLS])}", param_hint="-X"
                )
            made[key] = _convert(key, text, known[key].default)
        if made.get("security_protocol", "PLAINTEXT") == "SSL" and "ssl_context" in known:
            made["ssl_context"] = self._ssl_context()
        elif unused := [key for key in self._given if key in _TLS]:
            raise click.BadParameter(f"{unused[0]} needs security_protocol=SSL beside it", param_hint="-X")
        return made

    def _ssl_context(self) -> Any:
        import ssl

        given = self._given
        try:
            context = ssl.create_default_context(cafile=given.get("ssl_cafile"))
            if "ssl_certfile" in given:
                context.load_cert_chain(
                    given["ssl_certfile"], given.get("ssl_keyfile"), given.get("ssl_password")
                )
        except (OSError, ssl.SSLError) as error:
            files = ", ".join(given[key] for key in _TLS[:3] if key in given)
            reason = getattr(error, "reason", None) or error.strerror or error
            raise click.BadParameter(f"{files}: {reason}", param_hint="-X") from None
        if not _convert("ssl_check_hostname", given.get("ssl_check_hostname", "true"), True):
            context.check_hostname = False
        return context


def _parameters(client: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return {
        name: parameter
        for name, parameter in inspect.signature(client).parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }


def _convert(key: str, text: str, default: object) -> Any:
    """Text as the type of the option's default; without one, a number if it is one."""
    if isinstance(default, bool):
        if text.lower() not in _WORDS:
            raise click.BadParameter(f"{key} is true or false, not {text!r}", param_hint="-X")
        return _WORDS[text.lower()]
    if isinstance(default, (int, float)):
        try:
            return float(text) if isinstance(default, float) or "." in text else int(text)
        except ValueError:
            raise click.BadParameter(f"{key} is a number, not {text!r}", param_hint="-X") from None
    if default is None or default is inspect.Parameter.empty:
        return int(text) if text.isdecimal() else text
    return text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``"; did you mean X?"`` with the names nearest to one that is unknown, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
