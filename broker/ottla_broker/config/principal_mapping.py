r"""Rules that make user names of distinguished names (KIP-371, ``SslPrincipalMapper``).

``RULE:pattern/replacement/[LU]``, separated by commas: the first pattern that matches the whole name decides, with $1 …
for its groups; L or U changes the case. ``DEFAULT`` is the name itself. A slash in a pattern is written ``\/``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

_PART: Final = r"((?:\\.|[^\\/])*)"
_RULE: Final = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_PART}/{_PART}/([LU]?))\s*(?:,|$)", re.DOTALL)
_GROUP: Final = re.compile(r"\\(.)|\$(\d+)", re.DOTALL)


class Rule(NamedTuple):
    """A pattern and its replacement; without a pattern the name stays as it is."""

    pattern: re.Pattern[str] | None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The user name, or None if the rule doesn't match."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None

        def fill(found: re.Match[str]) -> str:
            return found[1] if found[1] is not None else (match[int(found[2])] or "")

        user = _GROUP.sub(fill, self.replacement)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


@lru_cache(32)
def parse_rules(text: str) -> Sequence[Rule]:
    """Parse the rules. Raises ValueError with what is wrong."""
    rules: list[Rule] = []
    position = 0
    while position < len(text):
        match = _RULE.match(text, position)
        if match is None:
            raise ValueError(f"'{text[position:]}' is not RULE:pattern/replacement/[LU] or DEFAULT")
        position = match.end()
        if match[1]:
            rules.append(Rule(None))
            continue
        try:
            pattern = re.compile(match[2])
        except re.error as error:
            raise ValueError(f"'{match[2]}' is not a regular expression ({error})") from error
        used = [int(found[2]) for found in _GROUP.finditer(match[3]) if found[2]]
        if used and max(used) > pattern.groups:
            raise ValueError(
                f"'{match[3]}' refers to group {max(used)}, but '{match[2]}' has {pattern.groups}"
            )
        rules.append(Rule(pattern, match[3], match[4]))
    return tuple(rules)


def user_name(text: str, distinguished_name: str) -> str:
    """The user name of a distinguished name. Raises ValueError if no rule matches."""
    for rule in parse_rules(text):
        name = rule.apply(distinguished_name)
        if name is not None:
            return name
    raise ValueError(f"no rule of ssl.principal.mapping.rules matches {distinguished_name!r}")
