"""Reads a broker's ``.properties`` files; :mod:`ottla_protocol.properties` parses them."""

from __future__ import annotations

from pathlib import Path

from ottla_broker.config.model import ConfigError
from ottla_protocol.properties import PropertiesError, parse_properties


def read_properties(path: Path) -> dict[str, str]:
    """Raises ConfigError: the file can't be read or parsed; the message names it."""
    try:
        return parse_properties(path.read_bytes(), str(path))
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        ) from error
    except PropertiesError as error:
        raise ConfigError(str(error)) from error
