"""Kafka's login settings: ``<Java class> required name="value" …;`` (``JaasConfig``).

The class says which mechanism the login is for; the names and values are its options.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([=;])|([^\s=;"']+))""", re.DOTALL
)

MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
"""The class of each mechanism."""


class Login(NamedTuple):
    """The class and the options of a login."""

    module: str
    options: Mapping[str, str]


def parse_login(text: str) -> Login:
    """Parse a login. Raises ValueError with what is wrong, without the values, which may be passwords."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise ValueError('a login has the form <class> required name="value" …; with a semicolon at its end')
    module, flag = tokens[0][0], tokens[1][0]
    if flag.lower() not in _FLAGS:
        raise ValueError(f"after the login's class comes one of {', '.join(_FLAGS)}")
    options: dict[str, str] = {}
    rest = tokens[2:-1]
    if (";", True) in rest:
        raise ValueError("it has several logins, only one is allowed")
    if len(rest) % 3:
        raise ValueError('an option of the login is not name="value"')
    for name, equals, value in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if equals != ("=", True) or name[1] or value[1]:
            raise ValueError('an option of the login is not name="value"')
        options[name[0]] = value[0]
    return Login(module, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words, and whether each is a mark."""
    found = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            raise ValueError("a quotation mark of the login is not closed")
        position = match.end()
        double, single, mark, word = match.groups()
        if mark is not None:
            found.append((mark, True))
        else:
            quoted = double if double is not None else single
            found.append((re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else word, False))
    return found


def plain_users(login: Login) -> dict[str, str]:
    """The passwords by user, of options such as ``user_alice``."""
    return {name[5:]: password for name, password in login.options.items() if name.startswith("user_")}
