"""The names of topics as users give them to a consumer."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from ottla_client.errors import ConfigurationError

from .addresses import AS_KEYWORDS

NAME_RULE: Final = "not a valid name: 1 to 249 letters, digits, '.', '_' and '-'"
_NAME: Final = re.compile(r"(?!\.{1,2}\Z)[a-zA-Z0-9._-]{1,249}")
_ADDRESSES: Final = re.compile(r"[^\s,]+:[0-9]+(,.*)?")


def topic_names(topics: Collection[str] | str) -> tuple[str, ...]:
    """One topic or several. Raises ConfigurationError unless each can be a topic's name.

    A consumer waits for a topic that doesn't exist, so it would wait forever for one that can't exist.
    """
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if any(isinstance(name, Mapping) for name in names):
        raise ConfigurationError(f"a topic is given as a dict; {AS_KEYWORDS}")
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ConfigurationError(f"topics must be names, not {topics!r}; use unsubscribe() to read none")
    for name in names:
        if not _NAME.fullmatch(name):
            hint = f"; for brokers use bootstrap_servers={name!r}" if _ADDRESSES.fullmatch(name) else ""
            raise ConfigurationError(f"topic {name!r}: {NAME_RULE}{hint}")
    return names
