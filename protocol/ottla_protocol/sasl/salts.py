"""Salts for users that don't exist, which look like those of users that do.

A server answers a stranger's first SCRAM message with the user's salt and iterations. Which tool has made a user shows
there: the command line, Kafka's tools and librdkafka make salts of different lengths. So a name without a user gets the
form of some user's salt; the name decides whose, so that it stays the same, and forms are as frequent as among users.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import Final, NamedTuple

SALT_BYTES: Final = 24
ITERATIONS: Final = 8192
"""What the command line gives new passwords."""

_KAFKAS: Final = re.compile(rb"[0-9a-z]{23,26}")
"""Salts of Kafka's tools: 130 random bits as text in base 36 (``ScramFormatter.secureRandomBytes``)."""
KAFKAS_BITS: Final = 130
DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_LONGEST: Final = 1024
"""Longer salts, in bytes, aren't imitated: a stranger must not have them made."""
_MOST_FORMS: Final = 16
"""Rarer forms aren't imitated."""
_RANGE: Final = 1 << 64


class SaltForm(NamedTuple):
    """A stranger's view of how a password was made. ``length`` is in bytes, 0 for a text of Kafka's tools."""

    length: int
    iterations: int


DEFAULT_FORM: Final = SaltForm(SALT_BYTES, ITERATIONS)
"""While there are no users."""


class SaltForms:
    """The forms of one mechanism's users, counted."""

    def __init__(self) -> None:
        self._counts: Counter[SaltForm] = Counter()
        # The forms in their order, and where each ends among the users; made when they are needed.
        self._forms: list[SaltForm] = []
        self._ends: list[int] | None = None

    def add(self, salt: bytes, iterations: int) -> None:
        """Count a user."""
        if len(salt) <= _LONGEST:
            self._counts[_form(salt, iterations)] += 1
            self._ends = None

    def remove(self, salt: bytes, iterations: int) -> None:
        """A user that was counted is gone."""
        if len(salt) <= _LONGEST:
            form = _form(salt, iterations)
            self._counts[form] -= 1
            if not self._counts[form]:
                del self._counts[form]
            self._ends = None

    def chosen(self, number: int) -> SaltForm:
        """The form of some user; ``number`` has 64 bits and says whose."""
        if self._ends is None:
            common = self._counts.most_common(_MOST_FORMS)
            self._forms = sorted(form for form, _ in common)
            self._ends = list(accumulate(self._counts[form] for form in self._forms))
        if not self._ends:
            return DEFAULT_FORM
        return self._forms[bisect_right(self._ends, number * self._ends[-1] // _RANGE)]


def _form(salt: bytes, iterations: int) -> SaltForm:
    return SaltForm(0 if _KAFKAS.fullmatch(salt) else len(salt), iterations)
