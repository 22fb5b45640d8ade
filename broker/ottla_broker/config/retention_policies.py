"""The settings of retention policies from other packages: ``ottla.retention.policy.<name>.<key>``.

``topics`` is a regular expression that matches whole names of topics; any other key is an option of the policy itself.
The broker's file is the only place for them: Ottla adds nothing to Kafka's requests, znodes and topic configs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from ottla_broker.config.model import ConfigError
from ottla_broker.log.user_retention import PolicySettings

PREFIX: Final = "ottla.retention.policy."


def parse_policies(
    given: Mapping[str, str], error: Callable[[str, str], ConfigError]
) -> tuple[PolicySettings, ...]:
    """The policies that settings ask for, by name. Raises ConfigError, made by ``error`` of a key and a reason."""
    options: dict[str, dict[str, str]] = {}
    for key, text in given.items():
        if key.startswith(PREFIX):
            name, dot, option = key.removeprefix(PREFIX).partition(".")
            if not (name and dot and option):
                raise error(key, f"is no setting of a policy; write {PREFIX}NAME.topics=REGEX")
            options.setdefault(name, {})[option] = text
    found = []
    for name, own in sorted(options.items()):
        key = f"{PREFIX}{name}.topics"
        pattern = own.pop("topics", None)
        if pattern is None:
            given_key = f"{PREFIX}{name}.{next(iter(own))}"
            raise error(given_key, f"the policy has no topics; set {key} to a regular expression")
        try:
            topics = re.compile(pattern)
        except re.error as wrong:
            raise error(key, f"{pattern!r} is not a regular expression ({wrong})") from wrong
        found.append(PolicySettings(name, topics, own))
    return tuple(found)
